"""Two sides measured side by side: interleaved blocks, medians, a ratio."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """What was measured, against what, and the ratio that it may have at most."""

    name: str
    against: str
    limit: float
    ours_ms: float
    theirs_ms: float

    @property
    def ratio(self) -> float:
        """Our time in theirs."""
        return self.ours_ms / self.theirs_ms

    @property
    def holds(self) -> bool:
        """Whether the ratio keeps its limit."""
        return self.ratio <= self.limit


def compare(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    *,
    repeats: int = 40,
    block: int = 10,
    progress: Callable[[], None] = lambda: None,
) -> tuple[float, float]:
    """The median milliseconds of one call of each side.

    The sides take turns in blocks, so that whatever else the machine does falls on both. The first block
    of a turn is not counted: thread pools of two libraries on the same cores disturb each other there.
    """
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for side, call in enumerate((ours, theirs)):
            for _ in range(block):
                call()
            start = time.perf_counter()
            for _ in range(block):
                call()
            times[side].append((time.perf_counter() - start) / block * 1e3)
        progress()
    return statistics.median(times[0]), statistics.median(times[1])
