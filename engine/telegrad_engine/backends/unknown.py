"""What a program meets in place of values while it is traced, and what it comes to where it cannot do without them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

NEEDED = "it depends on values"


class Untraceable(Exception):
    """What a program does can only be done one instruction at a time; the text says why."""


class Number:
    """A number computed from a tensor of one element; arrays meet it as a Python float, in their own dtype."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def _combined(self, combine: Callable[[Any, Any], Any], other: Any, reflected: bool) -> Any:
        if isinstance(other, (Number, int, float)):
            value = other.value if isinstance(other, Number) else other
            return Number(combine(value, self.value) if reflected else combine(self.value, value))
        own = self.value.astype(other.dtype)
        return combine(other, own) if reflected else combine(own, other)

    def __gt__(self, other: float) -> Any:
        return self.value > other


def _arithmetic(name: str) -> None:
    combine = getattr(operator, name)
    setattr(Number, f"__{name}__", lambda self, other: self._combined(combine, other, False))
    setattr(Number, f"__r{name}__", lambda self, other: self._combined(combine, other, True))


for _name in ("add", "sub", "mul", "truediv", "pow"):
    _arithmetic(_name)
