"""Decides when recorded instructions are sent to a server before a value is needed.

A message ends where a training step does, before the next batch: no step is torn in two.
"""

from __future__ import annotations

from time import monotonic

from .in_flight import FULL_BYTES, InFlight

FULL_INSTRUCTIONS = 10_000
"""More instructions are not held back: they are sent, and if need be waited for."""
AHEAD_INSTRUCTIONS, AHEAD_BYTES = 1_000, 64 * 2**10
"""So much is worth a message of its own, unless the server is busy."""
AHEAD_STEPS = 4
"""A training step is, too, where no value is waited for within so many: one that is looked at at once would be torn."""
AHEAD_S = 2.0
"""What was recorded so long ago is sent when the next instruction is recorded. Without a thread: one that woke up
between two instructions would tear steps apart, and a client that records nothing more gains nothing by it."""
ALIKE = 3
"""Steps are recorded as one segment once so many segments in a row began with the same step: one plan then runs all of
them. Where steps differ, as sequences do in length, hardly any run of several steps would come twice."""
GATHER_STEPS, GATHER_S = 4, 0.05
"""So many training steps are sent together, unless their recording took so long, since each message costs both sides
time. The first step after a wait is sent alone, so that the server begins."""
MAX_BYTES = 2**20 - 2**16
"""No more steps are sent together than upload so much: what is longer, with its header, leaves the event loop there."""
LEAD_BYTES = 2**18
"""A client that does not train runs ahead of a busy server by so much. Then it is sent, and if there is no room for
it, waits: while one long message is read, nothing runs, and while it runs, nothing is read."""

TRAINING = 4
"""A client that has sent so many messages since a training step ended does not train, or not now."""


class FlushPolicy:
    """What of a session's recording the decision to send it depends on, beside its length.

    Past ``due`` or ``enough``, and before every upload, the recorder asks :meth:`is_time`.
    """

    __slots__ = (
        "_alike", "_began", "_first", "_first_end", "_gathered", "_in_segment", "_messages", "_steps", "_stride", "due",
        "enough",
    )  # fmt: skip

    def __init__(self) -> None:
        self.due = 0.0
        """When what is recorded is old."""
        self.enough = AHEAD_INSTRUCTIONS
        """How many instructions of a segment are: any number where a training step has just ended."""
        self._began = 0.0
        self._steps = self._stride = 0
        """How many steps ended since a value was waited for, and how many between that and the one before."""
        self._gathered, self._first = 0, True
        """How many ended in what is recorded, and whether that is the first message since."""
        self._in_segment = self._alike = 0
        """How many ended in the segment, and how many segments in a row began with the same step."""
        self._first_end: object = None
        """Where the first step of the last segment ended."""
        self._messages = TRAINING
        """How many ended since a step did; the messages of a loop that trains are ended nowhere else."""

    @property
    def stepped(self) -> bool:
        """Whether a training step has just ended."""
        return not self.enough

    def begin(self) -> None:
        """Note that the first instruction of a message is recorded."""
        self._began = monotonic()
        self.due = self._began + AHEAD_S

    def end_step(self, last: object) -> None:
        """Note that a training step ends with this node of the tape, which was recorded last."""
        if self.enough:
            self.enough = 0
            self._steps += 1
            self._gathered += 1
            self._messages = 0
            self._in_segment += 1
            if self._in_segment == 1:
                self._alike = self._alike + 1 if last is self._first_end else 0
                self._first_end = last

    @property
    def ends_segment(self) -> bool:
        """Whether the segment ends with the step that has just ended."""
        return self._alike < ALIKE or self._in_segment >= GATHER_STEPS

    def end_segment(self) -> None:
        """Note that the next segment begins."""
        self._in_segment = 0

    def go_on(self) -> None:
        """Note that the next step begins."""
        self.enough = AHEAD_INSTRUCTIONS

    def end_message(self) -> None:
        """Note that the next message begins, which may have its first instruction a while later."""
        self.enough = AHEAD_INSTRUCTIONS
        if self._gathered:
            self._first = False
        self._gathered = 0
        self._messages += 1

    def note_wait(self) -> None:
        """Note that a value is waited for: a loop that does so after each step gains nothing by another message."""
        self._stride, self._steps, self._first = self._steps, 0, True

    def is_time(self, length: int, nbytes: int, in_flight: InFlight) -> bool:
        """Whether so many instructions, which upload so many bytes, are to go to a server now."""
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
        """Whether as many steps have gathered as are sent together."""
        if self._first or self._gathered >= GATHER_STEPS or nbytes + nbytes // self._gathered > MAX_BYTES:
            return True
        return monotonic() > self._began + GATHER_S


def is_full(length: int, nbytes: int) -> bool:
    """Whether so much is not held back, wherever it goes."""
    return length >= FULL_INSTRUCTIONS or nbytes >= FULL_BYTES
