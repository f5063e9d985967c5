"""Traces a function: notes the instructions that it records, and whether it does anything that they cannot repeat.

During a trace, :class:`TraceRecorder` replaces some of the recorder's methods; at other times it costs nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Self

from telegrad_engine.context import state
from telegrad_engine.graph.node import next_sequence
from telegrad_engine.program import Instruction
from telegrad_engine.program.verbs import VERBS

from ..call_site import Line, users_line
from ..sessions.generators import default_generator
from ..tape.effects import Effect
from ..tape.recorder import NO_ATTRS, Recorder
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
        self.released: set[str] = set()
        self.broken: str | None = None
        """What cannot be repeated, and at which line of the user's; None if all can."""
        self._emitting = False

    def __enter__(self) -> Self:
        _active.recorder = self
        self._thread = threading.get_ident()
        vars(self.recorder).update(
            emit=self._emit, fetch=self._fetch, flush=self._flush, advance=self._advance, release=self._release
        )
        self.recorder.watch()
        return self

    def __exit__(self, *exc: object) -> None:
        _active.recorder = None
        for name in ("emit", "fetch", "flush", "advance"):
            del vars(self.recorder)[name]
        self.recorder.release = self.recorder.dead.append
        self.recorder.watch()
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

    # Replacements for the recorder's methods -------------------------------------------------

    def _emit(
        self,
        op: str,
        inputs: Sequence[Any] = (),
        outputs: Sequence[str] = (),
        attrs: Mapping[str, Any] = NO_ATTRS,
        nbytes: int = 0,
        effect: Effect | None = None,
    ) -> None:
        if threading.get_ident() != self._thread:
            return type(self.recorder).emit(self.recorder, op, inputs, outputs, attrs, nbytes, effect)
        self._emitting = True
        try:
            type(self.recorder).emit(self.recorder, op, inputs, outputs, attrs, nbytes, effect)
        finally:
            self._emitting = False
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
        return None

    def _fetch(self, *args: Any, **kwargs: Any) -> Any:
        self._ask()
        return type(self.recorder).fetch(self.recorder, *args, **kwargs)

    def _flush(self) -> Any:
        if not self._emitting:  # the recorder sends a full recording by itself
            self._ask()
        return type(self.recorder).flush(self.recorder)

    def _advance(self, record: Any) -> Any:
        self._ask()
        return type(self.recorder).advance(self.recorder, record)

    def _ask(self) -> None:
        if threading.get_ident() == self._thread:
            self.give_up("asks for a value")

    def _release(self, name: str) -> None:
        self.released.add(name)
        self.recorder.dead.append(name)
