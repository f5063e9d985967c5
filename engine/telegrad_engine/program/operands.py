"""Operands: what may differ each time a program runs, and is not part of its template.

They are numbers that affect no shape, and the ids of what is no tensor, such as a hook: strings.

In a template ``{"operand": 3}`` stands for the fourth operand, and ``{"operand": 3, "plus": 64}`` for that operand
plus 64: the stop of a slice, whose length is part of the template.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import MalformedRequest

BOUNDS: dict[type, tuple[float, float]] = {
    int: (-(2**63), 2**64 - 1),
    float: (-sys.float_info.max, sys.float_info.max),
}
"""The smallest and the largest operand of each type: numbers outside are read as strings, or as floats."""


class OperandRef(NamedTuple):
    """A reference to an operand, which stands where the operand is inserted."""

    operand: int
    plus: int

    def value(self, operands: Sequence[Any]) -> Any:
        """Return the number to insert. Raises MalformedRequest if there are too few operands."""
        try:
            number = operands[self.operand]
        except IndexError:
            raise MalformedRequest(
                f"the program takes operand {self.operand}, but {len(operands)} were given"
            ) from None
        return number + self.plus if self.plus else number


class Operands:
    """Collects the operands of an instruction that is being written as part of a template.

    ``first`` is the number of operands of the instructions before it.
    """

    def __init__(self, first: int = 0) -> None:
        self.values: list[Any] = []
        self._first = first

    def take(self, value: Any) -> Any:
        """Add a number or an id and return its reference as JSON data; for NaN and infinities return their string."""
        if type(value) is not str and not math.isfinite(value):
            return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        self.values.append(value)
        return {"operand": self._first + len(self.values) - 1}


def read_refs(data: Any) -> Any:
    """Return JSON data with references in place of its operands. Raises MalformedRequest for a malformed operand."""
    if isinstance(data, list):
        return [read_refs(item) for item in data]
    if not isinstance(data, dict):
        return data
    if "operand" not in data:
        return {key: read_refs(item) for key, item in data.items()}
    number, plus = data["operand"], data.get("plus", 0)
    if not data.keys() <= {"operand", "plus"} or type(number) is not int or number < 0 or type(plus) is not int:
        raise MalformedRequest(f"an operand is {{operand: number, plus?: number}}, not {data!r:.80}")
    return OperandRef(number, plus)


def refs_in(data: Any) -> list[OperandRef]:
    """Return the references in nested lists, tuples and dicts."""
    kind = type(data)
    if kind is OperandRef:
        return [data]
    items = data.values() if kind is dict else data if kind is list or kind is tuple else ()
    return [ref for item in items if type(item) is not str for ref in refs_in(item)]


def fill(data: Any, operands: Sequence[Any]) -> Any:
    """Return a copy of nested lists, tuples and dicts with operands in place of references."""
    kind = type(data)
    if kind is OperandRef:
        return data.value(operands)
    if kind is dict:
        return {key: fill(item, operands) for key, item in data.items()}
    return kind([fill(item, operands) for item in data]) if kind is list or kind is tuple else data
