"""Symbols: stand-ins for numbers while a function is traced, such as parameters, sizes, and expressions of them.

A symbol records what is done with it as an expression of the function's definition. Asked for its truth, the
tracer follows both answers; asked for its value, it has one only where the function is traced on an example.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

from telegrad_engine.dtypes import DType
from telegrad_engine.errors import InvalidOperation, NeedsExample
from telegrad_engine.program.registered_functions.expressions import CALCULATIONS

from ..call_site import users_line

UNKNOWN: Any = object()
"""The hint of a symbol that has no value yet."""


def here() -> str:
    """The user's line."""
    return str(users_line())


class Symbol:
    """A number, a word or a shape that is known only in a call. ``hint`` is its value in the example, if any."""

    is_symbolic = True
    _data = None
    """Has an op's parameters take it for no plain number, which would be checked and copied."""

    def __init__(self, tracer: Any, expression: Any, hint: Any = UNKNOWN) -> None:
        self.tracer = tracer
        self.expression = expression
        self.hint = hint

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Passes for an int where ``view(2, n)`` asks whether all are."""
        return int

    def __repr__(self) -> str:
        return f"<known in a call: {json.dumps(self.expression)}>"

    def __bool__(self) -> bool:
        return bool(self.tracer.decide(self.expression, self.hint))

    def _value(self) -> Any:
        """The value in the example, on which what is traced depends from now on."""
        if self.hint is UNKNOWN:
            raise NeedsExample(
                f"{here()}: the value of {json.dumps(self.expression)} is asked for, and is known only in a call. "
                "Give an example of the inputs: register_function(name, example=(…,))"
            )
        self.tracer.guards[json.dumps(self.expression)] = self.hint
        return self.hint

    def __index__(self) -> int:
        return int(self._value())

    __int__ = __index__

    def __float__(self) -> float:
        return float(self._value())

    def __hash__(self) -> int:
        raise InvalidOperation(f"{here()}: {self!r} cannot be a key while a function is traced")

    def __len__(self) -> int:
        return len(self._value())

    def __iter__(self) -> Iterator[Any]:
        for index in range(len(self)):
            yield self[index]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple([self[i] for i in range(*index.indices(len(self)))])
        if not isinstance(index, int):
            raise InvalidOperation(f"{here()}: {self!r} can be indexed by a number only")
        return self.calculate("item", self, index)

    def numel(self) -> Symbol:
        """The number of elements of a shape."""
        if not (isinstance(self.expression, dict) and "shape" in self.expression):
            raise AttributeError("numel")
        hint = UNKNOWN if self.hint is UNKNOWN else math.prod(self.hint)
        return Symbol(self.tracer, {"numel": self.expression["shape"]}, hint)

    def calculate(self, word: str, *operands: Any) -> Symbol:
        """What an operation makes of symbols and plain values."""
        hints = [o.hint if isinstance(o, Symbol) else o for o in operands]
        known = not any(h is UNKNOWN for h in hints)
        hint = CALCULATIONS[word][1](*hints) if known else UNKNOWN
        return Symbol(self.tracer, {word: [to_json(o) for o in operands]}, hint)


def to_json(value: Any) -> Any:
    """A value of an instruction as its definition has it."""
    if isinstance(value, Symbol):
        return value.expression
    if isinstance(value, DType):
        return value.name
    if isinstance(value, (list, tuple)):
        return [to_json(v) for v in value]
    if value != value:
        return "NaN"
    return {float("inf"): "Infinity", float("-inf"): "-Infinity"}.get(value, value) if type(value) is float else value


def _operator(word: str, swapped: bool) -> Callable[..., Any]:
    def operate(self: Symbol, *others: Any) -> Any:
        if any(hasattr(o, "_data") and not isinstance(o, Symbol) for o in others):
            return NotImplemented  # a tensor's to compute
        return self.calculate(word, *others, self) if swapped else self.calculate(word, self, *others)

    return operate


_PYTHON = {"truediv": "div"}
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(Symbol, f"__{_name}__", _operator(_PYTHON.get(_name, _name), False))
    setattr(Symbol, f"__r{_name}__", _operator(_PYTHON.get(_name, _name), True))
for _name in ("neg", "eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Symbol, f"__{_name}__", _operator(_name, False))
