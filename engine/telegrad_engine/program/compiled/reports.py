"""How the programs of sessions ran."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import NamedTuple
from weakref import WeakKeyDictionary

from ...session import Session


class Report(NamedTuple):
    """How a session's program ran the last time."""

    digest: str
    instructions: int
    runs: int
    planned_runs: int
    compiled_runs: int
    reason: str | None
    """Why it did not run in the quickest way that the session has; None if it did."""

    @property
    def runs_as_one(self) -> int:
        """How often it ran as one executable, whichever."""
        return self.planned_runs + self.compiled_runs


class Counts(NamedTuple):
    """What a compiler knows of a session's program: how often it ran, and how often of these as its executable."""

    instructions: int = 0
    runs: int = 0
    own: int = 0
    reason: str | None = None


class Ledger:
    """The counts of each session's programs, by digest, in the order in which they first ran; ``most`` of each."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: WeakKeyDictionary[Session, OrderedDict[str, Counts]] = WeakKeyDictionary()
        self._lock = Lock()

    def note(self, session: Session, digest: str, instructions: int, reason: str | None) -> None:
        """A program ran: as an executable, or not for this reason."""
        with self._lock:
            counts = self._counts.setdefault(session, OrderedDict())
            _, runs, own, _ = counts.get(digest, Counts())
            counts[digest] = Counts(instructions, runs + 1, own + (reason is None), reason)
            if len(counts) > self._most:
                counts.popitem(last=False)

    def of(self, session: Session) -> Mapping[str, Counts]:
        """What is known of a session's programs."""
        with self._lock:
            return dict(self._counts.get(session, {}))
