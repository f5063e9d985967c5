"""Cache entries: the plans of a program for one input signature, and when to make the next one."""

from __future__ import annotations

import math
from typing import NamedTuple

from .input_signature import InputSignature
from .plan import Plan

MORE_RUNS = "it is planned after more runs"
MAX_DOUBLINGS = 10
"""The maximum number of times that the number of runs between two attempts to make a plan is doubled."""
TIMED = 10
"""The number of runs of plans that are timed before the newest is kept or dropped."""
MAX_RATIO = 1.2
"""A plan is dropped if it takes more than this many times as long as the interpreter."""
MAX_PLANS = 8
"""The maximum number of plans for one signature, for different outcomes of guards: a last batch is shorter."""
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

    An attempt to make one is due after a number of runs in which none ran. The number doubles after each attempt,
    whether it succeeded or not.
    """

    def __init__(self, after: int, nodes: int, difference: str | None) -> None:
        """``nodes`` is the size of the signature's graph, ``difference`` its difference from known signatures."""
        self._own_bytes = nodes * NODE_BYTES
        self.plans: list[Plan] = []
        """The plans; the one that ran last is first."""
        self._after, self._attempts = after, 0
        self.runs = 0
        """The number of runs since the last attempt in which no plan ran."""
        self.reason = MORE_RUNS + (f": {difference}" if difference else "")
        """Why no plan runs, unless a guard is the reason."""
        self.last_use = math.inf
        """When a program was run last on inputs of this signature."""
        self._timed = 0
        self.planned_s = self.interpreted_s = math.inf
        """The seconds of the shortest run of a plan, and of the shortest run one instruction at a time."""
        self.last_s = math.inf
        """The seconds of the last run of a plan."""

    @property
    def size(self) -> int:
        """The estimated memory in bytes."""
        program = self.plans[0].effects.program.size if self.plans else 0
        return self._own_bytes + program + UNIT_BYTES * sum(plan.size for plan in self.plans)

    @property
    def is_due(self) -> bool:
        """Whether the next run should make a plan."""
        return self.runs + 1 >= self._after << min(self._attempts, MAX_DOUBLINGS)

    def postpone(self, reason: str) -> None:
        """Wait for twice as many runs as before the last attempt."""
        self.reason = reason
        self.runs = 0
        self._attempts += 1

    def add(self, plan: Plan) -> None:
        """Use a plan that was made."""
        self.postpone(self.reason)
        self.plans, self._timed = [plan, *self.plans[: MAX_PLANS - 1]], 0
        self.planned_s = self.last_s = math.inf

    def prefer(self, plan: Plan) -> None:
        """Move a plan to the front, so that it is tried first."""
        if self.plans and self.plans[0] is not plan:
            self.plans = [plan, *[each for each in self.plans if each is not plan]]

    def drop(self, plan: Plan, reason: str) -> None:
        """Drop a plan."""
        self.plans = [each for each in self.plans if each is not plan]
        self.postpone(reason)

    def time(self, plan: Plan, seconds: float, choose: bool) -> None:
        """Record the time of a run of a plan. With ``choose``, drop it if the interpreter is faster."""
        self.last_s = seconds
        if not choose or self._timed == TIMED:
            return
        self._timed += 1
        self.planned_s = min(self.planned_s, seconds)
        if self._timed == TIMED and self.planned_s > self.interpreted_s * MAX_RATIO:
            interpreted, planned = (f"{s * 1e6:.0f} µs" for s in (self.interpreted_s, self.planned_s))
            self.drop(plan, f"it runs faster one instruction at a time: {interpreted}, against {planned} planned")

    def time_interpreted(self, seconds: float) -> None:
        """Record the time of a run one instruction at a time."""
        self.runs += 1
        self.interpreted_s = min(self.interpreted_s, seconds)
