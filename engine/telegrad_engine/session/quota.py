"""Quotas: limits on an amount that several users share, such as bytes of memory, sessions or waiting requests.

Quotas form a tree: what a session uses counts against its own limit, its tenant's and the process's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock

from ..errors import TelegradError

Refusal = Callable[[float, int], TelegradError]
"""``refusal(limit, amount)`` returns the error for an amount that exceeds a quota's limit."""


class Quota:
    """A limit on an amount, within the limits of ``parent``. Thread-safe."""

    __slots__ = ("_parent", "_refusal", "limit", "lock", "used")

    def __init__(self, limit: float, refusal: Refusal, parent: Quota | None = None) -> None:
        self.limit = limit
        self.used = 0
        """The amount that is in use."""
        self.lock: RLock = RLock() if parent is None else parent.lock
        """One for the whole tree: with a lock per quota, a finalizer that runs inside one might wait for another."""
        self._refusal, self._parent = refusal, parent

    @property
    def room(self) -> float:
        """The amount that is left, in this quota and in those that it is part of; negative if a limit is exceeded."""
        own = self.limit - self.used
        return own if self._parent is None else min(own, self._parent.room)

    def check(self, amount: int) -> None:
        """Raise the error of the first quota on the way to the root, if any, that ``amount`` more would exceed."""
        if self.used + amount > self.limit:
            raise self._refusal(self.limit, amount)
        if self._parent is not None:
            self._parent.check(amount)

    def add(self, amount: int) -> None:
        """Add to the amount in use, whatever the limits; a negative amount is given back."""
        with self.lock:
            quota: Quota | None = self
            while quota is not None:
                quota.used += amount
                quota = quota._parent

    def take(self, amount: int = 1) -> None:
        """Add to the amount in use. Raises the error of a quota that it would exceed."""
        with self.lock:
            self.check(amount)
            self.add(amount)

    @contextmanager
    def taken(self, amount: int = 1) -> Iterator[None]:
        """Take an amount for the duration of the block. Raises as :meth:`take`."""
        self.take(amount)
        try:
            yield
        finally:
            self.add(-amount)
