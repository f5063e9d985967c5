"""Records instructions instead of calling: one program per point where a value is needed.

A tensor gets its id on the spot; its instruction waits here until somebody asks for a value. Handles
that Python drops free the server's tensors with the next program.

To a server, what has gathered goes out without waiting when it is enough, or old enough. Several programs may be
under way; an error in one surfaces when the next value is asked for, and nothing recorded behind it has run.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import chain, count
from time import monotonic
from typing import Any, NamedTuple

from telegrad_engine.errors import InternalError, InvalidOperation, ProgramNotRun, TelegradError
from telegrad_engine.modes import state
from telegrad_engine.program import Instruction
from telegrad_engine.session import Answer, Value

from .elision import elide
from .lines import Line, users_line
from .transports import Transport

FULL_INSTRUCTIONS, FULL_BYTES = 10_000, 32 * 2**20
"""More than this is not held back, be it recorded or under way: it is sent, and if need be waited for."""
AHEAD_INSTRUCTIONS, AHEAD_BYTES = 1_000, 64 * 2**10
"""So much is worth a message of its own, unless the server is busy."""
AHEAD_STEPS = 4
"""So many training steps, too, if no value was waited for meanwhile."""
AHEAD_PROGRAMS = 2
"""With one program that runs and one behind it a server is busy: it gains nothing by more, but by longer ones."""
AHEAD_S = 2.0
"""What was recorded so long ago is sent when the next instruction is recorded. Without a thread: one that woke up
between two instructions would tear steps apart, and who records nothing more has nothing to gain."""
LEAD_BYTES = 2**20
"""So far the recording runs ahead of a busy server. Then it is sent, and if there is no room for it, waits."""
STEP = "optim_step"
NO_ATTRS: Mapping[str, Any] = {}
CLOSED_TEXT = "the session is closed, and its tensors are gone; tg.connect opens another"


class Recording(NamedTuple):
    """Instructions as they were recorded, the user's line behind each, and the bytes that they upload."""

    program: list[Instruction]
    lines: list[Line | None]
    nbytes: int = 0


class Defined(NamedTuple):
    """A procedure that the session has: the user's lines behind its instructions, and how long its definition is."""

    lines: Sequence[Line]
    size: int


class Recorder:
    """The instructions of one session that have not been sent yet. Safe to use from several threads."""

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
        self.lock = threading.RLock()
        """Held while anything is recorded or sent; take it around instructions that must stay together."""
        self.open_checkpoints = 0
        self.procedures: dict[str, Defined] = {}
        """Those that the session has, by name."""
        self.forgotten: list[str] = []
        """Those that nobody will call any more. Finalizers note them, so nothing else happens here and now."""
        self.profiled = False
        """Whether a profile runs, which is to show all that was called."""
        self.requests = 0
        self.waits = 0
        """How many programs were sent, and how often somebody waited for an answer."""
        self.closed = False
        # The session lives as long as anything that refers to it: a Session or a tensor. A finalizer, not
        # __del__, and closed by hand at exit, where httpx must not be torn down yet.
        self._end = weakref.finalize(self, transport.close)
        self._end.atexit = False
        self._under_way: deque[Recording] = deque()
        """What was sent and not answered yet, or failed."""
        self._failure: TelegradError | None = None
        """The error of the first of these."""
        self._pending_bytes = 0
        self._stepped = False
        """Whether what was recorded last ended a training step."""
        self._steps = 0
        """How many steps ended since a value was waited for."""
        self._due = 0.0
        """When what is recorded is old."""
        self._ids = count(1)

    def new_id(self) -> str:
        """A fresh tensor id."""
        return f"t{next(self._ids)}"

    def emit(
        self,
        op: str,
        inputs: Sequence[Any] = (),
        outputs: Sequence[str] = (),
        attrs: Mapping[str, Any] = NO_ATTRS,
        nbytes: int = 0,
    ) -> None:
        """Record one instruction; its attributes are canonical already."""
        with self.lock:
            if self.closed:
                raise InvalidOperation(CLOSED_TEXT)
            if self.failed:
                self._check_failed(inputs, outputs)
            pending = self.pending
            if not pending:
                self._due = monotonic() + AHEAD_S
            elif nbytes or self._stepped or len(pending) >= AHEAD_INSTRUCTIONS or monotonic() > self._due:
                self._relieve()
                self._stepped = False
                pending = self.pending
            mode = None if state.grad_enabled else "no_grad"
            pending.append(Instruction(op, inputs, outputs, attrs, mode, True))
            self.lines.append(users_line())
            if nbytes:
                self._pending_bytes += nbytes
            if op == STEP:
                self.note_step()

    def note_step(self) -> None:
        """Note that a training step ends here: what was recorded last moves parameters."""
        if not self._stepped:
            self._stepped = True
            self._steps += 1

    def release(self, name: str) -> None:
        """A handle died: free its tensor with the next program. Called from ``__del__``, so it only notes."""
        self.dead.append(name)

    def fetch(self, names: Sequence[str], values: bool = True) -> dict[str, Value]:
        """Send everything recorded and bring back tensors: their arrays, or only what they are."""
        with self.lock:
            if self.failed:
                self._check_failed(names)
            return self.flush(Instruction("fetch", [tuple(names)], (), {"values": values}, None, True))

    def flush(self, fetch: Instruction | None = None) -> dict[str, Value]:
        """Send what is recorded as one program, with a ``fetch`` at its end if given, and wait for the answer.

        Raises the error of what was sent before without waiting, if it failed.
        """
        with self.lock:
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
        with self.lock:
            return self._exchange().pending

    # Sending -----------------------------------------------------------------------------

    def _exchange(self) -> Answer:
        """Send what is recorded, and wait for its answer and those before it."""
        if self.closed:
            raise InvalidOperation(CLOSED_TEXT)
        self.free_dead()
        if not self.pending:
            self._land()
            return Answer({})
        self._send()
        self.waits += 1
        self._steps = 0
        self._land(all_but=1)
        recording = self._under_way.popleft()
        try:
            answer = self.transport.receive()
        except TelegradError as error:
            self._note_failure(error, recording)
            raise
        except BaseException:
            self._abandon()
            raise
        if answer.pending is not None:
            behind = answer.pending["instruction"] + 1  # what died since: to be freed by the next program
            self.pending[:0], self.lines[:0] = recording.program[behind:], recording.lines[behind:]
        return answer

    def _send(self) -> None:
        """Send what is recorded; when there is room for it, which may take the answers to what is under way."""
        # Packed before the wait: the server may still be busy with the program before.
        packed = self.transport.pack(self.pending)
        while self._under_way and self._failure is None and self._full():
            self._settle()
        if self._failure is None:
            self._under_way.append(self._take())
            self.requests += 1
            try:
                self.transport.send(packed)
            except TelegradError as error:
                self._failure = error
            except BaseException:
                self._abandon()
                raise

    def _full(self) -> bool:
        """Whether so much is under way that what is recorded has to wait."""
        nbytes = sum(recording.nbytes for recording in self._under_way)
        return len(self._under_way) >= self.transport.room or nbytes + self._pending_bytes > FULL_BYTES

    def _relieve(self) -> None:
        """Send what has gathered without waiting for the answer, unless it is little or there is no room for it.

        A message ends where a training step does, before the next batch: no step is torn in two.
        """
        length, size = len(self.pending), self._pending_bytes
        full = length >= FULL_INSTRUCTIONS or size >= FULL_BYTES
        if not self.transport.remote:
            if full:
                self.flush()
            return
        # Whoever waits for a value after each step gains nothing by another message.
        stepped = self._stepped and (size >= AHEAD_BYTES or self._steps >= AHEAD_STEPS)
        worthwhile = length >= AHEAD_INSTRUCTIONS or stepped or monotonic() > self._due
        if self._failure is None and (full or size >= LEAD_BYTES or (worthwhile and self._has_room())):
            self.free_dead()
            if self.pending:
                self._send()

    def _has_room(self) -> bool:
        while self._under_way and self._failure is None and self.transport.answered:
            self._settle()
        return self._failure is None and len(self._under_way) < AHEAD_PROGRAMS and not self._full()

    def _settle(self) -> None:
        """Wait for the first of what is under way; its error, if it failed, is kept for the next sync."""
        try:
            self.transport.receive()
            self._under_way.popleft()
        except TelegradError as error:
            self._failure = error
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        """After a Ctrl-C: what is under way runs, but nobody waits for it."""
        self._under_way.clear()
        self.transport.forget()

    def _land(self, all_but: int = 0) -> None:
        """Wait for what was sent ahead. If one failed, what was recorded since has not run either: raise."""
        while len(self._under_way) > all_but and self._failure is None:
            self._settle()
        if self._failure is None:
            return
        error, recordings = self._failure, [*self._under_way, self._take()]
        self._failure = None
        self._under_way.clear()
        self._note_failure(
            error,
            Recording(
                list(chain.from_iterable(r.program for r in recordings)),
                list(chain.from_iterable(r.lines for r in recordings)),
            ),
        )
        raise error

    def free_dead(self) -> None:
        """Free what died, after everything recorded before: no recorded instruction can use it any more."""
        with self.lock:
            dead = [self.dead.pop() for _ in range(len(self.dead))]
            alive = [name for name in dead if self.failed.pop(name, None) is None]
            if alive and not self.profiled:
                there = set(alive)
                self._pending_bytes -= sum(elide(self.pending, self.lines, there))
                alive = [name for name in alive if name in there]
            if alive:
                self.pending.append(Instruction("free", [tuple(alive)], (), NO_ATTRS, None, True))
                self.lines.append(None)
            while self.forgotten:
                name = self.forgotten.pop()
                if self.procedures.pop(name, None) is not None:
                    self.pending.append(Instruction("undefine", (), (), {"name": name}, None, True))
                    self.lines.append(None)

    def _take(self) -> Recording:
        """What is recorded, as one program that is about to be sent."""
        recording = Recording(self.pending, self.lines, self._pending_bytes)
        self.pending, self.lines, self._pending_bytes, self._stepped = [], [], 0, False
        return recording

    def close(self) -> None:
        """Forget what is recorded and end the session; a second time does nothing."""
        with self.lock:
            while self._under_way and self._failure is None:
                self._settle()
            if self._failure is not None and not self.closed:
                text = f"what was sent last failed, and no value was read after it: {self._failure}"
                warnings.warn(text, stacklevel=3)
            self.closed = True
            self.pending, self.lines, self.dead, self.failed = [], [], [], {}
            self._end()

    # Failing -----------------------------------------------------------------------------

    def _note_failure(self, error: TelegradError, recording: Recording) -> None:
        """Say which recorded instruction failed, and remember what therefore does not exist."""
        self.transport.forget()  # what was sent behind it has not run
        program, lines = recording.program, recording.lines
        index = 0 if isinstance(error, ProgramNotRun) else error.context.get("instruction")
        if not isinstance(index, int) or index >= len(program):
            return
        if lines[index] is not None:
            error.add_note(f"recorded at {lines[index]} as {program[index]!r:.200}")
        behind = self.procedures.get(error.context.get("procedure", ""))
        if behind is not None:
            error.add_note(f"there {error.context['step_op']} was recorded at {behind.lines[error.context['step']]}")
        for instruction in program[index:]:
            self.refuse(instruction.outputs, error)
            if instruction.op == "resume":
                self._cancel(instruction.attrs["call"])
            elif instruction.op == "define":
                self.procedures.pop(instruction.attrs["name"], None)
            elif instruction.op == "undefine":
                self.procedures[instruction.attrs["name"]] = Defined((), 0)
                self.forgotten.append(instruction.attrs["name"])
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
