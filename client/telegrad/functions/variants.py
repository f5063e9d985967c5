"""The traces of one function: usually one for all inputs, or one per input shape if the code reads sizes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from telegrad_engine.errors import NeedsExample
from telegrad_engine.program.registered_functions.expressions import evaluate, parse

from .tracing import Trace, in_order, trace

VARIANT = "__"
"""The separator between a function's name and the number of a trace after the first."""


class Variants:
    """A user's function and its traces."""

    def __init__(self, name: str, function: Any, scope: str, example: Sequence[Any] | None) -> None:
        self.name = name
        self.scope = scope
        self._function = function
        self._found: list[Trace] = []
        if isinstance(function, Mapping):
            self._found.append(Trace({**function, "name": name}, {}))
            return
        try:
            self._found.append(trace(function, name, None))
        except NeedsExample:
            if example is not None:
                self._trace(example)

    @property
    def first(self) -> Trace | None:
        """The trace under the function's own name, or None while the required example is missing."""
        return self._found[0] if self._found else None

    def definition(self, name: str) -> Mapping[str, Any] | None:
        """Return the definition with this name, or None."""
        return next((t.definition for t in self._found if t.definition["name"] == name), None)

    def fitting(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Trace:
        """Return the trace that fits a call's arguments, after tracing one if none does."""
        if self._found and not self._found[0].guards:
            return self._found[0]
        values = in_order(self._function, args, kwargs)
        for found in self._found:
            if _holds(found, values):
                return found
        return self._trace(values)

    def _trace(self, example: Sequence[Any]) -> Trace:
        number = len(self._found)
        found = trace(self._function, f"{self.name}{VARIANT}{number + 1}" if number else self.name, example)
        self._found.append(found)
        return found


def _holds(found: Trace, args: Sequence[Any]) -> bool:
    """Whether the arguments satisfy the trace's guards."""
    definition = found.definition
    inputs = definition["forward"]["inputs"]
    names = definition.get("order", inputs)
    given = dict(zip(names, args, strict=False))
    tensors = {n: v for n, v in given.items() if n in inputs}
    parameters = {p["name"]: given.get(p["name"], p.get("default")) for p in definition.get("attrs", ())}
    conditions = ({"eq": [json.loads(text), value]} for text, value in found.guards.items())
    return all(evaluate(parse(condition, tensors, parameters), tensors, parameters) for condition in conditions)
