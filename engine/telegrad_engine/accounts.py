"""The memory of one session: how much its tensors take, and how much they may."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from .errors import TooLarge
from .tensor import Tensor


class _Counted(weakref.ref[Any]):
    """A reference to an array that is counted. Made for every result, so it is this and no function of its own."""

    __slots__ = ("key", "nbytes")
    key: int
    nbytes: int


class Accounts:
    """What a session's arrays take: each is counted once, until it dies, whoever holds it: a name or the graph."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self._counted: dict[int, _Counted] = {}
        accounts = weakref.ref(self)

        def release(array: _Counted) -> None:
            ours = accounts()
            if ours is not None and ours._counted.pop(array.key, None) is not None:
                ours.used_bytes -= array.nbytes

        self._release: Any = release

    @property
    def room(self) -> int:
        """How many bytes are left."""
        return self.max_bytes - self.used_bytes

    def check_room(self, nbytes: int) -> None:
        """Raise TooLarge if so many more bytes would pass the limit."""
        if self.used_bytes + nbytes > self.max_bytes:
            raise TooLarge(
                f"the session holds {self.used_bytes} bytes of tensors and may hold {self.max_bytes}; "
                f"{nbytes} more are too many. Free tensors that are not needed."
            )

    def count(self, array: Any, lent: bool = False) -> None:
        """Count an array's memory, unless it is another's; ``lent`` if it came from outside and is nobody else's."""
        key = id(array)
        # An array's base that has a size is an array, too; memory that JAX sees as well has none (shown.py).
        if (hasattr(getattr(array, "base", None), "nbytes") and not lent) or key in self._counted:
            return
        counted = _Counted(array, self._release)
        counted.key, counted.nbytes = key, array.nbytes
        self.used_bytes += counted.nbytes
        self._counted[key] = counted

    def recount(self, inputs: Sequence[Any]) -> None:
        """Count arrays that replaced those of tensors that were written to, where arrays cannot be."""
        for x in inputs:
            if isinstance(x, tuple):
                self.recount(x)
            elif isinstance(x, Tensor):
                self.count(x._data)

    def hold(self, nbytes: int) -> None:
        """Count bytes that are no tensor's, until they are let go."""
        self.used_bytes += nbytes

    def let_go(self, nbytes: int) -> None:
        """Count them no more."""
        self.used_bytes -= nbytes
