"""Cache entries: the plans of a program for one input signature, and when to make the next one."""

from __future__ import annotations

import math
from typing import NamedTuple

from .input_signature import InputSignature
from .plan import Planned

MORE_RUNS = "it is planned after more runs"
MAX_VARIANTS = 8
"""The maximum number of plans for one signature, one for each outcome of the guards."""
MAX_DOUBLINGS = 10
"""The maximum number of times that the number of runs between two attempts to make a plan is doubled."""
TIMED = 10
"""The number of runs of the plans that are timed before the faster way to run the program is chosen."""
REST = 10 * TIMED
"""The minimum number of runs before a plan that was set aside is timed again."""
MAX_RATIO = 1.2
"""A plan is set aside if it takes more than this many times as long as the interpreter."""
UNIT_BYTES, NODE_BYTES = 512, 4096
"""The estimated memory of a plan per call or node, and of a signature per node of its graph."""


class Key(NamedTuple):
    """The key of an entry."""

    tenant: str
    """Tenants share no plan: otherwise the speed of a program would tell whether another tenant has run it."""
    digest: str
    """The digest of the program."""
    dtype: str
    """The default dtype."""
    signature: InputSignature


class CacheEntry:
    """The plans of a program for one signature.

    An attempt to make one is due after a number of runs in which none of them ran. The number doubles after each
    attempt, whether it succeeded or not.
    """

    def __init__(self, after: int, nodes: int, difference: str | None) -> None:
        """``nodes`` is the size of the signature's graph, ``difference`` its difference from known signatures."""
        self._own_bytes = nodes * NODE_BYTES
        self.size = self._own_bytes
        """The estimated memory in bytes."""
        self.variants: list[Planned] = []
        """The plans; the one that ran last is first."""
        self._after, self._rest, self._attempts = after, 0, 0
        self.runs = 0
        """The number of runs since the last attempt in which no plan ran."""
        self.reason = MORE_RUNS + (f": {difference}" if difference else "")
        """Why no plan runs, unless a guard is the reason."""
        self.is_set_aside = False
        self.last_use = math.inf
        """When a program was run last on inputs of this signature."""
        self.timed = 0
        self.planned_s = self.interpreted_s = float("inf")
        """The seconds of the shortest run of a plan, and of the shortest run one instruction at a time."""
        self.last_s = float("inf")
        """The seconds of the last run in the way that is chosen."""

    @property
    def is_due(self) -> bool:
        """Whether the next run should make a plan, or time one again."""
        wait = self._after << min(self._attempts, MAX_DOUBLINGS)
        return self.runs + 1 >= max(wait, self._rest)

    @property
    def is_usable(self) -> bool:
        """Whether there are plans that are not set aside."""
        return bool(self.variants) and not self.is_set_aside

    def postpone(self, reason: str, rest: int = 0) -> None:
        """Wait for twice as many runs as before the last attempt, and for at least ``rest``."""
        self.reason = reason
        self.runs, self._rest = 0, rest
        self._attempts += 1

    def add(self, plan: Planned) -> None:
        """Add a plan that was made."""
        self.postpone(self.reason)
        self._set_variants([plan, *self.variants[: MAX_VARIANTS - 1]])
        self.last_s = float("inf")

    def prefer(self, plan: Planned) -> None:
        """Move a plan to the front, so that it is tried first."""
        if self.variants and self.variants[0] is not plan:
            self.variants = [plan, *[each for each in self.variants if each is not plan]]

    def drop(self, plan: Planned, reason: str) -> None:
        """Remove a plan that failed."""
        self._set_variants([each for each in self.variants if each is not plan])
        self.postpone(reason)

    def _set_variants(self, variants: list[Planned]) -> None:
        self.variants = variants
        program = variants[0].effects.program.size if variants else 0
        self.size = self._own_bytes + program + UNIT_BYTES * sum(each.size for each in variants)

    def time(self, seconds: float, choose: bool) -> None:
        """Record the time of a run. With ``choose``, set the plans aside if the interpreter is faster."""
        self.last_s = seconds
        if not choose or self.timed == TIMED:
            return
        self.timed += 1
        self.planned_s = min(self.planned_s, seconds)
        if self.timed == TIMED and self.planned_s > self.interpreted_s * MAX_RATIO:
            interpreted, planned = (f"{s * 1e6:.0f} µs" for s in (self.interpreted_s, self.planned_s))
            self.postpone(f"it runs faster one instruction at a time: {interpreted}, against {planned} planned", REST)
            self.is_set_aside = True

    def time_interpreted(self, seconds: float) -> None:
        """Record the time of a run one instruction at a time."""
        self.runs += 1
        self.interpreted_s = min(self.interpreted_s, seconds)
        if self.is_set_aside:
            self.last_s = seconds

    def resume(self) -> None:
        """Use and time the plans again."""
        self.is_set_aside, self.timed = False, 0
        self.planned_s = self.last_s = float("inf")
