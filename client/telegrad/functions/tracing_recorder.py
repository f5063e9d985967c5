"""The tracer, which replaces a recorder and writes a program instead of sending one.

The instructions of SDK tensors and the operations on traced tensors are added to the program. When the code asks
for a truth value, the tracer gives the prescribed answer and starts a new segment of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np

from telegrad_engine.context import no_grad, state
from telegrad_engine.dtypes import from_numpy
from telegrad_engine.errors import DataDependentShape, InvalidOperation, LimitExceeded, NeedsExample
from telegrad_engine.program.json_codec import to_lists
from telegrad_engine.program.registered_functions import WRITES_TO_INPUT, Applicable
from telegrad_engine.schema.op import NO_ATTRS, Op
from telegrad_engine.tensor.abstract import Meta

from ..sessions import session as sessions
from ..tape.poisoning import Sharing
from ..tape.transform_stack import active
from ..tensor.handle import Tensor
from .tracing_symbols import UNKNOWN, Symbol, here, to_json
from .tracing_tensors import Traced, Unknown, encode, hinted, hints, is_known

MAX_DECISIONS = 64
"""The maximum number of questions that one run may ask."""
Data = dict[str, Any]


class Tracer:
    """One run of traced code: its instructions, split where it asked for a truth value.

    ``decisions`` are the answers; after the last one every answer is True.
    """

    segment, parent, observer = None, None, None
    """A tracer has no tape, no owner process and no observer."""

    def __init__(self, prefix: str, decisions: Sequence[bool]) -> None:
        self.segments: list[list[Data]] = [[]]
        self.asked: list[Any] = []
        """The predicates, one between two segments."""
        self.guards: dict[str, Any] = {}
        """Expressions whose value the code took from the example."""
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
        self.inputs: set[str] = set()
        self.metas: dict[str, Meta] = {}
        """The shapes and dtypes of tensors by name, if the code is traced on an example."""
        self._answers: dict[str, bool] = {}
        self._prefix = prefix
        self._decisions = decisions
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
        nbytes: int = 0,
        effect: Any = None,
    ) -> None:
        """Write an instruction that an SDK tensor records itself."""
        if op == "tensor":
            array = attrs["data"]
            attrs = {**attrs, "data": to_lists(array), "dtype": from_numpy(array.dtype).name}
        self.write(op, list(inputs), outputs, attrs)

    def release(self, name: str) -> None:
        """Do nothing: a trace frees nothing."""

    def refuse(self, names: Sequence[str], error: Exception) -> None:
        """Do nothing: the error ends the trace."""

    # Tracing -----------------------------------------------------------------------------

    def input(self, name: str, meta: Meta | None = None) -> Traced:
        """Return a tensor for an input of the program."""
        self.inputs.add(name)
        return Traced(self, name, meta)

    def write(self, op: str, inputs: Sequence[Any], outputs: Sequence[str], attrs: Mapping[str, Any]) -> None:
        """Add an instruction."""
        data: Data = {"op": op}
        if inputs:
            data["inputs"] = [self._ref(x) for x in inputs]
        if outputs:
            data["outputs"] = list(outputs)
        if attrs:
            data["attrs"] = dict(attrs)
        self.segments[-1].append(data)

    def _ref(self, x: Any) -> Any:
        if isinstance(x, Tensor):
            recorder: Any = x._recorder
            if recorder is not self:
                raise InvalidOperation(
                    f"{here()}: a registered function cannot use a tensor from outside; pass it as an input"
                )
            return x._id
        if isinstance(x, Symbol):
            return x.expression
        return [self._ref(v) for v in x] if isinstance(x, (list, tuple)) else to_json(x)

    def apply(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        """Write an op and return its outputs."""
        metas = self.evaluate(lambda: Meta._apply(op, hints(inputs), hinted(attrs)), inputs)
        if op.lists_outputs and metas is None:
            raise NeedsExample(
                f"{here()}: how many tensors {op.name} gives is known only in a call. Give an example of the "
                "inputs: register_function(name, example=(…,))"
            )
        if op.lists_outputs:
            for x in inputs:
                if isinstance(x, Traced):
                    x.pin()  # the number of outputs holds for this shape only
        count = len(metas) if op.lists_outputs and metas is not None else len(op.outputs)
        made = [Traced(self, self.new_id(), None if metas is None else metas[i]) for i in range(count)]
        self.write(op.key, inputs, [t._id for t in made], encode(op, attrs))
        return op.bundle(made)

    def apply_function(self, function: Applicable, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> list[Any]:
        """Write the call of another registered function and return its outputs."""
        metas = self.evaluate(lambda: function.call(hints(inputs), hinted(parameters)), (inputs, *parameters.values()))
        made = [Traced(self, self.new_id(), None if metas is None else metas[i]) for i in range(function.outputs)]
        attrs: Data = {"function": function.name}
        if parameters:
            attrs["attrs"] = {name: to_json(value) for name, value in parameters.items()}
        self.write("apply", [list(inputs)], [t._id for t in made], attrs)
        return made

    def evaluate(self, run: Any, inputs: Any) -> list[Any] | None:
        """The outputs' stand-ins, or None unless everything they depend on is known."""
        if not is_known(inputs):
            return None
        try:
            with no_grad():
                result = run()
        except (DataDependentShape, Unknown):
            return None
        return list(result) if isinstance(result, (list, tuple)) else [result]

    def decide(self, predicate: Any, hint: Any = UNKNOWN) -> bool:
        """Return this run's answer to a question about values."""
        key = str(predicate)
        if not isinstance(predicate, str) and key in self._answers:
            return self._answers[key]  # the value of an expression never changes
        position = len(self.asked)
        answer = self._decisions[position] if position < len(self._decisions) else True
        self._answers[key] = answer
        self.asked.append((predicate, here()))
        self.segments.append([])
        if len(self.asked) > MAX_DECISIONS:
            raise LimitExceeded(
                f"{here()}: more than {MAX_DECISIONS} decisions on values follow each other; use tg.while_loop "
                "for a loop that depends on values"
            )
        return answer

    def check_writable(self, tensor: Traced) -> None:
        """Raise InvalidOperation if the tensor is an input of the program, which belongs to the caller."""
        if tensor._id in self.inputs:
            raise InvalidOperation(f"{here()}: {WRITES_TO_INPUT}")

    def refuse_value(self, what: str) -> InvalidOperation:
        """Return the error for traced code that asks for a value."""
        return InvalidOperation(
            f"{here()}: {what} asks for the value of a tensor, and there is none while a function is traced. "
            "Compute with the tensor itself, or do not register the function: apply() runs any Python"
        )


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
