"""Memory accounting for one session and for all sessions of a process: bytes in use, and their limits."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence, Sized
from threading import Lock
from typing import Any

import numpy as np

from ..errors import TooLarge
from ..schema.memory_admission import LARGE, OBJECT_BYTES
from ..tensor.eager import Tensor

FREE_OBJECTS = 2**16
"""The number of arrays and names that cost nothing besides their elements."""


class _Counted(weakref.ref[Any]):
    """A reference to a counted array. One is made for every result, so it has attributes instead of a closure."""

    __slots__ = ("key", "nbytes")
    key: int
    nbytes: int


class ProcessMemory:
    """The memory that all sessions of a process use together; thread-safe."""

    def __init__(self, max_bytes: float = math.inf) -> None:
        self.max_bytes = max_bytes
        self._accounts: weakref.WeakSet[Accounts] = weakref.WeakSet()
        self._lock = Lock()

    def add(self, accounts: Accounts) -> None:
        """Include these accounts while they are alive."""
        with self._lock:
            self._accounts.add(accounts)

    @property
    def used_bytes(self) -> int:
        """The bytes that all sessions use and have reserved."""
        with self._lock:
            return sum(accounts.total_bytes for accounts in self._accounts)

    def fits(self, nbytes: int) -> bool:
        """Return whether there is room for ``nbytes`` more bytes; small amounts always fit."""
        return nbytes <= LARGE or self.max_bytes == math.inf or self.used_bytes + nbytes <= self.max_bytes

    def check_room(self, nbytes: int) -> None:
        """Raise TooLarge if ``nbytes`` more bytes would exceed the limit of the process."""
        if not self.fits(nbytes):
            raise TooLarge(
                f"the server's sessions together may take {self.max_bytes:.0f} bytes of memory; {nbytes} more are too "
                "many at the moment"
            )


class Accounts:
    """The memory of a session. Each array is counted once until it is freed, whether a name or the graph holds it.

    ``names`` are the session's names of tensors: each costs a little, as each array does. ``process`` is the memory
    that the session shares with others.
    """

    def __init__(self, max_bytes: int, names: Sized = (), process: ProcessMemory | None = None) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        """The bytes of arrays, and those of :meth:`count_bytes`."""
        self.reserved_bytes = 0
        """The bytes that the running op may need while it runs."""
        self.answer_bytes = 0
        """The bytes of recorded answers, set by the code that records them."""
        self._names = names
        self._process = process
        if process is not None:
            process.add(self)
        self._counted: dict[int, _Counted] = {}
        accounts = weakref.ref(self)

        def release(array: _Counted) -> None:
            ours = accounts()
            if ours is not None and ours._counted.pop(array.key, None) is not None:
                ours.used_bytes -= array.nbytes

        self._release: Any = release

    @property
    def total_bytes(self) -> int:
        """All bytes of the session: arrays, names, recorded answers and reserved bytes."""
        total = self.used_bytes + self.answer_bytes + self.reserved_bytes
        objects = len(self._counted) + len(self._names)
        return total if objects <= FREE_OBJECTS else total + OBJECT_BYTES * (objects - FREE_OBJECTS)

    @property
    def room(self) -> int:
        """The number of bytes that are left."""
        total = self.used_bytes + self.answer_bytes + self.reserved_bytes
        objects = len(self._counted) + len(self._names)
        return self.max_bytes - (total if objects <= FREE_OBJECTS else self.total_bytes)

    def check_room(self, nbytes: int) -> None:
        """Raise TooLarge if ``nbytes`` more bytes would exceed the limit of the session, or of the process."""
        total = self.total_bytes
        if total + nbytes > self.max_bytes:
            raise TooLarge(
                f"the session holds {total} bytes and may hold {self.max_bytes}; {nbytes} more are too many. "
                "Free tensors that are not needed."
            )
        self.check_process(nbytes)

    def fits(self, nbytes: int) -> bool:
        """Return whether the session and the process have room for ``nbytes`` more bytes."""
        return nbytes <= self.room and (self._process is None or self._process.fits(nbytes))

    def check_process(self, nbytes: int) -> None:
        """Raise TooLarge if ``nbytes`` more bytes would exceed the limit of the process."""
        if self._process is not None:
            self._process.check_room(nbytes)

    def reserve(self, nbytes: int) -> None:
        """Reserve bytes until they are released. Raises TooLarge if there is no room for them."""
        self.check_room(nbytes)
        self.reserved_bytes += nbytes

    def release(self, nbytes: int) -> None:
        """Release reserved bytes."""
        self.reserved_bytes -= nbytes

    def count(self, array: Any, lent: bool = False) -> None:
        """Count an array's memory, unless it is a view; ``lent`` means that the array alone uses outside memory."""
        # A base with ``nbytes`` is an array, too; a SharedBuffer has none.
        base = getattr(array, "base", None)
        if hasattr(base, "nbytes") and not lent:
            if type(base) is not np.ndarray or hasattr(base.base, "nbytes"):
                return
            array = base
        key = id(array)
        if key in self._counted:
            return
        counted = _Counted(array, self._release)
        counted.key, counted.nbytes = key, array.nbytes
        self.used_bytes += counted.nbytes
        self._counted[key] = counted

    def recount(self, inputs: Sequence[Any]) -> None:
        """Count the new arrays of tensors that were written to, if arrays are replaced instead of written to."""
        for x in inputs:
            if isinstance(x, tuple):
                self.recount(x)
            elif isinstance(x, Tensor):
                self.count(x._data)

    def count_bytes(self, nbytes: int) -> None:
        """Count bytes that belong to no tensor, until :meth:`uncount_bytes`."""
        self.used_bytes += nbytes

    def uncount_bytes(self, nbytes: int) -> None:
        """Subtract bytes that :meth:`count_bytes` added."""
        self.used_bytes -= nbytes
