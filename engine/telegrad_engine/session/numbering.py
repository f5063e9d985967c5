"""Numbers for objects, which descriptions of sessions and of programs have in their place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Numbering(list[Any]):
    """Objects in the order in which they are first seen. The number of one is its index."""

    def __init__(self, objects: Iterable[Any] = ()) -> None:
        super().__init__(objects)
        self.by_id = {id(x): i for i, x in enumerate(self)}

    def of(self, x: Any) -> int:
        """Return the number of an object."""
        number = self.by_id.setdefault(id(x), len(self))
        if number == len(self):
            self.append(x)
        return number
