"""Keeps track of the messages that were sent and are not answered yet, and limits how many there may be."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from time import monotonic

from telegrad_engine.errors import TelegradError
from telegrad_engine.program.instructions import names_in
from telegrad_engine.program.result import Answer

from ..transport.base import Transport
from .segment import Recorded, Segment


class Recording:
    """The segments of a message, and the ids that it frees after them."""

    def __init__(self, segments: Sequence[Segment], free: Sequence[str] = ()) -> None:
        self.segments, self.free = segments, free
        self.nbytes = sum([segment.nbytes for segment in segments])
        """The number of bytes that it uploads."""
        self.sent_at = 0.0
        """When it was sent, by the monotonic clock."""

    @property
    def program(self) -> list[Recorded]:
        """The instructions."""
        return [each for segment in self.segments for each in segment.program()]

    def freed(self, index: int) -> list[str]:
        """The ids that it frees after the instructions before ``index``."""
        later = [each.instruction for each in self.program[index:]]
        return [*names_in([i.inputs for i in later if i.op == "free"]), *self.free]


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
        while self._sent and self.error is None and self._transport.answered:
            self._settle()
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
