"""Two sides measured side by side: interleaved blocks, medians, a ratio."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

REPEATS = 40
Call = Callable[[], object]


@dataclass(frozen=True)
class Comparison:
    """What was measured, against what, and the ratio that it may have at most; None where it is shown for scale."""

    name: str
    against: str
    limit: float | None
    ours: float
    theirs: float
    unit: str

    @property
    def ratio(self) -> float:
        """Ours in theirs."""
        return self.ours / self.theirs

    @property
    def holds(self) -> bool:
        """Whether the ratio keeps its limit."""
        return self.limit is None or self.ratio <= self.limit


class Timed(NamedTuple):
    """A comparison of how long one call of each side takes.

    ``sides`` gives the two calls. A block is so many calls of one side in a row.
    """

    name: str
    against: str
    limit: float | None
    sides: Callable[[], AbstractContextManager[tuple[Call, Call]]]
    block: int = 10
    repeats: int = REPEATS

    def measure(self, advance: Callable[[float], None]) -> Comparison:
        """The median milliseconds of each side; ``advance`` is told what part of the work is done.

        The sides take turns in blocks, so that whatever else the machine does falls on both. The first block
        of a turn is not counted: thread pools of two libraries on the same cores disturb each other there.
        """
        times: tuple[list[float], list[float]] = ([], [])
        with self.sides() as calls:
            for _ in range(self.repeats):
                for call, taken in zip(calls, times, strict=True):
                    for _ in range(self.block):
                        call()
                    start = time.perf_counter()
                    for _ in range(self.block):
                        call()
                    taken.append((time.perf_counter() - start) / self.block * 1e3)
                advance(1 / self.repeats)
        ours, theirs = map(statistics.median, times)
        return Comparison(self.name, self.against, self.limit, ours, theirs, "ms")
