"""Traces a function: notes the instructions that it records, and whether it does anything that they cannot repeat.

During a trace, :class:`TraceRecorder` observes the session's recorder.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple, Self
from weakref import ref

from telegrad_engine.context import state
from telegrad_engine.graph.node import next_sequence
from telegrad_engine.program.verbs import VERBS

from ..autograd.client_evaluation import may_stop
from ..call_site import users_line
from ..sessions.generators import default_generator
from ..tape.recorder import Recorder
from ..tape.segment import Recorded, Segment
from ..tensor.handle import Tensor

MAX_INSTRUCTIONS = 10_000
"""The most instructions that a trace may have."""
WHY = {
    "tensor": "uploads an array; pass it as an argument, a tensor",
    "manual_seed": "seeds the random numbers",
    "client_function": "has an autograd Function whose backward is Python",
    "client_hook": "registers a hook",
    "client_node_hook": "registers a hook",
    "register_function": "registers a function",
}


class State(NamedTuple):
    """The state of a tensor before or after a trace."""

    version_counter: list[int]
    version: int
    history: tuple[Any, ...]
    """The tensor's place in the graph."""
    data: Any
    has_grad: bool
    grad: Tensor | None

    @classmethod
    def of(cls, tensor: Tensor) -> State:
        """A tensor's state now."""
        counter, grad = tensor._version_counter, tensor._grad
        history = (tensor._node, tensor._output_nr, tensor._requires_grad)
        return cls(counter, version_of(tensor), history, tensor._data, tensor._has_grad, grad)


class Inputs:
    """The tensors that a call may touch: its arguments, others that the function reaches, and the gradients of both."""

    def __init__(self, arguments: Sequence[Tensor], around: Sequence[Tensor]) -> None:
        first = [*arguments, *around]
        self.tensors = [*first, *[t._grad for t in first if t._grad is not None]]
        for tensor in self.tensors:
            if tensor._base is not None:
                tensor._refresh()

    @cached_property
    def places(self) -> dict[int, int]:
        """The places of the tensors, by identity."""
        return {id(tensor): place for place, tensor in reversed([*enumerate(self.tensors)])}

    @cached_property
    def counters(self) -> dict[int, int]:
        """The places of the tensors, by the identity of the version counter."""
        return {id(tensor._version_counter): place for place, tensor in reversed([*enumerate(self.tensors)])}

    def signature(self) -> tuple[Any, ...]:
        """What a trace relies on: which tensors are the same, which share memory, and the properties of each."""
        seen: dict[Any, int] = {}
        same = [seen.setdefault(t._id, i) for i, t in enumerate(self.tensors)]
        sharing = [seen.setdefault(id(t._version_counter), i) for i, t in enumerate(self.tensors)]
        return same, sharing, [*map(_properties, self.tensors)]


def _properties(tensor: Tensor) -> tuple[Any, ...]:
    """The properties of a tensor that a trace relies on, without keeping anything alive."""
    data = tensor._data
    return (
        tensor._requires_grad,
        tensor._has_grad,
        tensor._grad is None,
        tensor._lazy is None and tensor._node is None,
        tensor._output_nr,
        tensor._hooks is None and tensor._grad_history is None,
        may_stop(tensor),
        type(tensor._version_counter),
        data.dtype,
        data.shape,
    )


def version_of(tensor: Tensor) -> int:
    """A tensor's version. This works for an inference tensor too, which has none."""
    return list.__getitem__(tensor._version_counter, 0)


def modes() -> tuple[Any, ...]:
    """This thread's modes, which a trace depends on and must not change."""
    autocast = state.autocast
    casting = None if autocast is None else (repr(sorted(autocast.settings.items())), autocast.caching)
    return state.grad_enabled, state.inference, casting


def _generator_state() -> str:
    return str(default_generator.numpy.bit_generator.state)


class TraceRecorder:
    """Notes what one run of a function on these tensors records in a session."""

    def __init__(self, recorder: Recorder, inputs: Inputs) -> None:
        self.recorder, self.inputs = recorder, inputs
        self.before, self.signature = [*map(State.of, inputs.tensors)], inputs.signature()
        """The state of the tensors when the function begins."""
        self.start = next_sequence()
        """The sequence number of the first node."""
        self._modes, self._generator = modes(), _generator_state()
        self.segment = Segment()
        """The instructions, with their effects on the shadow graph."""
        self.made: set[str] = set()
        self.handles: dict[str, ref[Any]] = {}
        """The handles that were created, by the tensor's id."""
        self.broken: str | None = None
        """What cannot be repeated, and at which line of the user's; None if all can."""

    def __enter__(self) -> Self:
        self._thread = threading.get_ident()
        self.recorder.observe(self)
        return self

    def __exit__(self, *exc: object) -> None:
        self.recorder.observe(None)
        if exc[0] is not None:
            self.give_up("raises an error")
        if _generator_state() != self._generator:
            self.give_up("draws random numbers on this side")
        if modes() != self._modes:
            self.give_up("leaves a mode changed")

    def give_up(self, what: str) -> None:
        """Note why the function cannot be repeated, unless a reason is known already."""
        if self.broken is None:
            self.broken = f"{what}, at {users_line()}"

    # Observing the recorder ------------------------------------------------------------------

    def recorded(self, recorded: Recorded) -> None:
        """Note an instruction of this thread."""
        if threading.get_ident() != self._thread:
            return
        (i, line, effect), op = recorded, recorded.instruction.op
        if op in VERBS and not VERBS[op].repeatable:
            self.give_up(WHY.get(op, f"does what cannot be repeated elsewhere ({op})"))
        elif len(self.segment) >= MAX_INSTRUCTIONS:
            self.give_up(f"has more than {MAX_INSTRUCTIONS} instructions")
        if self.broken is None:
            self.segment.add(op, i.inputs, i.outputs, i.attrs, i.grad_mode, line, effect)
            self.made.update(i.outputs)

    def created(self, tensor: Any) -> None:
        """Note a handle."""
        self.handles[tensor._id] = ref(tensor)

    def requested(self) -> None:
        """Give up: the function waits for the session."""
        if threading.get_ident() == self._thread:
            self.give_up("asks for a value")
