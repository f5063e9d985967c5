"""The members of the objects that programs consist of in JSON, with the deprecated names of some of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from ..errors import MalformedRequest, TelegradError

IN_OUT = {"in": "inputs", "out": "outputs"}
"""The deprecated names in instructions and procedures."""
MEANT = {**IN_OUT, "args": "inputs", "kwargs": "attrs", "param": "attr", "params": "attrs", "parameters": "attrs"}
"""What members with names from elsewhere are called here."""


class Members:
    """The members that one kind of object may have; ``deprecated`` maps old names of some of them to the current."""

    def __init__(self, kind: str, names: Iterable[str], deprecated: Mapping[str, str] = IN_OUT) -> None:
        self.kind, self.names, self.deprecated = kind, tuple(names), deprecated
        self._known = frozenset(self.names)

    def of(self, data: Mapping[str, Any], error: type[TelegradError] = MalformedRequest) -> Mapping[str, Any]:
        """Return an object with current names. Raises ``error`` for an unknown member, and for one with both names."""
        if self._known.issuperset(data):
            return data
        found: dict[str, Any] = {}
        for name, value in data.items():
            current = self.deprecated.get(name, name)
            if current not in self._known:
                raise error(f"{self.kind} has {no_member(name, self.names)}")
            if current != name and current in data:
                raise error(f"{self.kind} has {current!r} and also {name!r}, its deprecated name; give one of them")
            found[current] = value
        return found


def no_member(name: Any, names: Iterable[str], what: str = "member") -> str:
    """Say that there is no member of this name, which one is probably meant, and which ones there are."""
    known = [*names]
    near = [MEANT[name]] if MEANT.get(name) in known else get_close_matches(str(name), known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    there = f"The {what}s are {', '.join(known)}" if known else "There are none"
    return f"no {what} {name!r:.60}{hint} {there}"
