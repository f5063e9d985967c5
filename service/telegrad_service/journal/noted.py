"""What a durable session takes from its server, noted for its journal: templates of programs, and shared functions.

The server may forget a template or replace a function while the journal still needs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from telegrad_engine.program.program import Program
from telegrad_engine.program.program_cache import Make, Programs
from telegrad_engine.program.registered_functions import Library
from telegrad_engine.program.registered_functions.function import Applicable, FunctionProgram


class NotedTemplates:
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
        """Return a cached template, and note its text on first use. A program that the session makes is not noted."""
        found = self.shared.find(known_by, make)
        if make is None and known_by not in self._known:
            self._known.add(known_by)
            self._new.append(found.text)
        return found

    def take(self) -> list[str]:
        """The texts that were noted since the last call."""
        new, self._new = self._new, []
        return new

    def forget(self) -> None:
        """Note every template again, because a new journal begins."""
        self._known.clear()


class NotedFunctions(Library):
    """The server's library of functions, as one session uses it.

    While a journal is replayed, ``outer`` is None: functions come from the journal alone.
    """

    def __init__(self, shared: Library) -> None:
        super().__init__(shared)
        self._noted: dict[str, Applicable] = {}
        self._new: list[Mapping[str, Any]] = []

    def find(self, name: str) -> Applicable:
        """Return a function, and note its definition, and those of the functions it applies, on first use."""
        found = super().find(name)
        if self._noted.get(name) is not found and found.definition is not None and not self.has_own(name):
            for inner in _strings(found.definition):
                if inner != name and inner in self:
                    self.find(inner)
            self._noted[name] = found
            self._new.append(found.definition)
        return found

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
        self._functions.pop(definition["name"], None)
        self._functions[definition["name"]] = FunctionProgram(definition, self.find)

    def replayed(self, shared: Library) -> None:
        """Use the server's functions from now on."""
        self._functions.clear()
        self.outer = shared

    def take(self) -> list[Mapping[str, Any]]:
        """The definitions that were noted since the last call."""
        new, self._new = self._new, []
        return new

    def forget(self) -> None:
        """Note every function again, because a new journal begins."""
        self._noted.clear()


def _strings(value: Any) -> Iterator[str]:
    """The strings in plain data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)
