"""What a durable session uses of its server, for its journal: templates of programs, and shared functions.

The server may forget a template or replace a function while the journal still needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from telegrad_engine.program.program import Program
from telegrad_engine.program.program_cache import Make, Programs
from telegrad_engine.program.registered_functions import Library
from telegrad_engine.program.registered_functions.function import Applicable, FunctionProgram


class JournalTemplates:
    """The server's cache of templates, as one session uses it."""

    def __init__(self, shared: Programs) -> None:
        self.shared = shared
        self._known: set[str] = set()
        self._new: list[str] = []

    def read(self, text: str, claimed: str | None, max_depth: int) -> Program:
        """Read and cache a template whose text the message has, so that the journal has it too."""
        found = self.shared.read(text, claimed, max_depth)
        self._known.add(found.digest)
        return found

    def find(self, known_by: Any, make: Make | None = None) -> Program:
        """Return a cached template, whose text is new on first use. A program that the session makes is not."""
        found = self.shared.find(known_by, make)
        if make is None and known_by not in self._known:
            self._known.add(known_by)
            self._new.append(found.text)
        return found

    def take_new(self) -> list[str]:
        """The texts that were used for the first time since the last call."""
        new, self._new = self._new, []
        return new

    def forget(self) -> None:
        """Take every template as new again, because a new journal begins."""
        self._known.clear()


class JournalFunctions(Library):
    """The server's library of functions, as one session uses it.

    While a journal is replayed, ``outer`` is None: functions come from the journal alone.
    """

    def __init__(self, shared: Library) -> None:
        super().__init__(shared)
        self._known: dict[str, Applicable] = {}
        self._new: list[Any] = []

    def find(self, name: str) -> Applicable:
        """Return a function, whose definition is new on first use, and those of the functions it applies."""
        found = super().find(name)
        if name not in self.own:
            self._note(found)
        return found

    def _note(self, function: Applicable) -> None:
        if not isinstance(function, FunctionProgram) or self._known.get(function.name) is function:
            return
        for other in function.uses.values():
            self._note(other)
        self._known[function.name] = function
        self._new.append(function.definition)

    def add(self, function: Applicable) -> None:
        """Add a function to the server's library; during a replay, to this one."""
        if self.outer is None:
            super().add(function)
        else:
            self.outer.add(function)

    def remove(self, name: str) -> None:
        """Remove a function from the server's library; during a replay, from this one."""
        if self.outer is None:
            super().remove(name)
        else:
            self.outer.remove(name)

    def replace(self, definition: Mapping[str, Any]) -> None:
        """Use this definition of a shared function during a replay."""
        self.own.pop(definition["name"], None)
        self.own[definition["name"]] = FunctionProgram(definition, self.find)

    def replayed(self, shared: Library) -> None:
        """Use the server's functions from now on."""
        self.own.clear()
        self.outer = shared

    def take_new(self) -> list[Any]:
        """The definitions that were used for the first time since the last call."""
        new, self._new = self._new, []
        return new

    def forget(self) -> None:
        """Take every function as new again, because a new journal begins."""
        self._known.clear()
