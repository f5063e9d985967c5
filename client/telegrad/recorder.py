"""Records instructions instead of calling: one program per point where a value is needed.

A tensor gets its id on the spot; its instruction waits here until somebody asks for a value. Handles
that Python drops free the server's tensors with the next program.

To a server, what has gathered goes out without waiting when it is enough, or old enough (:mod:`.pace`). Several
programs may be under way (:mod:`.under_way`); an error in one surfaces when the next value is asked for, and nothing
recorded behind it has run (:mod:`.failures`).
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Mapping, Sequence
from itertools import count
from time import monotonic
from typing import Any

from telegrad_engine.answer import Answer, Value
from telegrad_engine.errors import InternalError, InvalidOperation, TelegradError
from telegrad_engine.modes import state
from telegrad_engine.program import Instruction

from .elision import elide
from .failures import Failed, explain
from .lines import Line, users_line
from .pace import Pace, is_full
from .recording import Defined, Recording, joined
from .transports import Transport
from .under_way import UnderWay

STEP = "optim_step"
NO_ATTRS: Mapping[str, Any] = {}
CLOSED_TEXT = "the session is closed, and its tensors are gone; tg.connect opens another"


class Recorder:
    """The instructions of one session that have not been sent yet. Safe to use from several threads."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.default_dtype = transport.dtype.numpy
        self.pending: list[Instruction] = []
        self.lines: list[Line | None] = []
        self.dead: list[str] = []
        self.failed = Failed()
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
        self._under_way = UnderWay(transport)
        self._pace = Pace()
        self._pending_bytes = 0
        self._ids = count(1)

    @property
    def captured(self) -> bool:
        """Whether something stands in for :meth:`emit`, to see what a function records (compiled/capture.py)."""
        return "emit" in vars(self)

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
                self.failed.check(inputs, outputs)
            pending, pace = self.pending, self._pace
            if not pending:
                pace.begin()
            elif nbytes or len(pending) >= pace.enough or monotonic() > pace.due:
                self._relieve()
                pending = self.pending
            mode = None if state.grad_enabled else "no_grad"
            pending.append(Instruction(op, inputs, outputs, attrs, mode, True))
            self.lines.append(users_line())
            if nbytes:
                self._pending_bytes += nbytes
            if op == STEP:
                pace.end_step()

    def note_step(self) -> None:
        """Note that a training step ends here: what was recorded last moves parameters."""
        self._pace.end_step()

    def release(self, name: str) -> None:
        """A handle died: free its tensor with the next program. Called from ``__del__``, so it only notes."""
        self.dead.append(name)

    def fetch(self, names: Sequence[str], values: bool = True) -> dict[str, Value]:
        """Send everything recorded and bring back tensors: their arrays, or only what they are."""
        with self.lock:
            if self.failed:
                self.failed.check(names)
            self._add("fetch", [tuple(names)], {"values": values})
            return self.flush()

    def flush(self) -> dict[str, Value]:
        """Send what is recorded as one program, and wait for the answer: what it fetched.

        Raises the error of what was sent before without waiting, if it failed.
        """
        with self.lock:
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
        self._pace.note_wait()
        last = self._land()
        assert last is not None, "it was sent, and has not failed"
        recording, answer = last
        if answer.pending is not None:
            behind = answer.pending["instruction"] + 1  # what died since: to be freed by the next program
            self.pending[:0], self.lines[:0] = recording.program[behind:], recording.lines[behind:]
        return answer

    def _relieve(self) -> None:
        """Send what has gathered without waiting for the answer, unless it is little or there is no room for it."""
        length, nbytes = len(self.pending), self._pending_bytes
        if not self.transport.remote:
            if is_full(length, nbytes):
                self.flush()
        elif self._pace.is_time(length, nbytes, self._under_way):
            self.free_dead()
            if self.pending:
                self._send()
        self._pace.go_on()

    def _send(self) -> None:
        """Send what is recorded; when there is room for it, which may take the answers to what is under way."""
        # Packed before the wait: the server may still be busy with the program before.
        packed = self.transport.pack(self.pending)
        if self._under_way.make_room(self._pending_bytes):
            self.requests += 1
            self._under_way.send(self._take(), packed)

    def _land(self) -> tuple[Recording, Answer] | None:
        """Wait for what was sent; the last of it. If one failed, what was recorded since has not run either: raise."""
        last = self._under_way.land()
        error = self._under_way.error
        if error is None:
            return last
        self._undo(error, joined([*self._under_way.take_back(), self._take()]))
        try:
            raise error
        finally:
            del error  # or it would hold this frame, and with its traceback the user's and the tensors in them

    def _take(self) -> Recording:
        """What is recorded, as one program that is about to be sent."""
        recording = Recording(self.pending, self.lines, self._pending_bytes)
        self.pending, self.lines, self._pending_bytes = [], [], 0
        self._pace.go_on()
        return recording

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
                self._add("free", [tuple(alive)])
            while self.forgotten:
                name = self.forgotten.pop()
                if self.procedures.pop(name, None) is not None:
                    self._add("undefine", (), {"name": name})

    def close(self) -> None:
        """Forget what is recorded and end the session; a second time does nothing."""
        with self.lock:
            self._under_way.land()
            error = self._under_way.error
            if error is not None and not self.closed:
                text = f"what was sent last failed, and no value was read after it: {error}"
                warnings.warn(text, stacklevel=3)
            self.closed = True
            self.pending, self.lines, self.dead, self.failed = [], [], [], Failed()
            self._end()

    # Failing -----------------------------------------------------------------------------

    def refuse(self, names: Sequence[str], error: TelegradError) -> None:
        """Note that these tensors never came to be."""
        self.failed.refuse(names, error)

    def _undo(self, error: TelegradError, recording: Recording) -> None:
        """Say which recorded instruction failed, and take back what was noted of it and those behind it."""
        index = explain(error, recording, self.procedures)
        for instruction in recording.program[index:] if index is not None else ():
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
        self._add("cancel", (), {"call": call})

    def _add(self, op: str, inputs: Sequence[Any], attrs: Mapping[str, Any] = NO_ATTRS) -> None:
        """Record an instruction that no line of the user's asks for."""
        self.pending.append(Instruction(op, inputs, (), attrs, None, True))
        self.lines.append(None)
