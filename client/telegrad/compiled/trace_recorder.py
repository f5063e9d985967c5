"""Traces a function: notes the instructions that it records, and whether it does anything that they cannot repeat.

During a trace, :class:`TraceRecorder` observes the session's recorder.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Self
from weakref import WeakValueDictionary

from telegrad_engine.context import state
from telegrad_engine.graph.node import next_sequence
from telegrad_engine.program import Instruction
from telegrad_engine.program.verbs import VERBS

from ..call_site import Line, users_line
from ..sessions.generators import default_generator
from ..tape.effects import Effect
from ..tape.recorder import Recorder
from .inputs import Inputs, State

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
_active = threading.local()


def is_tracing() -> bool:
    """Whether this thread is inside a function that is being traced."""
    return getattr(_active, "recorder", None) is not None


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
        self.instructions: list[Instruction] = []
        self.lines: list[Line] = []
        self.effects: dict[int, Effect] = {}
        """The effects of instructions on the shadow graph, by instruction index."""
        self.made: set[str] = set()
        self.created_ids: set[str] = set()
        """The ids of the tensors whose handles were created."""
        self.handles: WeakValueDictionary[str, Any] = WeakValueDictionary()
        """The handles among them that are alive, by id."""
        self.broken: str | None = None
        """What cannot be repeated, and at which line of the user's; None if all can."""

    def __enter__(self) -> Self:
        _active.recorder = self
        self._thread = threading.get_ident()
        self.recorder.observe(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _active.recorder = None
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

    def recorded(
        self, op: str, inputs: Sequence[Any], outputs: Sequence[str], attrs: Mapping[str, Any], effect: Effect | None
    ) -> None:
        """Note an instruction of this thread."""
        if threading.get_ident() != self._thread:
            return
        if op in VERBS and not VERBS[op].repeatable:
            self.give_up(WHY.get(op, f"does what cannot be repeated elsewhere ({op})"))
        elif len(self.instructions) >= MAX_INSTRUCTIONS:
            self.give_up(f"has more than {MAX_INSTRUCTIONS} instructions")
        if self.broken is None:
            if effect is not None:
                self.effects[len(self.instructions)] = effect
            mode = None if state.grad_enabled else "no_grad"
            self.instructions.append(Instruction(op, inputs, outputs, attrs, mode, True))
            self.lines.append(users_line())
            self.made.update(outputs)

    def created(self, tensor: Any) -> None:
        """Note a handle."""
        self.created_ids.add(tensor._id)
        self.handles[tensor._id] = tensor

    def requested(self) -> None:
        """Give up: the function waits for the session."""
        if threading.get_ident() == self._thread:
            self.give_up("asks for a value")
