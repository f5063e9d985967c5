"""Comparisons of two sides, timed in interleaved blocks, with medians and a ratio."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

REPEATS = 40
SETTLED_S = 0.02
"""Seconds that a side runs before it is timed: the other side's OpenMP threads keep polling for work for about 5 ms, on
the same cores."""
Call = Callable[[], object]


class Clocked(Protocol):
    """A side that times itself, because it runs in another process or only part of its work counts."""

    def seconds(self, count: int) -> float:
        """Run ``count`` calls and return the seconds they took."""
        ...


Side = Call | Clocked


class Unavailable(Exception):
    """A side cannot be measured, for example because it is not installed or did not start."""


@dataclass(frozen=True)
class Comparison:
    """A measured comparison. ``limit`` is the highest allowed ratio; None if it is shown only for scale."""

    name: str
    against: str
    limit: float | None
    ours: float
    theirs: float
    unit: str

    @property
    def ratio(self) -> float:
        """Our time divided by theirs."""
        return self.ours / self.theirs

    @property
    def holds(self) -> bool:
        """Whether the ratio is within its limit."""
        return self.limit is None or self.ratio <= self.limit


@dataclass(frozen=True)
class Missing:
    """A comparison that could not be measured, with the reason."""

    name: str
    against: str
    limit: float | None
    why: str


Result = Comparison | Missing


class Timed(NamedTuple):
    """A comparison of the time that one call of each side takes.

    ``sides`` yields the two calls. ``block`` is the number of calls of one side in a row, and ``settled_s`` the seconds
    that it runs before they are timed.
    """

    name: str
    against: str
    limit: float | None
    sides: Callable[[], AbstractContextManager[tuple[Side, Side]]]
    block: int = 10
    repeats: int = REPEATS
    settled_s: float = SETTLED_S

    def measure(self, advance: Callable[[float], None]) -> Result:
        """Measure the median milliseconds of each side; ``advance`` gets each completed share of the work.

        The sides alternate in blocks, so that other load of the machine affects both. The first blocks of a turn are
        not counted, because the thread pools of two libraries on the same cores disturb each other.
        """
        times: tuple[list[float], list[float]] = ([], [])
        try:
            with self.sides() as sides:
                for _ in range(self.repeats):
                    for side, taken in zip(sides, times, strict=True):
                        began = time.perf_counter()
                        while time.perf_counter() - began < self.settled_s:
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
    """A comparison of a count with its expected value. It is exact, so it runs once."""

    name: str
    against: str
    limit: float
    expected: float
    counter: Callable[[], float]
    unit: str

    def measure(self, advance: Callable[[float], None]) -> Result:
        """Count and compare with the expected value."""
        counted = self.counter()
        advance(1)
        return Comparison(self.name, self.against, self.limit, counted, self.expected, self.unit)


class GeometricMean(NamedTuple):
    """The geometric mean of the ratios of those comparisons in ``of``, by name, that were measured."""

    name: str
    against: str
    limit: float
    of: tuple[str, ...]

    def computed(self, results: Sequence[Result]) -> Result:
        """Compute the mean from the results of these comparisons."""
        ratios = [r.ratio for r in results if isinstance(r, Comparison) and r.name in self.of]
        if not ratios:
            return Missing(self.name, self.against, self.limit, "nothing that it is the mean of was measured")
        return Comparison(self.name, self.against, self.limit, statistics.geometric_mean(ratios), 1.0, "ratio")
