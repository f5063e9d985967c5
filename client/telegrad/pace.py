"""When what is recorded for a server goes there, though nobody waits for a value yet.

A message ends where a training step does, before the next batch: no step is torn in two.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .under_way import UnderWay

FULL_INSTRUCTIONS, FULL_BYTES = 10_000, 32 * 2**20
"""More than this is not held back, be it recorded or under way: it is sent, and if need be waited for."""
AHEAD_INSTRUCTIONS, AHEAD_BYTES = 1_000, 64 * 2**10
"""So much is worth a message of its own, unless the server is busy."""
AHEAD_STEPS = 4
"""A training step is, too, where no value is waited for within so many: one that is looked at at once would be torn."""
AHEAD_S = 2.0
"""What was recorded so long ago is sent when the next instruction is recorded. Without a thread: one that woke up
between two instructions would tear steps apart, and who records nothing more has nothing to gain."""
LEAD_STEPS = 4
"""After a wait one training step is sent, so that the server begins, then two, then so many: the next are recorded
while it runs those before. Always as many, for each number of them is a program of its own to the server."""
ALIKE = 3
"""Steps are sent together once so many messages in a row began with the same one: where steps differ, as sequences do
in length, hardly any message would come twice, and only what does is planned."""
STEPS_S = 0.05
"""What took longer to record is sent where a step ends, however many that are, unless the server is busy."""
MOST_BYTES = 2**20 - 2**16
"""No more steps are sent together than upload so much: what is longer, with its header, leaves the event loop there."""
LEAD_BYTES = 2**18
"""So far the recording of who does not train runs ahead of a busy server. Then it is sent, and if there is no room for
it, waits: while one long message is read, nothing runs, and while it runs, nothing is read."""

TRAINING = 4
"""Who has sent so many messages since a training step ended does not train, or not now."""


class Pace:
    """What of a session's recording the decision to send it depends on, beside its length.

    ``due`` and ``enough`` are for whoever records: past either of them, and before every upload, it is time to ask.
    """

    __slots__ = ("_alike", "_first", "_gathered", "_lead", "_messages", "_steps", "_stride", "due", "enough")

    def __init__(self) -> None:
        self.due = 0.0
        """When what is recorded is old."""
        self.enough = AHEAD_INSTRUCTIONS
        """How many instructions are: any number where a training step has just ended."""
        self._steps = self._stride = 0
        """How many steps ended since a value was waited for, and how many between that and the one before."""
        self._gathered, self._lead = 0, 1
        """How many ended in what is recorded, and how many are to."""
        self._first: object = None
        self._alike = 0
        """The first step of the last message, and how many messages in a row began with it."""
        self._messages = TRAINING
        """How many ended since a step did; the messages of a loop that trains are ended nowhere else."""

    def begin(self) -> None:
        """Note that the first instruction of a message is recorded."""
        self.due = monotonic() + AHEAD_S

    def end_step(self, step: object) -> None:
        """Note that a training step ends with what was recorded last: which it is, None for one that is new."""
        if self.enough:
            self.enough = 0
            self._steps += 1
            self._gathered += 1
            self._messages = 0
            if self._gathered == 1:
                self._alike = self._alike + 1 if step is not None and step is self._first else 0
                self._first = step

    def go_on(self) -> None:
        """Note that the next step begins."""
        self.enough = AHEAD_INSTRUCTIONS

    def end_message(self) -> None:
        """Note that the next message begins, which may have its first instruction a while later."""
        self.enough = AHEAD_INSTRUCTIONS
        if self._gathered:
            self._lead = min(2 * self._lead, LEAD_STEPS)
        self._gathered = 0
        self._messages += 1

    def note_wait(self) -> None:
        """Note that somebody waits for a value: whoever does after each step gains nothing by another message."""
        self._stride, self._steps, self._lead = self._steps, 0, 1

    def is_time(self, length: int, nbytes: int, under_way: UnderWay) -> bool:
        """Whether so many instructions, which upload so many bytes, are to go to a server now."""
        if under_way.error is not None:
            return False  # nothing more runs until somebody has heard of it
        stepped = not self.enough and (nbytes >= AHEAD_BYTES or max(self._steps, self._stride) >= AHEAD_STEPS)
        if is_full(length, nbytes) or (stepped and self._is_lead(nbytes)):
            return True
        if self._messages >= TRAINING and nbytes >= LEAD_BYTES:
            return True
        due = self.due - AHEAD_S + STEPS_S if stepped else self.due
        worthwhile = length >= AHEAD_INSTRUCTIONS or monotonic() > due
        return worthwhile and under_way.is_welcome(nbytes)

    def _is_lead(self, nbytes: int) -> bool:
        """Whether as many steps have gathered as are sent together."""
        lead = self._lead if self._alike >= ALIKE else 1
        return self._gathered >= lead or nbytes + nbytes // self._gathered > MOST_BYTES


def is_full(length: int, nbytes: int) -> bool:
    """Whether so much is not held back, wherever it goes."""
    return length >= FULL_INSTRUCTIONS or nbytes >= FULL_BYTES
