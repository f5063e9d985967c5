"""The recorder of a session: it turns ops into instructions, and sends them in one message when a value is needed.

A tensor gets its id at once; its instruction is kept until a value is needed. When Python drops a handle, the next
message frees the session's tensor.

A server is also sent instructions ahead of time (:mod:`.flush_policy`), and several messages may be in flight
(:class:`.flush_policy.InFlight`). An error in one of them is raised when the next value is needed. No instruction after
the failed one has run by then; those that do not depend on it are sent again (:mod:`.poisoning`).
"""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from time import monotonic
from typing import Any, Protocol

from telegrad_engine.context import state
from telegrad_engine.errors import InternalError, InvalidOperation, TelegradError
from telegrad_engine.program import Instruction
from telegrad_engine.program.result import Answer, Value
from telegrad_engine.program.template import TAKES_DATA
from telegrad_engine.program.wire import Outgoing

from ..call_site import users_line
from ..transport.base import Transport
from .flush_policy import FlushPolicy, InFlight, Recording, is_full
from .origins import Origins
from .poisoning import FailedTensors, Sharing, explain, poisoned_by, undo
from .segment import FIELDS, Effect, Received, Recorded, Segment, Templates
from .step import Block

STEP = "optim_step"
CLOCK = 8
"""One in this many prepared calls checks whether it is time to send."""
NO_ATTRS: Mapping[str, Any] = {}
CLOSED_TEXT = "session {} is closed, and its tensors are gone; tg.connect opens another"
INHERITED_TEXT = (
    "session {} belongs to process {}, from which this one was forked, and so do its tensors; "
    "tensors made from now on are in a session of this process's own"
)


class Observer(Protocol):
    """Is notified of what a recorder does. Instructions are recorded one by one meanwhile."""

    def recorded(self, recorded: Recorded) -> None:
        """Note an instruction that was recorded."""

    def created(self, tensor: Any) -> None:
        """Note a tensor's handle that was created."""

    def requested(self) -> None:
        """Note that the user's code waits for the session."""


class Recorder:
    """Records the instructions of one session and sends them. Safe to use from several threads."""

    observer: Observer | None = None
    """Set by :meth:`observe`."""
    debugging = False
    """Whether each instruction is sent as soon as it is recorded; set for all sessions."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.default_dtype = transport.dtype.numpy
        self.templates = Templates()
        self.segment = Segment()
        """The segment that is being recorded; ``segments`` are those before it that are not sent."""
        self.segments: list[Segment] = []
        self.pending_frees: list[str] = []
        self.release: Callable[[str], None] = self.pending_frees.append
        """Notes that a handle died, so that the next message frees its tensor; ``__del__`` may do no more."""
        self.failed = FailedTensors()
        self.sharing = Sharing()
        self.python_hooks: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        """The nodes and hooks with the user's Python, at which a pass must stop, by their ids in the session."""
        self.whole_graph_nodes: weakref.WeakSet[Any] = weakref.WeakSet()
        """Nodes that no pass for chosen inputs may go through."""
        self.lock = threading.RLock()
        """Held while anything is recorded or sent; take it around instructions that must stay together."""
        self.open_checkpoints = 0
        self.received: list[Received] = []
        """The tensors that get gradients in the pass that is being recorded."""
        self.checked: Any = None
        """The op whose inputs' values the client has just checked itself."""
        self.advances = False
        """Whether :meth:`advance` records a pass that may stop, whose answer it waits for itself."""
        self.requests = 0
        self.waits = 0
        """The number of messages sent, and of waits for an answer."""
        self.closed = False
        self.parent: int | None = None
        """In a forked child: the process that the session belongs to."""
        # The session lives as long as a Session or a tensor refers to it. This is a finalizer instead of __del__, and
        # it is not run at exit: sessions are closed by hand there, before httpx is torn down.
        self._end = weakref.finalize(self, transport.close)
        self._end.atexit = False
        self.id_prefix = transport.id_prefix
        self._in_flight = InFlight(transport)
        self._origins: Origins | None = None
        """What is told about the user's lines; None if nobody observes the session."""
        self.flush_policy = FlushPolicy()
        self._to_free: list[str] = []
        """The ids that the next message frees after its segments."""
        self.ids = count(1)
        """The numbers of new ids, which follow ``id_prefix``."""

    def observe(self, observer: Observer | None) -> None:
        """Notify ``observer`` from now on, in place of the one before; None ends it."""
        with self.lock:
            self.observer = observer
            self.watch()

    def watch(self) -> None:
        """Have each instruction recorded by :meth:`emit` if an observer, ``tg.debug`` or an error needs to see it."""
        with self.lock:
            self.segment.watch(self._watched)

    @property
    def _watched(self) -> bool:
        return self.observer is not None or self.debugging or self.closed or bool(self.failed)

    @classmethod
    def debug(cls, enabled: bool) -> None:
        """Wait for every instruction as it is recorded, in all sessions, or stop doing so."""
        cls.debugging = enabled

    @property
    def waiting(self) -> int:
        """The number of instructions that are recorded and not sent."""
        return sum(map(len, self.segments)) + len(self.segment)

    @property
    def _nbytes(self) -> int:
        """The number of bytes that these upload."""
        return sum([segment.nbytes for segment in self.segments]) + self.segment.nbytes

    @property
    def pending(self) -> list[Instruction]:
        """The instructions that are recorded and not sent."""
        with self.lock:
            return [each.instruction for each in Recording([*self.segments, self.segment]).program]

    def new_id(self) -> str:
        """A fresh tensor id."""
        return f"{self.id_prefix}{next(self.ids)}"

    def emit(
        self,
        op: str,
        inputs: Sequence[Any] = (),
        outputs: Sequence[str] = (),
        attrs: Mapping[str, Any] = NO_ATTRS,
        effect: Effect | None = None,
    ) -> None:
        """Record one instruction, whose attributes are canonical already, with its effect on the shadow graph."""
        with self.lock:
            if self.segment.watched:
                self._check_usable(inputs, outputs)
            self.make_way(op, attrs["data"].nbytes if op in TAKES_DATA else 0)
            mode, line = None if state.grad_enabled else "no_grad", users_line()
            self.segment.add(op, inputs, outputs, attrs, mode, line, effect)
            if op == STEP:
                self.note_step()
            if self.segment.watched:
                if self.observer is not None:
                    self.observer.recorded(Recorded(Instruction(op, inputs, outputs, attrs, mode, True), line, effect))
                if self.debugging and not self.advances:
                    self.flush(requested=False)

    def emit_block(
        self, block: Block, ids: tuple[str, ...], dropped: Sequence[str], effects: Mapping[int, Effect]
    ) -> None:
        """Record a block as :meth:`.Segment.add_block` does; ``dropped`` are tensors that it makes without a handle."""
        with self.lock:
            if self.segment.watched:
                self._check_usable(ids)
            self.make_way()
            self.segment.add_block(block, ids, effects)
            self.pending_frees += dropped
            if block.has(STEP):
                self.note_step()

    def _check_usable(self, inputs: Sequence[Any], outputs: Sequence[str] = ()) -> None:
        """Raise if the session is closed, or the error of an input that was never created."""
        if self.closed:
            raise InvalidOperation(self._closed_text)
        self.failed.check(inputs, outputs)

    def make_way(self, op: str = "", nbytes: int = 0) -> None:
        """Send what is due before an instruction that uploads ``nbytes`` is recorded."""
        if not self.segments and not self.segment.recorded:
            self.flush_policy.begin()
        elif nbytes or self._is_due(op):
            self.relieve()
            if not self.waiting:
                self.flush_policy.begin()
        recorded = len(self.segment.recorded)  # a few instructions may be far apart, so the first checks come soon
        self.segment.next_check = recorded + min(FIELDS * CLOCK, recorded + FIELDS)

    def _is_due(self, op: str) -> bool:
        """Whether :meth:`relieve` should check if it is time to send, before an instruction is recorded."""
        policy = self.flush_policy
        if policy.stepped:
            return op != STEP  # a step may have several of them
        return len(self.segment) >= policy.enough or monotonic() > policy.due

    def note_step(self) -> None:
        """Note that a training step ends with the instruction that was recorded last."""
        self.segment.next_check = 0
        self.flush_policy.end_step(self.segment)

    def fetch(self, names: Sequence[str], values: bool = True, requested: bool = True) -> dict[str, Value]:
        """Send everything recorded and return tensors: their arrays, or without ``values`` only their descriptions.

        ``requested`` says that the user's code needs it. Raises the error of an earlier message that was sent without
        waiting, if one failed.
        """
        if requested:
            self._note_request()
        with self.lock:
            if self.failed:
                self.failed.check(names)
            answer = self._exchange(names, values)
            if answer.pending is not None:
                self._add("cancel", (), {"call": answer.pending["call"]})
                raise InternalError(f"a pass waits where none was expected to: {answer.pending}")
            return answer.values

    def flush(self, requested: bool = True) -> None:
        """Send what is recorded as one message, and wait for the answer; otherwise like :meth:`fetch`."""
        self.fetch((), requested=requested)

    def advance(self, record: Callable[[], None]) -> dict[str, Any] | None:
        """Send what is recorded, at last the start or the resumption of a pass by ``record``.

        Return what the pass waits for, or None.
        """
        self._note_request()
        with self.lock:
            self.advances = True
            try:
                record()
            finally:
                self.advances = False
            return self._exchange().pending

    def _note_request(self) -> None:
        if self.observer is not None:
            self.observer.requested()

    # Sending -----------------------------------------------------------------------------

    def _exchange(self, fetch: Sequence[str] = (), values: bool = True) -> Answer:
        """Send what is recorded, and wait for its answer and for all earlier ones."""
        if self.closed:
            raise InvalidOperation(self._closed_text)
        self.free_dead(fetch, values)
        if not self.segments and not self._to_free:
            self._land()
            return Answer({})
        self._send()
        self.waits += 1
        self.flush_policy.note_wait()
        last = self._land()
        assert last is not None, "it was sent, and has not failed"
        recording, answer = last
        if answer.pending is not None:
            self.pending_frees += recording.freed(answer.pending["instruction"] + 1)
        return answer

    def relieve(self) -> None:
        """Send what is recorded if it is time to, without waiting for a server's answer."""
        length, nbytes = self.waiting, self._nbytes
        if self.flush_policy.stepped and self.flush_policy.ends(self.segment):
            self.free_dead()
        if not self.transport.remote:
            if is_full(length, nbytes):
                self.flush(requested=False)
        elif self.flush_policy.is_time(length, nbytes, self._in_flight):
            self.free_dead()
            self._send()
        self.flush_policy.go_on()

    def _send(self) -> None:
        """Send what is recorded. If there is no room for it, wait for answers to the messages in flight."""
        # Packed before the wait, while the server may still be busy with the previous message.
        calls = [segment.call() for segment in self.segments]
        texts = self.templates.unsent([segment.template for segment in self.segments])
        packed = self.transport.pack(Outgoing(calls, self._to_free, texts, self._told_origins()))
        if self._in_flight.make_room(self._nbytes):
            self.requests += 1
            self._in_flight.send(self._take(), packed)

    def _land(self) -> tuple[Recording, Answer] | None:
        """Wait for all answers; return the last and its message. Raise the first error, and undo what has not run."""
        last = self._in_flight.land()
        error = self._in_flight.error
        if error is None:
            return last
        self._undo(error, [*self._in_flight.take_back(), self._take()])
        try:
            raise error
        finally:
            del error  # it would keep this frame alive, and by its traceback the user's frames and their tensors

    def _new_segment(self) -> Segment:
        segment = Segment(self._watched)
        if self._origins is not None:
            segment.marks = self._origins.first_marks()
        return segment

    def _told_origins(self) -> Mapping[str, Any] | None:
        """What the next message tells a session that is observed about the user's lines and modules."""
        if not self._in_flight.observed:
            if self._origins is not None:
                self._origins.stop()
                self._origins = None
            return None
        if self._origins is None:
            self._origins = Origins(self)
        return self._origins.of(self.segments)

    def _take(self) -> Recording:
        """Take what is recorded, as one message that is about to be sent, and begin anew."""
        segments = [*self.segments, self.segment] if len(self.segment) else self.segments
        recording = Recording(segments, self._to_free)
        self.segments, self.segment, self._to_free = list[Segment](), self._new_segment(), list[str]()
        self.flush_policy.end_message()
        return recording

    def free_dead(self, fetch: Sequence[str] = (), values: bool = True) -> None:
        """End the segment with a fetch of tensors and the freeing of dead ones, which no later instruction can use."""
        with self.lock:
            dead = [self.pending_frees.pop() for _ in range(len(self.pending_frees))]
            for name in self.sharing.keys() & dead:
                del self.sharing[name]
            if self.failed:
                dead = [name for name in dead if self.failed.pop(name, None) is None]
            segment = self.segment
            if not len(segment) and not fetch:
                self._to_free += dead
                return
            self._to_free += segment.end(self.templates, dead, fetch, values)
            ended, after = [*self.segments, segment], self._new_segment()
            # In one statement, so that a Ctrl-C neither loses a segment nor has it sent twice.
            self.segments, self.segment = ended, after

    def close(self) -> None:
        """End the session; a second call does nothing. What is recorded is discarded, but sent to a durable session.

        Warns of an error in a message that was sent without waiting for it.
        """
        error: TelegradError | None = None
        with self.lock:
            try:
                if not self.closed:
                    if self.transport.durable and self.waiting:
                        self.flush()
                    self._in_flight.land()
                    error = self._in_flight.error
            except TelegradError as raised:
                error = raised
            finally:
                self.end()
                self._take()
                self.pending_frees.clear()
                self.failed = FailedTensors()
        if error is not None:
            warnings.warn(f"what was sent last failed, and no value was read after it: {error}", stacklevel=3)

    def end(self) -> None:
        """End the session at once, whatever is in flight."""
        self.closed = True
        if self._origins is not None:
            self._origins.stop()
        self.segment.watch(True)
        # Not by calling the finalizer: at exit, weakref's own hook comes first, and then finalizers do nothing.
        if self._end.detach() is not None:
            self.transport.close()

    def leave_to_parent(self) -> None:
        """Leave a remote session to the parent, in a process that was just forked.

        Two processes that use one connection would read each other's answers. A local session was copied with the
        process and stays open.
        """
        self.lock = threading.RLock()  # if another thread held it, that thread does not exist here
        if not self.transport.remote or self.closed:
            return
        self._end.detach()
        self.transport.abandon()
        self._in_flight = InFlight(self.transport)
        self.parent, self.closed = os.getppid(), True
        self._take()
        self.pending_frees.clear()

    @property
    def _closed_text(self) -> str:
        session = self.transport.session_id
        return CLOSED_TEXT.format(session) if self.parent is None else INHERITED_TEXT.format(session, self.parent)

    # Failing -----------------------------------------------------------------------------

    def refuse(self, names: Sequence[str], error: TelegradError) -> None:
        """Note that these tensors were never created, because of this error."""
        self.failed.refuse(names, error)
        self.watch()

    def _undo(self, error: TelegradError, recordings: Sequence[Recording]) -> None:
        """Name the failed instruction's line in the error, and undo the effects of it and of all that depends on it.

        Instructions after it that do not depend on it are recorded again.
        """
        recording = Recording(
            [segment for each in recordings for segment in each.segments],
            [name for each in recordings for name in each.free],
        )
        program = recording.program
        index = explain(error, program)
        if index is None:
            return
        freed = recording.freed(index)
        only = "instruction" in error.context
        outcome = poisoned_by(self.sharing, program, index, only, {*self.pending_frees, *freed})
        undo(outcome)
        for tensor in outcome.unfinished:
            self._add("set_grad", [tensor._id, None])
        for i, line, effect in outcome.spared:
            self.segment.add(i.op, i.inputs, i.outputs, i.attrs, i.grad_mode, line, effect)
        for instruction, *_ in outcome.poisoned:
            self.refuse(instruction.outputs, error)
            if instruction.op == "resume":  # cancel a pass that waits for gradients which were never computed
                self._add("cancel", (), {"call": instruction.attrs["call"]})
        self.pending_frees.extend([name for name in freed if self.failed.pop(name, None) is None])

    def _add(self, op: str, inputs: Sequence[Any], attrs: Mapping[str, Any] = NO_ATTRS) -> None:
        """Record an instruction that has no line of the user's."""
        self.segment.add(op, inputs, (), attrs, None, None)
