"""Records instructions instead of calling: one program per point where a value is needed.

A tensor gets its id on the spot; its instruction waits here until somebody asks for a value. Handles
that Python drops free the server's tensors with the next program.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from telegrad_engine.errors import InvalidOperation, TelegradError
from telegrad_engine.modes import state
from telegrad_engine.program import Instruction
from telegrad_engine.session import Value

from .transports import Transport

FLUSH_INSTRUCTIONS = 10_000
FLUSH_BYTES = 32 * 2**20
NO_ATTRS: Mapping[str, Any] = {}
OURS = ("telegrad.", "telegrad_engine.")
CLOSED_TEXT = "the session is closed, and its tensors are gone; tg.connect opens another"


class Recorder:
    """The instructions of one session that have not been sent yet."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.default_dtype = transport.dtype.numpy
        self.pending: list[Instruction] = []
        self.lines: list[tuple[str, int]] = []
        self.dead: list[str] = []
        self.failed: dict[str, TelegradError] = {}
        self.requests = 0
        self.closed = False
        # The session lives as long as anything that refers to it: a Session or a tensor. A finalizer, not
        # __del__, and closed by hand at exit, where httpx must not be torn down yet.
        self._end = weakref.finalize(self, transport.close)
        self._end.atexit = False
        self._pending_bytes = 0
        self._last_id = 0

    def new_id(self) -> str:
        """A fresh tensor id."""
        self._last_id += 1
        return f"t{self._last_id}"

    def emit(
        self,
        op: str,
        inputs: Sequence[Any] = (),
        outputs: Sequence[str] = (),
        attrs: Mapping[str, Any] = NO_ATTRS,
        nbytes: int = 0,
    ) -> None:
        """Record one instruction; its attributes are canonical already."""
        if self.closed:
            raise InvalidOperation(CLOSED_TEXT)
        if self.failed:
            self._check_failed(inputs, outputs)
        mode = None if state.grad_enabled else "no_grad"
        self.pending.append(Instruction(op, inputs, outputs, attrs, mode, True))
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(OURS):
            frame = frame.f_back
        self.lines.append((frame.f_code.co_filename, frame.f_lineno))
        self._pending_bytes += nbytes
        if len(self.pending) >= FLUSH_INSTRUCTIONS or self._pending_bytes >= FLUSH_BYTES:
            self.flush()

    def release(self, name: str) -> None:
        """A handle died: free its tensor with the next program. Called from ``__del__``, so it only notes."""
        self.dead.append(name)

    def fetch(self, names: Sequence[str], values: bool = True) -> dict[str, Value]:
        """Send everything recorded and bring back tensors: their arrays, or only what they are."""
        if self.failed:
            self._check_failed(names)
        return self.flush(Instruction("fetch", [tuple(names)], (), {"values": values}, None, True))

    def flush(self, fetch: Instruction | None = None) -> dict[str, Value]:
        """Send what is recorded as one program, with a ``fetch`` at its end if given."""
        if self.closed:
            raise InvalidOperation(CLOSED_TEXT)
        program, lines = self.pending, self.lines
        if fetch is not None:
            program.append(fetch)
            lines.append(("", 0))
        # Freed after everything that was recorded before: no recorded instruction can use them any more.
        dead = [self.dead.pop() for _ in range(len(self.dead))]
        alive = [name for name in dead if self.failed.pop(name, None) is None]
        if alive:
            program.append(Instruction("free", [tuple(alive)], (), NO_ATTRS, None, True))
            lines.append(("", 0))
        if not program:
            return {}
        self.pending, self.lines, self._pending_bytes = [], [], 0
        self.requests += 1
        try:
            return self.transport.run(program).values
        except TelegradError as error:
            self._note_failure(error, program, lines)
            raise

    def close(self) -> None:
        """Forget what is recorded and end the session; a second time does nothing."""
        self.closed = True
        self.pending, self.lines, self.dead, self.failed = [], [], [], {}
        self._end()

    def _note_failure(self, error: TelegradError, program: list[Instruction], lines: list[tuple[str, int]]) -> None:
        """Say which recorded instruction failed, and remember what therefore does not exist."""
        index = error.context.get("instruction")
        if not isinstance(index, int) or index >= len(program):
            return
        filename, line = lines[index]
        if filename:
            error.add_note(f"recorded at {filename}:{line} as {program[index]!r:.200}")
        for instruction in program[index:]:
            self.refuse(instruction.outputs, error)
            if instruction.op == "free":
                self.dead.extend(n for n in instruction.inputs[0] if self.failed.pop(n, None) is None)

    def refuse(self, names: Sequence[str], error: TelegradError) -> None:
        """Note that these tensors never came to be: who uses them gets the error, and nothing is freed."""
        if names:
            self.failed.update(dict.fromkeys(names, _copy(error)))

    def _check_failed(self, inputs: Sequence[Any], outputs: Sequence[str] = ()) -> None:
        for x in inputs:
            if isinstance(x, str):
                if x in self.failed:
                    self.refuse(outputs, self.failed[x])
                    raise _copy(self.failed[x])
            elif isinstance(x, tuple):
                self._check_failed(x, outputs)


def _copy(error: TelegradError) -> TelegradError:
    """The error without its traceback, which would keep the user's frames and the tensors in them alive."""
    copied = type(error)(error.detail, **error.context)
    for note in getattr(error, "__notes__", ()):
        copied.add_note(note)
    return copied
