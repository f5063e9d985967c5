"""Stand-ins for values that are unknown or differ between runs, used while a program is traced.

:class:`TracedNumber` stands for a Python number. Arithmetic on it is recorded, and a comparison records a guard, which
stops a run in which the comparison has a different outcome. Code that needs the number itself (``float``, ``int``, an
index in C) gets it with a guard for equality, so the plan is valid for this number only. :class:`TensorScalar` stands
for the element of a tensor.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

NEEDED = "it depends on values"


class Untraceable(Exception):
    """The program cannot be traced and must run one instruction at a time; the text gives the reason."""


class GuardFailed(Exception):
    """A guard of a plan does not hold."""


class TracedNumber:
    """A Python number on a tape.

    It equals number ``base`` of the tape plus the int ``plus``. ``bounds`` are its smallest and largest
    possible value, if known.
    """

    __slots__ = ("base", "bounds", "number", "plus", "tape", "value")

    def __init__(self, tape: Any, number: int, value: float, bounds: tuple[float, float] | None = None) -> None:
        self.tape, self.number, self.value, self.bounds = tape, number, value, bounds
        self.base, self.plus = number, 0

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # so that isinstance(x, float) is answered for the value
        return type(self.value)

    def __repr__(self) -> str:
        return f"TracedNumber(number={self.number}, value={self.value!r})"

    def __hash__(self) -> int:
        raise Untraceable("a number that may differ is looked up in a table")

    # Arithmetic ----------------------------------------------------------------------------

    def _computed(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.tape.compute(function, args)

    def _known_difference(self, other: Any) -> int | None:
        """The difference from another number, if it is the same in every run."""
        if is_traced(other) and other.base == self.base and type(self.value) is type(other.value) is int:
            return self.plus - int(other.plus)
        return None

    def __add__(self, other: Any) -> Any:
        if type(other) is int and type(self.value) is int:
            return self._shifted(operator.add, other, other)
        return self._computed(operator.add, self, other)

    def __radd__(self, other: Any) -> Any:
        return self + other if type(other) is int else self._computed(operator.add, other, self)

    def __sub__(self, other: Any) -> Any:
        difference = self._known_difference(other)
        if difference is not None:
            return difference
        if type(other) is int and type(self.value) is int:
            return self._shifted(operator.sub, other, -other)
        return self._computed(operator.sub, self, other)

    def _shifted(self, function: Callable[..., Any], other: int, by: int) -> TracedNumber:
        made: TracedNumber = self._computed(function, self, other)
        made.base, made.plus = self.base, self.plus + by
        return made

    # Guards --------------------------------------------------------------------------------

    def _at_hand(self) -> Any:
        """The value in this run, guarded by equality."""
        self.tape.guard(is_same, (self, self.value))
        return self.value

    def __float__(self) -> float:
        return float(self._at_hand())

    def __int__(self) -> int:
        return int(self._at_hand())

    def __index__(self) -> int:
        return operator.index(self._at_hand())

    def __bool__(self) -> bool:
        return bool(self._compared(operator.ne, 0))

    def _compared(self, compare: Callable[[Any, Any], Any], other: Any) -> Any:
        if not _is_number(other):
            return NotImplemented
        if self._known_difference(other) is not None:
            return compare(self.plus, other.plus)
        holds = compare(self.value, value_of(other))
        if not self._is_certain(compare, other):
            self.tape.guard(agrees, (compare, self, other, holds))
        return holds

    def _is_certain(self, compare: Callable[[Any, Any], Any], other: Any) -> bool:
        """Whether the comparison has the same outcome for all possible values."""
        if self.bounds is None or is_traced(other) or compare not in _ORDERING:
            return False
        least, largest = self.bounds
        return bool(compare(least, other) == compare(largest, other))

    # In NumPy --------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs.get("out") is not None:
            raise Untraceable(f"calls {ufunc.__name__}.{method} with a number that may differ")
        return self.tape.record(ufunc, inputs, kwargs)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return np.asarray(self._at_hand(), *args, **kwargs)


_ORDERING = (operator.lt, operator.le, operator.gt, operator.ge)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def is_traced(value: Any) -> bool:
    """Whether a value is a traced number."""
    return type(value) is TracedNumber


def value_of(value: Any) -> Any:
    """The value of a number, traced or not."""
    return value.value if type(value) is TracedNumber else value


def has_traced(value: Any) -> bool:
    """Whether a traced number is in nested tuples, lists and dicts."""
    if isinstance(value, Mapping):
        return any(map(has_traced, value.values()))
    return any(map(has_traced, value)) if type(value) in (tuple, list) else is_traced(value)


def values_within(value: Any) -> Any:
    """Replace traced numbers in nested tuples, lists and dicts by their values, without a guard."""
    if not has_traced(value):
        return value
    if isinstance(value, Mapping):
        return {key: values_within(item) for key, item in value.items()}
    return value_of(value) if is_traced(value) else type(value)([values_within(item) for item in value])


def agrees(compare: Callable[[Any, Any], Any], a: Any, b: Any, expected: bool) -> None:
    """Raise GuardFailed unless a comparison has the expected outcome."""
    if compare(a, b) is not expected:
        raise GuardFailed


def is_same(a: Any, b: Any) -> None:
    """Raise GuardFailed unless two numbers are the same; -0.0 and 0.0 differ."""
    if a != b or (type(a) is float and struct.pack("d", a) != struct.pack("d", b)):
        raise GuardFailed


class TensorScalar:
    """A number computed from a one-element tensor; combined with an array, it is cast to the array's dtype."""

    __array_ufunc__ = None  # arrays defer operators to it

    def __init__(self, value: Any) -> None:
        self.value = value

    def _combined(self, combine: Callable[[Any, Any], Any], other: Any, reflected: bool) -> Any:
        if isinstance(other, (TensorScalar, int, float)):
            value = other.value if isinstance(other, TensorScalar) else other
            return TensorScalar(combine(value, self.value) if reflected else combine(self.value, value))
        own = self.value.astype(other.dtype)
        return combine(other, own) if reflected else combine(own, other)

    def __gt__(self, other: float) -> Any:
        return self.value > other


def _define(cls: Any, names: str, method: Callable[[Any], Any], reflected: Callable[[Any], Any] | None = None) -> None:
    """Define the operators ``names`` of a class, and their reflected forms, from the module ``operator``."""
    for name in names.split():
        setattr(cls, f"__{name}__", method(getattr(operator, name)))
        if reflected is not None:
            setattr(cls, f"__r{name}__", reflected(getattr(operator, name)))


_define(
    TracedNumber,
    "mul truediv floordiv mod pow",
    lambda function: lambda self, other: self._computed(function, self, other),
    lambda function: lambda self, other: self._computed(function, other, self),
)
_define(TracedNumber, "neg pos abs", lambda function: lambda self: self._computed(function, self))
_define(TracedNumber, "lt le gt ge eq ne", lambda compare: lambda self, other: self._compared(compare, other))
TracedNumber.__rsub__ = lambda self, other: self._computed(operator.sub, other, self)  # type: ignore[attr-defined]
_define(
    TensorScalar,
    "add sub mul truediv pow",
    lambda combine: lambda self, other: self._combined(combine, other, False),
    lambda combine: lambda self, other: self._combined(combine, other, True),
)
