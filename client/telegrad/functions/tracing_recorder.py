"""The tracer: it takes a recorder's place, and writes a program instead of sending one.

What the SDK's tensors tell their recorder, and what is done with traced tensors, becomes instructions. Where the
code asks for a truth, the tracer answers as it was told to, and cuts the program.
"""

from __future__ import annotations

import threading
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

from ..session import sessions
from ..tensor import handle
from ..tensor.handle import Tensor
from .tracing_symbols import UNKNOWN, Symbol, here, to_json
from .tracing_tensors import Traced, Unknown, encode, hinted, hints, is_known

MAX_DECISIONS = 64
"""Questions that one run may ask."""
Data = dict[str, Any]
_thread = threading.local()


class Tracer:
    """One run of traced code: its instructions, cut where it asked for a truth.

    ``decisions`` are the answers that it gets; where there are no more, it gets True.
    """

    segment, parent, effect = None, None, None
    """It has no tape, no other process owns it, and nothing is undone."""

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
        """What is known of tensors by name, where the code is traced on an example."""
        self._answers: dict[str, bool] = {}
        self._prefix = prefix
        self._decisions = decisions
        self._last = 0

    # In a recorder's place ---------------------------------------------------------------

    def new_id(self) -> str:
        """A name for the next tensor; the same in every run up to the point where the runs differ."""
        self._last += 1
        return f"{self._prefix}{self._last}"

    def emit(
        self, op: str, inputs: Sequence[Any] = (), outputs: Sequence[str] = (), attrs: Any = NO_ATTRS, nbytes: int = 0
    ) -> None:
        """Write down an instruction that a tensor of the SDK records itself."""
        if op == "tensor":
            array = attrs["data"]
            attrs = {**attrs, "data": to_lists(array), "dtype": from_numpy(array.dtype).name}
        self.write(op, list(inputs), outputs, attrs)

    def release(self, name: str) -> None:
        """Do nothing: a trace frees nothing."""

    def refuse(self, names: Sequence[str], error: Exception) -> None:
        """The error ends the trace."""

    # Tracing -----------------------------------------------------------------------------

    def input(self, name: str, meta: Meta | None = None) -> Traced:
        """A tensor that the program is given."""
        self.inputs.add(name)
        return Traced(self, name, meta)

    def write(self, op: str, inputs: Sequence[Any], outputs: Sequence[str], attrs: Mapping[str, Any]) -> None:
        """Add an instruction."""
        data: Data = {"op": op}
        if inputs:
            data["in"] = [self._ref(x) for x in inputs]
        if outputs:
            data["out"] = list(outputs)
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
        """Write down an op; its outputs."""
        metas = self.evaluate(lambda: Meta._apply(op, hints(inputs), hinted(attrs)), inputs)
        if op.lists_outputs and metas is None:
            raise NeedsExample(
                f"{here()}: how many tensors {op.name} gives is known only in a call. Give an example of the "
                "inputs: register_function(name, example=(…,))"
            )
        if op.lists_outputs:
            for x in inputs:
                if isinstance(x, Traced):
                    x.pin()  # so many outputs it has for this shape
        count = len(metas) if op.lists_outputs and metas is not None else len(op.outputs)
        made = [Traced(self, self.new_id(), None if metas is None else metas[i]) for i in range(count)]
        self.write(op.key, inputs, [t._id for t in made], encode(op, attrs))
        return op.bundle(made)

    def apply_function(self, function: Applicable, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> list[Any]:
        """Write down the application of another registered function; its outputs."""
        metas = self.evaluate(lambda: function.call(hints(inputs), hinted(parameters)), (inputs, *parameters.values()))
        made = [Traced(self, self.new_id(), None if metas is None else metas[i]) for i in range(function.outputs)]
        attrs: Data = {"function": function.name}
        if parameters:
            attrs["params"] = {name: to_json(value) for name, value in parameters.items()}
        self.write("apply", [list(inputs)], [t._id for t in made], attrs)
        return made

    def evaluate(self, run: Any, inputs: Any) -> list[Any] | None:
        """What the outputs look like, if all that it takes to know that is known."""
        if not is_known(inputs):
            return None
        try:
            with no_grad():
                result = run()
        except (DataDependentShape, Unknown):
            return None
        return list(result) if isinstance(result, (list, tuple)) else [result]

    def decide(self, predicate: Any, hint: Any = UNKNOWN) -> bool:
        """The answer that this run gets to a question about values."""
        key = str(predicate)
        if not isinstance(predicate, str) and key in self._answers:
            return self._answers[key]  # nothing changes the value of an expression
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
        """Refuse to change what the program is given: it is the caller's."""
        if tensor._id in self.inputs:
            raise InvalidOperation(f"{here()}: {WRITES_TO_INPUT}")

    def refuse_value(self, what: str) -> InvalidOperation:
        """The error for traced code that asks for a value."""
        return InvalidOperation(
            f"{here()}: {what} asks for the value of a tensor, and there is none while a function is traced. "
            "Compute with the tensor itself, or do not register the function: apply() runs any Python"
        )


@contextmanager
def tracing(tracer: Tracer) -> Iterator[None]:
    """Have what this thread computes written down by ``tracer``, and new tensors made there.

    Whether casts are automatic is known in a call: what is written down has none.
    """
    before, outer = sessions.known(), getattr(_thread, "tracer", None)
    autocast, state.autocast = state.autocast, None
    tracer.outer = lambda: before if before is not None else sessions.connect()
    _thread.tracer = tracer
    ENGINE.apply_spec = _apply_spec
    try:
        with sessions.standing_in(SimpleNamespace(recorder=tracer, closed=False)):
            yield
    finally:
        _thread.tracer = outer
        state.autocast = autocast


def active() -> Tracer | None:
    """The tracer that writes down what this thread computes."""
    return getattr(_thread, "tracer", None)


ENGINE: Any = handle
_compute = ENGINE.apply_spec


def _apply_spec(op: Op, inputs: tuple[Any, ...], attrs: Any, make: Any, composites: Any) -> Any:
    """In the place of the SDK's own from the first trace on: writes an op down where code is traced."""
    tracer = active()
    return _compute(op, inputs, attrs, make, composites) if tracer is None else tracer.apply(op, inputs, attrs)
