"""The traces of one function: usually one for all inputs; where the code took sizes from an example, one for each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from telegrad_engine.errors import NeedsExample
from telegrad_engine.program.registered_functions.expressions import Known, evaluate, parse

from .tracing import Traces, trace
from .tracing_source import in_order

VARIANT = "__"
"""Between a function's name and the number of its trace, from the second on."""


class Variants:
    """A function of the user's and what was traced of it."""

    def __init__(self, name: str, function: Any, scope: str, example: Sequence[Any] | None) -> None:
        self.name = name
        self.scope = scope
        self._function = function
        self._found: list[Traces] = []
        if isinstance(function, Mapping):
            self._found.append(Traces({**function, "name": name}, {}))
            return
        try:
            self._found.append(trace(function, name, None))
        except NeedsExample:
            if example is not None:
                self._trace(example)

    @property
    def first(self) -> Traces | None:
        """The trace that has the function's own name; None as long as it needs an example and nobody gave one."""
        return self._found[0] if self._found else None

    def definition(self, name: str) -> Mapping[str, Any] | None:
        """The definition that has this name."""
        return next((t.definition for t in self._found if t.definition["name"] == name), None)

    def fitting(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Traces:
        """The trace for the arguments of a call; made now, if there is none yet."""
        if self._found and not self._found[0].guards:
            return self._found[0]
        values = in_order(self._function, args, kwargs)
        for found in self._found:
            if _holds(found, values):
                return found
        return self._trace(values)

    def _trace(self, example: Sequence[Any]) -> Traces:
        number = len(self._found)
        found = trace(self._function, f"{self.name}{VARIANT}{number + 1}" if number else self.name, example)
        self._found.append(found)
        return found


def _holds(found: Traces, args: Sequence[Any]) -> bool:
    """Whether the arguments are such as the trace takes for granted."""
    definition = found.definition
    inputs = definition["forward"]["inputs"]
    names = definition.get("order", inputs)
    given = dict(zip(names, args, strict=False))
    tensors = {n: v for n, v in given.items() if n in inputs}
    parameters = {p["name"]: given.get(p["name"], p.get("default")) for p in definition.get("parameters", ())}
    known = Known(tensors, parameters)
    conditions = ({"eq": [json.loads(text), value]} for text, value in found.guards.items())
    return all(evaluate(parse(condition, known), tensors, parameters) for condition in conditions)
