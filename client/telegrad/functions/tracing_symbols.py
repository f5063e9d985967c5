"""Symbols: stand-ins for numbers during tracing, such as parameters, sizes and expressions of them.

A symbol records operations on it as an expression of the function's definition. When the code asks for a symbol's
truth, the tracer follows both answers; a symbol has a value only if the function is traced on an example.
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
"""The hint of a symbol without a known value."""


def here() -> str:
    """The user's line, as text."""
    return str(users_line())


class Symbol:
    """A number, string or shape that is known only in a call. ``hint`` is its value in the example, if any."""

    is_symbolic = True
    _data = None
    """Keeps an op's parameters from treating the symbol as a plain number, which would be checked and copied, and lets
    it pass as a size in ``view(2, n)``."""

    def __init__(self, tracer: Any, expression: Any, hint: Any = UNKNOWN) -> None:
        self.tracer = tracer
        self.expression = expression
        self.hint = hint

    def __repr__(self) -> str:
        return f"<known in a call: {json.dumps(self.expression)}>"

    def __bool__(self) -> bool:
        return bool(self.tracer.decide(self.expression, self.hint))

    def _value(self) -> Any:
        """The value in the example, which becomes a guard of the trace."""
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
        """Return the number of elements of a shape."""
        if not (isinstance(self.expression, dict) and "shape" in self.expression):
            raise AttributeError("numel")
        hint = UNKNOWN if self.hint is UNKNOWN else math.prod(self.hint)
        return Symbol(self.tracer, {"numel": self.expression["shape"]}, hint)

    def calculate(self, word: str, *operands: Any) -> Symbol:
        """Return the symbol of an operation on symbols and plain values."""
        hints = [o.hint if isinstance(o, Symbol) else o for o in operands]
        known = not any(h is UNKNOWN for h in hints)
        hint = CALCULATIONS[word][1](*hints) if known else UNKNOWN
        return Symbol(self.tracer, {word: [to_json(o) for o in operands]}, hint)


def to_json(value: Any) -> Any:
    """Return an instruction's value in the form that definitions use."""
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
            return NotImplemented  # let the tensor compute it
        return self.calculate(word, *others, self) if swapped else self.calculate(word, self, *others)

    return operate


_PYTHON = {"truediv": "div"}
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(Symbol, f"__{_name}__", _operator(_PYTHON.get(_name, _name), False))
    setattr(Symbol, f"__r{_name}__", _operator(_PYTHON.get(_name, _name), True))
for _name in ("neg", "eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Symbol, f"__{_name}__", _operator(_name, False))
