"""Decides when recorded instructions are sent to a server before a value is needed.

Several messages may be sent and not answered yet, up to a limit. A message ends after a training step and before the
next batch, so that no step is split.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from time import monotonic

from telegrad_engine.errors import TelegradError
from telegrad_engine.program.instructions import names_in
from telegrad_engine.program.result import Answer

from ..transport.base import Transport
from .segment import Recorded, Segment

FULL_INSTRUCTIONS = 10_000
"""Once this many instructions are recorded, they are sent, and the recorder waits if it must."""
AHEAD_INSTRUCTIONS, AHEAD_BYTES = 1_000, 64 * 2**10
"""Once this many instructions or bytes are recorded, a message is sent, unless the server is busy."""
AHEAD_STEPS = 4
"""Training steps are sent as they end once this many have ended without a wait for a value. With a lower number, a
step whose value is read at once would be split."""
AHEAD_S = 2.0
"""Instructions that are this many seconds old are sent when the next one is recorded. No thread sends them: it could
split a step by waking up in the middle of it, and a client that records nothing more would gain nothing."""
ALIKE = 3
"""After this many segments in a row that began with the same step, several steps are recorded as one segment, and one
plan runs them. Where steps differ, for example in the length of sequences, a segment of several steps rarely recurs."""
GATHER_STEPS, GATHER_S = 4, 0.05
"""At most this many training steps, recorded within this many seconds, are sent together, because each message costs
both sides time. The first step after a wait is sent alone, so that the server can begin."""
MAX_BYTES = 2**20 - 2**16
"""Steps that are sent together upload at most this much: the server decodes a longer message off its event loop."""
LEAD_BYTES = 2**18
"""A client that does not train gets at most this many bytes ahead of a busy server; then it sends, and waits if there
is no room. While the server reads one long message it runs nothing, and while it runs one it reads nothing."""

TRAINING = 4
"""A client that has sent this many messages since its last training step is taken not to be training."""


class FlushPolicy:
    """Decides when a recording is sent, from its length and the state that is tracked here.

    After ``due``, beyond ``enough`` instructions, and before every upload, the recorder calls :meth:`is_time`.
    """

    def __init__(self) -> None:
        self.due = 0.0
        """The time at which the recorded instructions are old enough to send."""
        self.enough = AHEAD_INSTRUCTIONS
        """How many instructions of a segment are enough to send; 0 if a training step has just ended."""
        self._began = 0.0
        self._steps = self._stride = 0
        """The number of steps since the last wait for a value, and between the last two waits."""
        self._gathered = 0
        """The number of steps in the current message: if it is the first with steps since a wait, all since then."""
        self._alike = 0
        """The number of segments in a row that began with the same step."""
        self._first_step: Sequence[object] = ()
        """The kinds of the tape's steps up to the end of the last segment's first training step."""
        self._messages = TRAINING
        """The number of messages that ended since the last step; a training loop's messages end only after steps."""

    @property
    def stepped(self) -> bool:
        """Whether a training step has just ended."""
        return not self.enough

    def begin(self) -> None:
        """Note that the first instruction of a message is recorded."""
        self._began = monotonic()
        self.due = self._began + AHEAD_S

    def end_step(self, segment: Segment) -> None:
        """Note that a training step ends with what was recorded last in this segment."""
        if self.enough:
            self.enough = 0
            self._steps += 1
            self._gathered += 1
            self._messages = 0
            segment.training_steps += 1
            if segment.training_steps == 1:
                step = [step.kind for step in segment.steps]
                self._alike = self._alike + 1 if step == self._first_step else 0
                self._first_step = step

    def ends(self, segment: Segment) -> bool:
        """Whether the segment ends with the step that has just ended."""
        return self._alike < ALIKE or segment.training_steps >= GATHER_STEPS

    def go_on(self) -> None:
        """Note that the next step begins."""
        self.enough = AHEAD_INSTRUCTIONS

    def end_message(self) -> None:
        """Note that a message has ended; the first instruction of the next one may come later."""
        self.enough = AHEAD_INSTRUCTIONS
        self._gathered = 0
        self._messages += 1

    def note_wait(self) -> None:
        """Note a wait for a value: a loop that waits after each step gains nothing by another message."""
        self._stride, self._steps = self._steps, 0

    def is_time(self, length: int, nbytes: int, in_flight: InFlight) -> bool:
        """Whether to send the recording, which has ``length`` instructions and uploads ``nbytes``, to a server now."""
        if in_flight.error is not None:
            return False  # nothing more runs until the error is raised
        stepped = self.stepped and (nbytes >= AHEAD_BYTES or max(self._steps, self._stride) >= AHEAD_STEPS)
        if is_full(length, nbytes) or (stepped and self._is_lead(nbytes)):
            return True
        if self._messages >= TRAINING and nbytes >= LEAD_BYTES:
            return True
        worthwhile = length >= AHEAD_INSTRUCTIONS or monotonic() > self.due
        return worthwhile and in_flight.is_welcome(nbytes)

    def _is_lead(self, nbytes: int) -> bool:
        """Whether enough steps have gathered to be sent together."""
        is_first = self._gathered == self._steps
        if is_first or self._gathered >= GATHER_STEPS or nbytes + nbytes // self._gathered > MAX_BYTES:
            return True
        return monotonic() > self._began + GATHER_S


def is_full(length: int, nbytes: int) -> bool:
    """Whether a recording of this size is sent in any case, by any transport."""
    return length >= FULL_INSTRUCTIONS or nbytes >= FULL_BYTES


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
        self.observed = False
        """Whether the last answer said that somebody observes the session."""
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
            self.observed = answer.observed
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
