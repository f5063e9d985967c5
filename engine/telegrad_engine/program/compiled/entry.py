"""What is known of a program on tensors of certain kinds: how often it ran, how long it took, what to run next."""

from __future__ import annotations

from .executable import Executable
from .ways import Way

TIMED = 10
"""How many runs of an executable are timed before one is chosen."""
TRIALS = 3
"""How many trials an executable has that comes near to the eager run's numbers: a unit that is all but zero may be on
the other side of zero, and its weights' gradient another."""


class Entry:
    """A program on tensors of certain kinds."""

    def __init__(self, way: Way) -> None:
        self._word = way.word
        self.runs = 0
        self.waiting = True
        """Whether it is still to become an executable, after more runs."""
        self.reason: str | None = f"it is {way.word} after more runs"
        """Why it does not run as an executable; None if it does."""
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
        if self.timed == TIMED and self.own_s > self.eager_s:
            quick, slow = (f"{s * 1e6:.0f} µs" for s in (self.eager_s, self.own_s))
            self.eager_is_best = True
            self.refuse(f"it is quicker one instruction at a time: {quick}, and {slow} {self._word}")
