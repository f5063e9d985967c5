"""Memory accounting for one session: the bytes that it uses, its own limit, and the quotas that it shares.

Quotas form a tree: what a session uses counts against its own limit, its tenant's and the process's.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager, nullcontext
from threading import RLock
from typing import Any

import numpy as np

from ..errors import TelegradError, TooLarge
from ..schema.memory_admission import OBJECT_BYTES

FREE_OBJECTS = 2**16
"""The number of arrays and names that a session may have in addition to its bytes. Shared quotas count them in full."""
EACH_BYTES = OBJECT_BYTES // 2
"""The bytes that an array or a name takes: a tensor is one of each."""
NODE_BYTES = 704
"""The bytes that a node of the graph takes, with its edges and attributes, besides the arrays that it saved; or a small
gradient."""
DRIFT_BYTES = 2**16
"""The change of a session's total that is reported to the quotas; smaller changes are reported later."""
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


class _Counted(weakref.ref[Any]):
    """A reference to a counted array. One is made for every result, so it has attributes instead of a closure."""

    __slots__ = ("key", "nbytes")
    key: int
    nbytes: int


class Accounts:
    """The memory of a session. Each array is counted once until it is freed, whether a name or the graph holds it.

    ``names`` are the session's names of tensors: each costs a little, as each array does. ``quota`` is what the
    session shares with others.
    """

    def __init__(self, max_bytes: int, names: Sized = (), quota: Quota | None = None) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        """The bytes of arrays, and of waiting backward passes, which the session adds."""
        self.reserved_bytes = 0
        """The bytes that the running op may need while it runs."""
        self.answer_bytes = 0
        """The bytes of recorded answers, set by the code that records them."""
        self.shared: Any = None
        """The memory that the session shares with forks of it (snapshot/sharing.py); None if there is none."""
        self.overhead_bytes = 0
        """The estimated bytes of objects other than tensors, such as nodes, set by the session."""
        self.floor = 0 if quota is None else max_bytes
        """The room below which the limits are checked again, by :meth:`check_room`."""
        self._names = names
        self.quota = quota
        self._reported = 0
        """The part of the total that ``quota`` knows of."""
        self._counted: dict[int, _Counted] = {}
        accounts = weakref.ref(self)

        def release(array: _Counted) -> None:
            ours = accounts()
            if ours is not None and ours._counted.pop(array.key, None) is not None:
                ours.used_bytes -= array.nbytes
                if array.nbytes > DRIFT_BYTES:
                    ours.report()

        self._release: Any = release

    def __del__(self) -> None:
        if self.quota is not None:
            self.quota.add(-self._reported)

    @property
    def total_bytes(self) -> int:
        """All bytes of the session: arrays, names, nodes, recorded answers and reserved bytes."""
        objects = len(self._counted) + len(self._names)
        return self.used_bytes + self.answer_bytes + self.reserved_bytes + self.overhead_bytes + EACH_BYTES * objects

    @property
    def room(self) -> int:
        """The number of bytes that the session's own limit leaves."""
        room = self.max_bytes - self.used_bytes - self.answer_bytes - self.reserved_bytes - self.overhead_bytes
        objects = len(self._counted) + len(self._names)
        return room if objects <= FREE_OBJECTS else room - EACH_BYTES * (objects - FREE_OBJECTS)

    def settle(self) -> None:
        """Report the total to the quotas if it has changed by more than ``DRIFT_BYTES``."""
        if self.quota is not None and abs(self.total_bytes - self._reported) > DRIFT_BYTES:
            self.report()

    def report(self) -> None:
        """Report the total to the quotas."""
        quota = self.quota
        if quota is not None:
            with quota.lock:
                total = self.total_bytes
                quota.add(total - self._reported)
                self._reported = total

    def check_room(self, nbytes: int) -> None:
        """Raise TooLarge if ``nbytes`` more bytes would exceed the session's limit, or the error of a quota."""
        if nbytes > self.room:
            raise TooLarge(
                f"the session holds {self.total_bytes} bytes and may hold {self.max_bytes}; {nbytes} more are too "
                "many. Free tensors that are not needed."
            )
        self.check_quota(nbytes)

    def fits(self, nbytes: int) -> bool:
        """Return whether the session and the quotas that it shares have room for ``nbytes`` more bytes."""
        quota = self.quota
        return nbytes <= self.room and (quota is None or nbytes <= quota.room - self.total_bytes + self._reported)

    def check_quota(self, nbytes: int) -> None:
        """Raise the error of the first quota that ``nbytes`` more bytes would exceed."""
        if self.quota is not None:
            self.report()
            self.quota.check(nbytes)
            self.floor = max(0, self.room - DRIFT_BYTES)

    def reserve(self, nbytes: int) -> None:
        """Reserve bytes until they are released. Raises as :meth:`check_room` if there is no room for them."""
        with nullcontext() if self.quota is None else self.quota.lock:  # two sessions must not get the same bytes
            self.check_room(nbytes)
            self.reserved_bytes += nbytes
            self.report()

    def release(self, nbytes: int) -> None:
        """Release reserved bytes."""
        self.reserved_bytes -= nbytes
        self.report()

    def count(self, array: Any, lent: bool = False) -> None:
        """Count an array's memory, unless it is a view; ``lent`` means that the array alone uses outside memory."""
        # A base with ``nbytes`` is an array, too; a SharedBuffer has none.
        base: Any = getattr(array, "base", None)
        if hasattr(base, "nbytes") and not lent:
            if type(base) not in (np.ndarray, type(array)) or hasattr(base.base, "nbytes"):
                return
            array = base
        key = id(array)
        if key in self._counted:
            return
        counted = _Counted(array, self._release)
        counted.key, counted.nbytes = key, array.nbytes
        self.used_bytes += counted.nbytes
        self._counted[key] = counted

    def uncount(self, owner: Any) -> bool:
        """Stop counting an array, which lives on elsewhere. Return whether it was counted."""
        counted = self._counted.pop(id(owner), None)
        if counted is not None:
            self.used_bytes -= counted.nbytes
        return counted is not None

    def unshare(self, tensors: Iterable[Any]) -> bool:
        """Give the session its own copy of memory of these tensors that it shares with a fork.

        Return whether there was any. Code that writes calls it for tensors whose arrays are read-only.
        """
        return self.shared is not None and bool(self.shared.unshare(tensors))

    def take_over(self, other: Accounts) -> None:
        """Count what ``other`` counts, of a session that is not used any more, and share memory as it does."""
        for counted in list(other._counted.values()):
            if (array := counted()) is not None:
                self.count(array, lent=True)
        self.shared = other.shared
