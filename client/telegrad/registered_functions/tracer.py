"""The tracer, which stands in for a recorder and writes a program instead of sending one; and the paths of a program.

The instructions of SDK tensors and the operations on traced tensors are added to the program. When the code asks for a
truth value, the tracer gives the prescribed answer and starts a new segment of the program. The code runs once for each
path: two runs agree up to the question that they answer differently, including the names of their tensors. So the
instructions before the question appear once in the program, and those after it in the branches of a ``cond``.

Loops that depend on values, ``while_loop`` and ``scan``, are each one instruction of a traced function. Outside of
tracing they are Python loops on tensors, with the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from telegrad_engine.context import no_grad, state
from telegrad_engine.dtypes import from_numpy
from telegrad_engine.errors import DataDependentShape, InvalidArgument, InvalidOperation, LimitExceeded
from telegrad_engine.program.json_codec import to_lists
from telegrad_engine.program.registered_functions import WRITES_TO_INPUT, Applicable
from telegrad_engine.program.registered_functions.limits import MAX_ITERATIONS
from telegrad_engine.schema.op import NO_ATTRS, Op
from telegrad_engine.tensor.abstract import Meta
from telegrad_engine.transforms.tangents import as_tuple

from ..call_site import Line, users_line
from ..sessions import session as sessions
from ..tape.dispatch import active
from ..tape.poisoning import Sharing
from ..tensor.handle import Tensor, functions
from .traced_tensor import UNKNOWN, Traced, Unknown, encode, has_symbol, hints, needs_example, refusal, to_json

MAX_DECISIONS, MAX_PATHS = 64, 64
"""The maximum number of questions that one run may ask, and of paths through the code."""
Data = dict[str, Any]


class Tracer:
    """One run of traced code: its instructions, split where it asked for a truth value.

    ``decisions`` are the answers; after the last one every answer is True. ``guards`` are expressions whose value the
    code took from the example, and ``hints`` the shapes and dtypes of tensors by name, if there is an example.
    """

    segment, parent, observer = None, None, None
    """A tracer has no tape, no owner process and no observer."""

    def __init__(self, prefix: str, decisions: Sequence[bool], guards: Data, hints: Data) -> None:
        self.guards, self.hints = guards, hints
        self.segments: list[list[Data]] = [[]]
        self.asked: list[tuple[Any, Line]] = []
        """The predicates, one between two segments, and where they were asked."""
        self.result: Any = None
        """What the code returned."""
        self.inputs: set[str] = set()
        self.outer: Callable[[], Any] = sessions.current
        """The session that was current when the trace began."""
        self.default_dtype = np.dtype(np.float32)
        self.received: list[Any] = []
        self.failed: Mapping[str, Any] = {}
        self.sharing = Sharing()
        self.lock = nullcontext()
        self.transport = SimpleNamespace(
            url="a function that is being traced (it takes tensors as arguments only)",
            session_id="a trace",
            device="cpu",
            remote=False,
            dtype=from_numpy(self.default_dtype),
        )
        self._answers: dict[str, bool] = {}
        self._prefix, self._decisions = prefix, decisions
        self._last = 0

    # Recorder interface -------------------------------------------------------------------

    def new_id(self) -> str:
        """Return a name for the next tensor, the same in every run until the runs diverge."""
        self._last += 1
        return f"{self._prefix}{self._last}"

    def emit(
        self,
        op: str,
        inputs: Sequence[Any] = (),
        outputs: Sequence[str] = (),
        attrs: Any = NO_ATTRS,
        effect: Any = None,
    ) -> None:
        """Write an instruction that an SDK tensor records itself."""
        if op == "tensor":
            array = attrs["data"]
            attrs = {**attrs, "data": to_lists(array), "dtype": from_numpy(array.dtype).name}
        self.write(op, inputs, outputs, attrs)

    def release(self, name: str) -> None:
        """Do nothing: a trace frees nothing."""

    def refuse(self, names: Sequence[str], error: Exception) -> None:
        """Do nothing: the error ends the trace."""

    # Tracing -----------------------------------------------------------------------------

    def input(self, name: str, hint: Any) -> Traced:
        """Return a tensor for an input of the program."""
        self.inputs.add(name)
        return Traced(self, name, hint)

    def write(self, op: str, inputs: Sequence[Any], outputs: Sequence[str], attrs: Mapping[str, Any]) -> None:
        """Add an instruction."""
        data: Data = {"op": op}
        if inputs:
            data["inputs"] = [self.reference(x) for x in inputs]
        if outputs:
            data["outputs"] = list(outputs)
        if attrs:
            data["attrs"] = dict(attrs)
        self.segments[-1].append(data)

    def record(
        self, op: str, inputs: Sequence[Any], attrs: Mapping[str, Any], outputs: int, known: Sequence[Any] | None = None
    ) -> list[Traced]:
        """Add an instruction and return its outputs, of which these are the stand-ins on the example."""
        made = [Traced(self, self.new_id(), UNKNOWN if known is None else known[i]) for i in range(outputs)]
        self.write(op, inputs, [t._id for t in made], attrs)
        return made

    def reference(self, x: Any) -> Any:
        """Return an input as an instruction has it."""
        if isinstance(x, Tensor):
            recorder: Any = x._recorder
            if recorder is not self:
                raise refusal("a registered function cannot use a tensor from outside; pass it as an input")
            return x._id
        return [self.reference(v) for v in x] if isinstance(x, (list, tuple)) else to_json(x)

    def apply(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        """Write an op and return its outputs."""
        known, count = self.evaluate(lambda: Meta._apply(op, hints(inputs), _hinted(attrs))), len(op.outputs)
        if op.lists_outputs:
            if known is None:
                raise needs_example(f"how many tensors {op.name} gives")
            for x in inputs:
                if isinstance(x, Traced):
                    x.read("shape")  # the number of outputs holds for this shape only
            count = len(known)
        return op.bundle(self.record(op.key, inputs, encode(op, attrs), count, known))

    def apply_function(self, function: Applicable, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> list[Any]:
        """Write the call of another registered function and return its outputs."""
        known = self.evaluate(lambda: function.call(hints(inputs), _hinted(parameters)))
        attrs: Data = {"function": function.name}
        if parameters:
            attrs["attrs"] = {name: to_json(value) for name, value in parameters.items()}
        return self.record("apply", [list(inputs)], attrs, function.outputs, known)

    def evaluate(self, run: Callable[[], Any]) -> list[Any] | None:
        """The outputs' stand-ins, or None unless everything they depend on is known."""
        try:
            with no_grad():
                result = run()
        except (DataDependentShape, Unknown):
            return None
        return list(result) if isinstance(result, (list, tuple)) else [result]

    def decide(self, predicate: Any) -> bool:
        """Return this run's answer to a question about values: a tensor's name, or an expression."""
        key = str(predicate)
        if not isinstance(predicate, str) and key in self._answers:
            return self._answers[key]  # the value of an expression never changes
        position = len(self.asked)
        answer = self._decisions[position] if position < len(self._decisions) else True
        self._answers[key] = answer
        self.asked.append((predicate, users_line()))
        self.segments.append([])
        if len(self.asked) > MAX_DECISIONS:
            raise LimitExceeded(
                f"{users_line()}: more than {MAX_DECISIONS} decisions on values follow each other; use tg.while_loop "
                "for a loop that depends on values"
            )
        return answer

    def check_writable(self, tensor: Traced) -> None:
        """Raise InvalidOperation if the tensor is an input of the program, which belongs to the caller."""
        if tensor._id in self.inputs:
            raise refusal(WRITES_TO_INPUT)


def _hinted(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Replace symbols in attributes by the example's values."""
    return {name: hints(value) if has_symbol(value) else value for name, value in attrs.items()}


@contextmanager
def tracing(tracer: Tracer) -> Iterator[None]:
    """Write this thread's computations to ``tracer``, and create new tensors there.

    Autocast applies when the function is called: the traced program contains no automatic casts.
    """
    before, outer = sessions.known(), active.tracer
    autocast, state.autocast = state.autocast, None
    tracer.outer = lambda: before if before is not None else sessions.connect()
    active.tracer = tracer
    try:
        with sessions.standing_in(SimpleNamespace(recorder=tracer, closed=False)):
            yield
    finally:
        active.tracer = outer
        state.autocast = autocast


class TracedProgram(NamedTuple):
    """The instructions of all paths, and what the code returns: data that is the same on all paths, and tensors."""

    instructions: list[Data]
    result: Any


class Paths:
    """Runs code along all its paths. ``code`` computes on tensors of the tracer passed to it."""

    def __init__(self, prefix: str, code: Callable[[Tracer], Any], guards: Data, hints: Data) -> None:
        self._prefix, self._code = prefix, code
        self._guards, self._hints = guards, hints
        self._paths = self._joins = 0

    def program(self) -> TracedProgram:
        """Return the program of all paths. Raises LimitExceeded, naming the line, for more than 64 paths."""
        return self._after([], self._run([]))

    def _run(self, decisions: Sequence[bool]) -> Tracer:
        tracer = Tracer(self._prefix, decisions, self._guards, self._hints)
        with tracing(tracer):
            tracer.result = self._code(tracer)
        return tracer

    def _after(self, taken: list[bool], run: Tracer) -> TracedProgram:
        """The program after the last of the decisions ``taken``."""
        before = run.segments[len(taken)]
        if len(run.asked) == len(taken):
            self._paths += 1
            return TracedProgram(before, run.result)
        predicate, line = run.asked[len(taken)]
        if self._paths >= MAX_PATHS:
            raise LimitExceeded(
                f"{line}: the code branches on values in more than {MAX_PATHS} ways; use tg.where, or tg.while_loop "
                "for a loop that depends on values"
            )
        then = self._after([*taken, True], run)
        other = self._after([*taken, False], self._run([*taken, False]))
        ours, theirs = _map(_rest, then.result), _map(_rest, other.result)
        if ours != theirs:
            raise InvalidOperation(
                f"{line}: what is returned, or kept on ctx besides tensors, differs between the answers to this "
                f"question: {ours} and {theirs}"
            )
        made = {name for i in [*then.instructions, *other.instructions] for name in i.get("outputs", ())}
        leaving: list[tuple[str, str, str]] = []

        def join(a: Any, b: Any) -> Any:
            if not isinstance(a, Tensor) or (a._id == b._id and a._id not in made):
                return a  # a tensor made before the question that is the result of both paths needs no join
            self._joins += 1
            joined = Traced(run, f"{self._prefix}_{self._joins}", getattr(a, "hint", UNKNOWN))
            leaving.append((joined._id, a._id, b._id))
            return joined

        result = _map(join, then.result, other.result)
        attrs = {
            "then": {"instructions": then.instructions, "outputs": [a for _, a, _ in leaving]},
            "else": {"instructions": other.instructions, "outputs": [b for _, _, b in leaving]},
        }
        cond = {"op": "cond", "inputs": [predicate], "outputs": [name for name, _, _ in leaving], "attrs": attrs}
        return TracedProgram([*before, cond], result)


def _rest(leaf: Any) -> Any:
    """A part of a result that must be the same on all paths: of a tensor, only that it is one."""
    return Tensor if isinstance(leaf, Tensor) else leaf


def _map(function: Callable[..., Any], *values: Any) -> Any:
    """Apply a function to the corresponding leaves of results of the same structure."""
    first = values[0]
    if isinstance(first, dict):
        return {name: _map(function, *[value[name] for value in values]) for name in first}
    if isinstance(first, (tuple, list)):
        return type(first)([_map(function, *leaves) for leaves in zip(*values, strict=True)])
    return function(*values)


def while_loop(
    cond_fn: Callable[..., Any],
    body_fn: Callable[..., Any],
    carried_inputs: Sequence[Any],
    *,
    max_iterations: int = MAX_ITERATIONS,
) -> tuple[Any, ...]:
    """Repeat ``carried = body_fn(*carried)`` while ``cond_fn(*carried)``, a tensor of one element, is true.

    ``body_fn`` returns as many tensors as it takes, of the same shapes and dtypes. Raises LimitExceeded after
    ``max_iterations``.

    ``carried_inputs`` are the first tensors; the last ones are returned.

    Examples:
        >>> tg.while_loop(lambda x: x < 100, lambda x: (x * 2,), [tg.tensor(3.0)])
        (tensor(192.),)
    """
    carried, tracer = tuple(carried_inputs), active.tracer
    if tracer is not None:
        attrs = {
            "cond": _block(tracer, cond_fn, carried, 1),
            "body": _block(tracer, body_fn, carried, len(carried)),
            "max_iterations": max_iterations,
        }
        return tuple(tracer.record("while_loop", [carried], attrs, len(carried)))
    for _ in range(max_iterations):
        if not cond_fn(*carried):
            return carried
        carried = as_tuple(body_fn(*carried))
    raise LimitExceeded(f"a while_loop did not end after {max_iterations} iterations")


def scan(body_fn: Callable[..., Any], init: Sequence[Any], xs: Sequence[Any]) -> tuple[Any, ...]:
    """Run ``body_fn(*carried, *slices)`` for each slice of ``xs`` along their first dimension, in order.

    ``body_fn`` returns the carried tensors, as many as ``init`` has, and optionally more, which are stacked. Returns
    the last carried tensors and the stacks.

    Raises InvalidArgument if ``body_fn`` returns too few tensors.

    Examples:
        >>> tg.scan(lambda total, x: (total + x, total + x), [tg.tensor(0.0)], [tg.tensor([1.0, 2.0, 3.0])])
        (tensor(6.), tensor([1., 3., 6.]))
    """
    carried, sequences, tracer = tuple(init), tuple(xs), active.tracer
    if tracer is not None:
        block = _block(tracer, body_fn, (*carried, *sequences), None)
        return tuple(tracer.record("scan", [carried, sequences], {"body": block}, len(block["outputs"])))
    rows = []
    for slices in zip(*[x.unbind(0) for x in sequences], strict=True):
        results = as_tuple(body_fn(*carried, *slices))
        if len(results) < len(carried):
            raise InvalidArgument(f"scan(): body_fn returned {len(results)} tensors, but {len(carried)} are carried")
        carried = results[: len(carried)]
        rows.append(results[len(carried) :])
    return (*carried, *[functions.stack(column) for column in zip(*rows, strict=True)])


def _block(tracer: Tracer, code: Callable[..., Any], like: Sequence[Any], outputs: int | None) -> Data:
    """The program of one iteration of a loop, which may use outer tensors."""
    inputs = [Traced(tracer, tracer.new_id()) for _ in like]
    questions = len(tracer.asked)
    tracer.segments.append([])
    results = as_tuple(code(*inputs))
    if len(tracer.asked) > questions:
        raise refusal("a loop that is traced cannot branch in Python; use tg.where in it")
    if not all(isinstance(r, Tensor) for r in results) or (outputs is not None and len(results) != outputs):
        raise refusal(f"the code of this loop returns {outputs or 'some'} tensors")
    return {
        "inputs": [t._id for t in inputs],
        "instructions": tracer.segments.pop(),
        "outputs": [r._id for r in results],
    }


__all__ = ["scan", "while_loop"]
