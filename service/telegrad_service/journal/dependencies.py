"""What a durable session uses of its server, for its journal: templates of programs, and shared functions.

The server may forget a template or replace a function while the journal still needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from telegrad_engine.program.program import Make, Program, Programs
from telegrad_engine.program.registered_functions import Library
from telegrad_engine.program.registered_functions.function import Applicable, FunctionProgram

Note = Callable[[str, Any], None]
"""Takes the kind and the data of what a session uses for the first time since its journal began."""


class JournalTemplates:
    """The server's cache of templates, as one session uses it."""

    def __init__(self, shared: Programs, note: Note) -> None:
        self.shared, self._note = shared, note
        self._known: set[str] = set()

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
            self._note("template", found.text)
        return found

    def forget(self) -> None:
        """Take every template as new again, because a new journal begins."""
        self._known.clear()


class JournalFunctions(Library):
    """The server's library of functions, as one session uses it.

    While a journal is replayed, ``outer`` is None: functions come from the journal alone.
    """

    def __init__(self, shared: Library, note: Note) -> None:
        super().__init__(shared)
        self._note = note
        self._known: dict[str, Applicable] = {}

    def find(self, name: str) -> Applicable:
        """Return a function, whose definition is new on first use, and those of the functions it applies."""
        found = super().find(name)
        if name not in self.own:
            self._use(found)
        return found

    def _use(self, function: Applicable) -> None:
        if not isinstance(function, FunctionProgram) or self._known.get(function.name) is function:
            return
        for other in function.uses.values():
            self._use(other)
        self._known[function.name] = function
        self._note("function", function.definition)

    def add(self, function: Applicable) -> None:
        """Add a function to the server's library; during a replay, to this one."""
        add = super().add if self.outer is None else self.outer.add
        add(function)

    def remove(self, name: str) -> None:
        """Remove a function from the server's library; during a replay, from this one."""
        remove = super().remove if self.outer is None else self.outer.remove
        remove(name)

    def replace(self, definition: Mapping[str, Any]) -> None:
        """Use this definition of a shared function during a replay."""
        self.own.pop(definition["name"], None)
        self.own[definition["name"]] = FunctionProgram(definition, self.find)

    def replayed(self, shared: Library) -> None:
        """Use the server's functions from now on."""
        self.own.clear()
        self.outer = shared

    def forget(self) -> None:
        """Take every function as new again, because a new journal begins."""
        self._known.clear()
