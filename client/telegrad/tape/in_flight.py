"""Keeps track of the messages that were sent and are not answered yet, and limits how many there may be."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import cached_property
from time import monotonic

from telegrad_engine.errors import TelegradError
from telegrad_engine.program import Instruction
from telegrad_engine.program.result import Answer

from ..call_site import Line
from ..transport.base import Transport
from .effects import Effect
from .segment import Segment, Written


class Recording:
    """The segments of a message, the ids that it frees after them, and how many bytes it uploads."""

    def __init__(self, segments: Sequence[Segment], free: Sequence[str] = (), nbytes: int = 0) -> None:
        self.segments, self.free, self.nbytes = segments, free, nbytes
        self.sent_at = 0.0
        """When it was sent, by the monotonic clock."""

    @cached_property
    def _written(self) -> Written:
        parts = [segment.written() for segment in self.segments]
        return Written(*[[x for part in parts for x in part[field]] for field in range(3)])  # type: ignore[arg-type]

    @property
    def program(self) -> list[Instruction]:
        """The instructions."""
        return self._written.program

    @property
    def lines(self) -> list[Line | None]:
        """The user's line that recorded each instruction."""
        return self._written.lines

    @property
    def effects(self) -> list[Effect | None]:
        """The effect of each instruction on the shadow graph."""
        return self._written.effects


def joined(recordings: Sequence[Recording]) -> Recording:
    """Join several recordings into one, in order."""
    segments = [segment for each in recordings for segment in each.segments]
    free = [name for each in recordings for name in each.free]
    return Recording(segments, free, sum([each.nbytes for each in recordings]))


FULL_BYTES = 32 * 2**20
"""The recorder sends once this many bytes are recorded, and waits for answers while more would be in flight."""
AHEAD_PROGRAMS = 2
"""With this many messages in flight, a server is busy: one runs and one waits. More messages gain nothing, longer ones
do."""
FIRST_ROOM = 4
"""How many messages may be in flight at first, and while answers take long."""
SOON_S = 0.25
"""While answers come within this many seconds, more messages may be in flight, so that a distant server does not idle.
Otherwise fewer may be: after an error, all that was sent ahead is wasted."""


class InFlight:
    """The unanswered messages of one session, in order.

    If one fails, ``error`` is its error. That message and those after it, which do not run, stay until
    :meth:`take_back`; nothing may be sent until then.
    """

    def __init__(self, transport: Transport) -> None:
        self.error: TelegradError | None = None
        self._transport = transport
        self._sent: deque[Recording] = deque()
        self._room = min(FIRST_ROOM, transport.room)

    def __len__(self) -> int:
        return len(self._sent)

    def send(self, recording: Recording, packed: object) -> None:
        """Send a program, packed by the transport."""
        recording.sent_at = monotonic()
        try:
            self._sent.append(recording)
            self._transport.send(packed)
        except TelegradError as error:
            self.error = error
        except BaseException:
            self._abandon()
            raise

    def make_room(self, nbytes: int) -> bool:
        """Wait until a program that uploads ``nbytes`` may be sent. False if an earlier one failed."""
        while self._sent and self.error is None and self._is_full(nbytes):
            sent_at = self._sent[0].sent_at
            self._settle()
            room = self._room + 1 if monotonic() - sent_at < SOON_S else self._room // 2
            self._room = min(max(room, FIRST_ROOM), self._transport.room)
        return self.error is None

    def is_welcome(self, nbytes: int) -> bool:
        """Whether a program that uploads ``nbytes`` may be sent without a wait, and the server is not busy."""
        self._note_answers()
        return self.error is None and len(self._sent) < AHEAD_PROGRAMS and not self._is_full(nbytes)

    def land(self) -> tuple[Recording, Answer] | None:
        """Wait for all answers, up to the first error. Return the last program and its answer; None if it failed."""
        last = None
        while self._sent and self.error is None:
            last = self._settle()
        return last

    def take_back(self) -> list[Recording]:
        """Return the message that failed and those after it, without waiting for their answers."""
        recordings = list(self._sent)
        self._sent.clear()
        self.error = None
        self._transport.forget()
        return recordings

    def _is_full(self, nbytes: int) -> bool:
        """Whether a program that uploads ``nbytes`` must wait for answers."""
        sent = sum(recording.nbytes for recording in self._sent)
        return len(self._sent) >= self._room or sent + nbytes > FULL_BYTES

    def _note_answers(self) -> None:
        while self._sent and self.error is None and self._transport.answered:
            self._settle()

    def _settle(self) -> tuple[Recording, Answer] | None:
        """Wait for the oldest message's answer, and return both; None if the answer is an error."""
        try:
            answer = self._transport.receive()
            return self._sent.popleft(), answer
        except TelegradError as error:
            self.error = error
            return None
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        """After a Ctrl-C, stop waiting for the messages in flight; they still run."""
        self._sent.clear()
        self._transport.forget()
