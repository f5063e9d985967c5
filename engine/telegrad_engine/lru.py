"""A cache of bounded size for hot paths of the engine and the SDK."""

from __future__ import annotations

from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LRU(dict[K, V]):
    """A dict that keeps at least the ``size`` entries used last, and at most twice as many.

    There are two generations. New entries go into the young one, which is the dict itself, so a hit is as fast as in a
    dict. An entry of the old generation moves to the young one when it is used. When the young generation is full, it
    becomes the old one, and the previous old one is dropped.

    Only ``cache[key]``, ``cache[key] = value``, ``get``, ``in`` and ``len`` see both generations. Threads may share a
    cache; on concurrent access an entry may be dropped early.
    """

    __slots__ = ("_old", "_size")

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._old: dict[K, V] = {}

    def __missing__(self, key: K) -> V:
        value = self._old.pop(key)
        self[key] = value
        return value

    def __setitem__(self, key: K, value: V) -> None:
        if super().__len__() >= self._size and not super().__contains__(key):
            self._old = dict(self)
            self.clear()
        self._old.pop(key, None)
        super().__setitem__(key, value)

    def get(self, key: K, default: Any = None) -> Any:
        """Return the entry for ``key``, or ``default``. This counts as a use of the entry."""
        try:
            return self[key]
        except KeyError:
            return default

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self._old

    def __len__(self) -> int:
        return super().__len__() + len(self._old)
