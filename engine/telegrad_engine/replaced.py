"""Functions of the engine that give way to others for a while: for a profile, for forward mode.

Nothing is asked on the hot path for the sake of what is not in use (docs/decisions/0009).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from . import shortcuts

Place = tuple[Any, str, Callable[[Any], Any]]
"""A module or class, the name of a function there, and what makes its replacement of it."""

_lock = Lock()
_installed = 0
"""How many Replacements are in place; while there is one, quick.py's functions are not."""


class Replacements:
    """Replacements that go in with their first user, and out with the last."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self._originals: list[Any] = []
        self._users = 0

    def install(self) -> None:
        """Replace the functions, unless they are already. Each call wants one of ``uninstall``."""
        global _installed
        with _lock:
            self._users += 1
            if self._users > 1:
                return
            if not _installed:
                shortcuts.remove()
            _installed += 1
            self._originals = [vars(owner)[name] for owner, name, _ in self._places]
            for (owner, name, replacement), original in zip(self._places, self._originals, strict=True):
                setattr(owner, name, replacement(original))

    def uninstall(self) -> None:
        """Put back the engine's own functions after the last user."""
        global _installed
        with _lock:
            self._users -= 1
            if self._users:
                return
            for (owner, name, _), original in zip(self._places, self._originals, strict=True):
                setattr(owner, name, original)
            _installed -= 1
            if not _installed:
                shortcuts.install()
