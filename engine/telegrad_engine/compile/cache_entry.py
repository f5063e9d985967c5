"""Cache entries: the executables of a program for one input signature, and when to make the next one."""

from __future__ import annotations

import math
from typing import NamedTuple

from .effects import Executable
from .input_signature import InputSignature
from .tier import Tier

MAX_VARIANTS = 8
"""The maximum number of executables for one signature, one for each outcome of the guards."""
MAX_DOUBLINGS = 10
"""The maximum number of times that the number of runs between two attempts to make an executable is doubled."""
TIMED = 10
"""The number of runs of the executables that are timed before the faster tier is chosen."""
REST = 10 * TIMED
"""The minimum number of runs before an executable that was set aside is timed again."""
UNIT_BYTES, NODE_BYTES = 512, 4096
"""The estimated memory of an executable per call, node or instruction, and of a signature per node of its graph."""


class Key(NamedTuple):
    """The key of an entry."""

    tenant: str
    """Tenants share no executable: otherwise the speed of a program would tell whether another tenant has run it."""
    digest: str
    """The digest of the program."""
    dtype: str
    """The default dtype."""
    signature: InputSignature


class CacheEntry:
    """The executables of a program for one signature.

    An attempt to make one is due after a number of runs in which none of them ran. The number doubles after each
    attempt, whether it succeeded or not.
    """

    def __init__(self, tier: Tier, after: int, nodes: int, difference: str | None) -> None:
        """``nodes`` is the size of the signature's graph, ``difference`` its difference from known signatures."""
        self._tier, self._own_bytes = tier, nodes * NODE_BYTES
        self.size = self._own_bytes
        """The estimated memory in bytes."""
        self.variants: list[Executable] = []
        """The executables; the one that ran last is first."""
        self._after, self._rest, self._attempts = after, 0, 0
        self.runs = 0
        """The number of runs since the last attempt in which no executable ran."""
        self.reason = f"it is {tier.word} after more runs" + (f": {difference}" if difference else "")
        """Why no executable runs, unless a guard is the reason."""
        self.is_being_made = self.is_set_aside = False
        self.last_use = math.inf
        """When a program was run last on inputs of this signature."""
        self.timed = 0
        self.own_s = self.below_s = float("inf")
        """The seconds of the shortest run as an executable, and of the shortest in the tier below."""
        self.last_s = float("inf")
        """The seconds of the last run in the tier that is used."""

    @property
    def is_due(self) -> bool:
        """Whether the next run should make an executable, or time one again."""
        wait = self._after << min(self._attempts, MAX_DOUBLINGS)
        return self.runs + 1 >= max(wait, self._rest) and not self.is_being_made

    @property
    def is_usable(self) -> bool:
        """Whether there are executables that are not set aside."""
        return bool(self.variants) and not self.is_set_aside

    def begin(self) -> None:
        """Record that an executable is being made on another thread."""
        self.is_being_made = True
        if not self._attempts:
            self.reason = f"it is being {self._tier.word}"

    def postpone(self, reason: str, rest: int = 0) -> None:
        """Wait for twice as many runs as before the last attempt, and for at least ``rest``."""
        self.reason, self.is_being_made = reason, False
        self.runs, self._rest = 0, rest
        self._attempts += 1

    def add(self, executable: Executable) -> None:
        """Add an executable that was made."""
        self.postpone(self.reason)
        self._set_variants([executable, *self.variants[: MAX_VARIANTS - 1]])
        self.last_s = float("inf")

    def prefer(self, executable: Executable) -> None:
        """Move an executable to the front, so that it is tried first."""
        if self.variants and self.variants[0] is not executable:
            self.variants = [executable, *[each for each in self.variants if each is not executable]]

    def drop(self, executable: Executable, reason: str) -> None:
        """Remove an executable that failed."""
        self._set_variants([each for each in self.variants if each is not executable])
        self.postpone(reason)

    def _set_variants(self, variants: list[Executable]) -> None:
        self.variants = variants
        program = variants[0].effects.program.size if variants else 0
        self.size = self._own_bytes + program + UNIT_BYTES * sum(each.size for each in variants)

    def time(self, seconds: float, choose: bool) -> None:
        """Record the time of a run. With ``choose``, set the executables aside if the tier below is faster."""
        self.last_s = seconds
        if not choose or self.timed == TIMED:
            return
        self.timed += 1
        self.own_s = min(self.own_s, seconds)
        if self.timed == TIMED and self.own_s > self.below_s * self._tier.max_ratio:
            below, own = (f"{s * 1e6:.0f} µs" for s in (self.below_s, self.own_s))
            self.postpone(f"it runs faster {self._tier.below}: {below}, against {own} {self._tier.word}", REST)
            self.is_set_aside = True

    def time_below(self, seconds: float) -> None:
        """Record the time of a run in the tier below."""
        self.runs += 1
        self.below_s = min(self.below_s, seconds)
        if self.is_set_aside:
            self.last_s = seconds

    def resume(self) -> None:
        """Use and time the executables again."""
        self.is_set_aside, self.timed = False, 0
        self.own_s = self.last_s = float("inf")
