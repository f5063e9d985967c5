"""What was sent and is not answered: its segments, as instructions and the user's lines if something goes wrong."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from telegrad_engine.program import Instruction

from ..call_site import Line
from .segment import Segment, Written


class Recording:
    """The segments of a message, the ids that it frees after them, and the bytes that it uploads."""

    def __init__(self, segments: Sequence[Segment], free: Sequence[str] = (), nbytes: int = 0) -> None:
        self.segments, self.free, self.nbytes = segments, free, nbytes
        self.sent_at = 0.0
        """When it was sent, by the monotonic clock."""

    @cached_property
    def _written(self) -> Written:
        program: list[Instruction] = []
        lines: list[Line | None] = []
        for segment in self.segments:
            own_program, own_lines = segment.written()
            program += own_program
            lines += own_lines
        return program, lines

    @property
    def program(self) -> list[Instruction]:
        """The instructions."""
        return self._written[0]

    @property
    def lines(self) -> list[Line | None]:
        """The user's line that recorded each."""
        return self._written[1]


def joined(recordings: Sequence[Recording]) -> Recording:
    """Several as one, in their order."""
    segments = [segment for each in recordings for segment in each.segments]
    free = [name for each in recordings for name in each.free]
    return Recording(segments, free, sum([each.nbytes for each in recordings]))
