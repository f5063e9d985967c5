"""Records instructions instead of calling: one program per point where a value is needed.

A tensor gets its id on the spot; its instruction waits here until somebody asks for a value. Handles
that Python drops free the server's tensors with the next program.

To a server, what has gathered goes out without waiting when enough has: its error, if there is one,
surfaces when the next value is asked for, and nothing recorded behind it has run.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from telegrad_engine.errors import InternalError, InvalidOperation, TelegradError
from telegrad_engine.modes import state
from telegrad_engine.program import Instruction
from telegrad_engine.session import Answer, Value

from .lines import Line, users_line
from .transports import Transport

FULL_INSTRUCTIONS, FULL_BYTES = 10_000, 32 * 2**20
"""More than this is not held back: it is sent, and waited for."""
AHEAD_INSTRUCTIONS, AHEAD_BYTES = 1_000, 64 * 2**10
"""So much is worth a message of its own while the server has nothing to do."""
LEAD_BYTES = 2**20
"""So far the recording runs ahead of a server that is busy, before it waits."""
STEP = "optim_step"
NO_ATTRS: Mapping[str, Any] = {}
CLOSED_TEXT = "the session is closed, and its tensors are gone; tg.connect opens another"


class Recording(NamedTuple):
    """Instructions as they were recorded, and the user's line behind each."""

    program: list[Instruction]
    lines: list[Line | None]


class Recorder:
    """The instructions of one session that have not been sent yet."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.default_dtype = transport.dtype.numpy
        self.pending: list[Instruction] = []
        self.lines: list[Line | None] = []
        self.dead: list[str] = []
        self.failed: dict[str, TelegradError] = {}
        self.stops: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        """What a pass must stop at, nodes and hooks with the user's Python, by the ids they have in the session."""
        self.whole: weakref.WeakSet[Any] = weakref.WeakSet()
        """Nodes that no pass for chosen inputs may go through."""
        self.open_checkpoints = 0
        self.requests = 0
        self.closed = False
        # The session lives as long as anything that refers to it: a Session or a tensor. A finalizer, not
        # __del__, and closed by hand at exit, where httpx must not be torn down yet.
        self._end = weakref.finalize(self, transport.close)
        self._end.atexit = False
        self._under_way: Recording | None = None
        """What was sent ahead and not answered yet, or failed."""
        self._failure: TelegradError | None = None
        self._pending_bytes = 0
        self._stepped = False
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
        if nbytes or len(self.pending) >= AHEAD_INSTRUCTIONS:
            self._relieve()
        mode = None if state.grad_enabled else "no_grad"
        self.pending.append(Instruction(op, inputs, outputs, attrs, mode, True))
        self.lines.append(users_line())
        self._pending_bytes += nbytes
        if op == STEP:
            self._stepped = True

    def release(self, name: str) -> None:
        """A handle died: free its tensor with the next program. Called from ``__del__``, so it only notes."""
        self.dead.append(name)

    def fetch(self, names: Sequence[str], values: bool = True) -> dict[str, Value]:
        """Send everything recorded and bring back tensors: their arrays, or only what they are."""
        if self.failed:
            self._check_failed(names)
        return self.flush(Instruction("fetch", [tuple(names)], (), {"values": values}, None, True))

    def flush(self, fetch: Instruction | None = None) -> dict[str, Value]:
        """Send what is recorded as one program, with a ``fetch`` at its end if given, and wait for the answer.

        Raises the error of what was sent before without waiting, if it failed.
        """
        if fetch is not None:
            self.pending.append(fetch)
            self.lines.append(None)
        answer = self._exchange()
        if answer.pending is not None:
            self._cancel(answer.pending["call"])
            raise InternalError(f"a pass waits where none was expected to: {answer.pending}")
        return answer.values

    def advance(self) -> dict[str, Any] | None:
        """Send what is recorded, whose last instruction starts or resumes a pass: what that waits for, if it stops."""
        return self._exchange().pending

    def _exchange(self) -> Answer:
        if self.closed:
            raise InvalidOperation(CLOSED_TEXT)
        self.free_dead()
        if not self.pending:
            self._land()
            return Answer({})
        # Packed before the wait: the server may still be busy with the program before.
        packed = self.transport.pack(self.pending)
        self._land()
        recording = self._take()
        self.requests += 1
        try:
            self.transport.send(packed)
            answer = self.transport.receive()
        except TelegradError as error:
            self._note_failure(error, recording)
            raise
        if answer.pending is not None:
            behind = answer.pending["instruction"] + 1  # what died since: to be freed by the next program
            self.pending[:0], self.lines[:0] = recording.program[behind:], recording.lines[behind:]
        return answer

    def _relieve(self) -> None:
        """Send what has gathered without waiting for the answer, unless it is little or the server is busy.

        A message ends where a training step does, before the next batch: no step is torn in two.
        """
        length, size = len(self.pending), self._pending_bytes
        if length >= FULL_INSTRUCTIONS or size >= FULL_BYTES:
            self.flush()
        elif self.transport.remote:
            lead = size >= LEAD_BYTES
            worthwhile = length >= AHEAD_INSTRUCTIONS or (size >= AHEAD_BYTES and self._stepped)
            if lead or (worthwhile and (self._under_way is None or self.transport.answered)):
                self._send_ahead()

    def _send_ahead(self) -> None:
        if self._failure is not None:
            return  # raised at the next sync; until then nothing runs behind it
        self.free_dead()
        # Packed before the wait: the server may still be busy with the program before.
        packed = self.transport.pack(self.pending)
        self._settle()
        if self._failure is None:
            self._under_way = self._take()
            self.requests += 1
            try:
                self.transport.send(packed)
            except TelegradError as error:
                self._failure = error

    def _settle(self) -> None:
        """Wait for what was sent ahead; its error, if it failed, is kept for the next sync."""
        if self._under_way is None or self._failure is not None:
            return
        try:
            self.transport.receive()
            self._under_way = None
        except TelegradError as error:
            self._failure = error

    def _land(self) -> None:
        """Wait for what was sent ahead. If it failed, what was recorded since has not run either: raise."""
        self._settle()
        if self._failure is None or self._under_way is None:
            return
        error, recording, behind = self._failure, self._under_way, self._take()
        self._failure = self._under_way = None
        self._note_failure(error, Recording(recording.program + behind.program, recording.lines + behind.lines))
        raise error

    def free_dead(self) -> None:
        """Free what died, after everything recorded before: no recorded instruction can use it any more."""
        dead = [self.dead.pop() for _ in range(len(self.dead))]
        alive = [name for name in dead if self.failed.pop(name, None) is None]
        if alive:
            self.pending.append(Instruction("free", [tuple(alive)], (), NO_ATTRS, None, True))
            self.lines.append(None)

    def _take(self) -> Recording:
        """What is recorded, as one program that is about to be sent."""
        recording = Recording(self.pending, self.lines)
        self.pending, self.lines, self._pending_bytes, self._stepped = [], [], 0, False
        return recording

    def close(self) -> None:
        """Forget what is recorded and end the session; a second time does nothing."""
        self._settle()
        if self._failure is not None:
            warnings.warn(f"what was sent last failed, and no value was read after it: {self._failure}", stacklevel=3)
        self.closed = True
        self.pending, self.lines, self.dead, self.failed = [], [], [], {}
        self._end()

    def _note_failure(self, error: TelegradError, recording: Recording) -> None:
        """Say which recorded instruction failed, and remember what therefore does not exist."""
        program, lines = recording
        index = error.context.get("instruction")
        if not isinstance(index, int) or index >= len(program):
            return
        if lines[index] is not None:
            error.add_note(f"recorded at {lines[index]} as {program[index]!r:.200}")
        for instruction in program[index:]:
            self.refuse(instruction.outputs, error)
            if instruction.op == "resume":
                self._cancel(instruction.attrs["call"])
            elif instruction.op == "free":
                self.dead.extend(n for n in instruction.inputs[0] if self.failed.pop(n, None) is None)

    def _cancel(self, call: str) -> None:
        """Leave no pass waiting for gradients that never came to be."""
        self.pending.append(Instruction("cancel", (), (), {"call": call}, None, True))
        self.lines.append(None)

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
