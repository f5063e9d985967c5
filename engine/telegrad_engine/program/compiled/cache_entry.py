"""What is known of a program on tensors of certain kinds: how often it ran, how long it took, what to run next."""

from __future__ import annotations

from .executable import Executable
from .tier import Tier

TIMED = 10
"""How many runs of an executable are timed before one is chosen."""
TRIALS = 3
"""How many trials an executable has that comes near to the eager run's numbers: a unit that is all but zero may be on
the other side of zero, and its weights' gradient another."""


MAX_VARIANTS = 8
"""How many executables a program has on tensors of the same kinds, one for each way in which its guards come out."""


class CacheEntry:
    """A program on tensors of certain kinds."""

    def __init__(self, tier: Tier, differs: str | None = None) -> None:
        """``differs`` is what tells these kinds from others of which there are variants."""
        self._tier, self._differs = tier, differs
        self.ready: list[Entry] = []
        """Those that run as executables; the one that ran last comes first."""
        self.next = Entry(tier, differs)
        """What runs where none of these fits."""
        self._made = 0

    def prefer(self, entry: Entry) -> None:
        """Note that this one ran."""
        if self.ready[0] is not entry:
            self.ready.remove(entry)
            self.ready.insert(0, entry)

    def waits_for(self, after: int) -> int:
        """How often the next one runs before it becomes an executable: those of a loop that never repeats are rare."""
        return after << min(self._made, MAX_VARIANTS)

    def is_ready(self, entry: Entry) -> None:
        """Note that the next one has become an executable that can be relied on."""
        self._made += 1
        self.ready = [entry, *self.ready[: MAX_VARIANTS - 1]]
        self.next = Entry(self._tier, self._differs)

    def check(self, entry: Entry) -> None:
        """Run this one no more where it is no executable any longer."""
        if entry.executable is None and entry in self.ready:
            self.ready.remove(entry)
            self.next = entry

    def give_up(self) -> None:
        """Forget the next one, whose guards never held again."""
        self._made += 1
        self.next = Entry(self._tier, self._differs)

    @property
    def executables(self) -> list[Executable]:
        """All that there are."""
        return [each.executable for each in (*self.ready, self.next) if each.executable is not None]


class Entry:
    """One of these variants."""

    def __init__(self, tier: Tier, differs: str | None = None) -> None:
        self._word, self._slowest, self._differs = tier.word, tier.slowest, differs
        self.runs = 0
        self.waiting = True
        """Whether it is still to become an executable, after more runs."""
        self.reason: str | None = None
        """Why it does not run as an executable; None if it does."""
        self.wait()
        self.executable: Executable | None = None
        self.tried = False
        """Whether the executable has come to what the eager run did."""
        self.misses = self.timed = self.failed = 0
        self.eager_s = self.own_s = float("inf")
        """The shortest run of either kind."""
        self.last_s = float("inf")
        """The last run, in the way that was found to be best."""
        self.eager_is_best = False
        """Whether the executable was slower."""

    def time_eager(self, seconds: float) -> None:
        """Note how long it took one instruction at a time."""
        self.eager_s = min(self.eager_s, seconds)
        self.last_s = seconds if self.eager_is_best else self.last_s

    @property
    def settled(self) -> bool:
        """Whether its runs are neither counted nor held against each other any more."""
        return not self.waiting and (self.executable is None or self.tried)

    def refuse(self, reason: str) -> None:
        """Never run as an executable from now on."""
        self.reason, self.executable, self.tried, self.waiting = reason, None, True, False

    def wait(self) -> None:
        """Be made an executable after more runs."""
        unlike = "" if self._differs is None else f": {self._differs}"
        self.reason, self.waiting = f"it is {self._word} after more runs{unlike}", True

    def begin(self) -> None:
        """Be made an executable."""
        self.reason, self.waiting = f"it is being {self._word}", False

    def have(self, executable: Executable) -> None:
        """Try what it was made."""
        self.executable, self.reason = executable, f"it is {self._word}, and held against the eager run first"

    def differ(self, how: str) -> None:
        """Note that a trial came to something else: one more, or never again where another would not help."""
        self.failed += 1
        reason = f"{self._word}, it came to something else: {how}"
        if self.executable is None or self.executable.exact or self.failed == TRIALS:
            self.refuse(reason)
        else:
            self.reason = f"{reason}; it is tried again"

    def time(self, seconds: float, choose: bool) -> None:
        """Note how long the executable took; to ``choose``, refuse it after some runs if eager ones are quicker."""
        self.last_s = seconds
        if not choose or self.timed == TIMED:
            return
        self.timed += 1
        self.own_s = min(self.own_s, seconds)
        if self.timed == TIMED and self.own_s > self.eager_s * self._slowest:
            quick, slow = (f"{s * 1e6:.0f} µs" for s in (self.eager_s, self.own_s))
            self.eager_is_best = True
            self.refuse(f"it is quicker one instruction at a time: {quick}, and {slow} {self._word}")
