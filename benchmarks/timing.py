"""Two sides measured side by side: interleaved blocks, medians, a ratio."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

REPEATS = 40
SETTLED_S = 0.02
"""How long a side runs before it is measured: for some 5 ms the threads of OpenMP that the other one had look for work,
on the same cores."""
Call = Callable[[], object]


class Clocked(Protocol):
    """A side that has its own clock: it is in another process, or only a part of what it does counts."""

    def seconds(self, count: int) -> float:
        """How long so many calls took."""
        ...


Side = Call | Clocked


class Unavailable(Exception):
    """A side cannot be measured here, for the reason given: it is not installed, not built yet, or did not start."""


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


@dataclass(frozen=True)
class Missing:
    """A comparison that could not be made, and why."""

    name: str
    against: str
    limit: float | None
    why: str


Result = Comparison | Missing


class Timed(NamedTuple):
    """A comparison of how long one call of each side takes.

    ``sides`` gives the two calls. A block is so many calls of one side in a row.
    """

    name: str
    against: str
    limit: float | None
    sides: Callable[[], AbstractContextManager[tuple[Side, Side]]]
    block: int = 10
    repeats: int = REPEATS

    def measure(self, advance: Callable[[float], None]) -> Result:
        """The median milliseconds of each side; ``advance`` is told what part of the work is done.

        The sides take turns in blocks, so that whatever else the machine does falls on both. The first blocks
        of a turn are not counted: thread pools of two libraries on the same cores disturb each other there.
        """
        times: tuple[list[float], list[float]] = ([], [])
        try:
            with self.sides() as sides:
                for _ in range(self.repeats):
                    for side, taken in zip(sides, times, strict=True):
                        began = time.perf_counter()
                        while time.perf_counter() - began < SETTLED_S:
                            _seconds(side, self.block)
                        taken.append(_seconds(side, self.block) / self.block * 1e3)
                    advance(1 / self.repeats)
        except Unavailable as reason:
            return Missing(self.name, self.against, self.limit, str(reason))
        ours, theirs = map(statistics.median, times)
        return Comparison(self.name, self.against, self.limit, ours, theirs, "ms")


def _seconds(side: Side, count: int) -> float:
    clock = getattr(side, "seconds", None)
    if clock is not None:
        taken: float = clock(count)
        return taken
    start = time.perf_counter()
    for _ in range(count):
        side()  # type: ignore[operator]
    return time.perf_counter() - start


class Counted(NamedTuple):
    """A comparison of how often something happens in one call with how often it should: exact, so done once."""

    name: str
    against: str
    limit: float
    expected: float
    count: Callable[[], float]
    unit: str

    def measure(self, advance: Callable[[float], None]) -> Result:
        """What was counted."""
        counted = self.count()
        advance(1)
        return Comparison(self.name, self.against, self.limit, counted, self.expected, self.unit)


class GeometricMean(NamedTuple):
    """The geometric mean of the ratios of other comparisons, by their names, of those that were made."""

    name: str
    against: str
    limit: float
    of: tuple[str, ...]

    def computed(self, results: Sequence[Result]) -> Result:
        """The mean, from results that contain those comparisons."""
        ratios = [r.ratio for r in results if isinstance(r, Comparison) and r.name in self.of]
        if not ratios:
            return Missing(self.name, self.against, self.limit, "nothing that it is the mean of was measured")
        return Comparison(self.name, self.against, self.limit, statistics.geometric_mean(ratios), 1.0, "ratio")
