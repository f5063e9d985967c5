"""What the sign of each element says, that of a zero and of an infinity included."""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import is_floating
from ..errors import DTypeMismatch, InvalidOperation
from ..schema.cases import T, binary, case, unary
from ..schema.op import elementwise
from ..schema.parameters import Array

SIGNS = [*unary(), case(T(4, values=[0.0, -0.0, math.inf, -math.inf])), case(T(3, dtype="bool"))]


@elementwise(out="bool", cases=SIGNS)
def signbit(xp: Any, input: Array) -> Any:
    """Whether the sign is a minus, which a zero and NaN may have too."""
    return xp.signbit(input) if is_floating(input.dtype) else xp.less(input, 0)


@elementwise(out="bool", cases=SIGNS)
def isposinf(xp: Any, input: Array) -> Any:
    """Whether each element is infinity."""
    return xp.equal(input, math.inf)


@elementwise(out="bool", cases=SIGNS)
def isneginf(xp: Any, input: Array) -> Any:
    """Whether each element is minus infinity."""
    return xp.equal(input, -math.inf)


def _one_dtype(input: Any, values: Any) -> None:
    if input.dtype != values.dtype:
        raise DTypeMismatch("heaviside is not yet implemented for tensors with different dtypes.")


@elementwise(
    guard=_one_dtype,
    cases=[
        *[c for c in binary() if isinstance(c.args[1], T)],
        case(T(4, values=[0.0, -1.0, 2.0, math.nan]), T(4)),
        case(T(3, dtype="float32"), T(3, dtype="float64")),
    ],
)
def heaviside(xp: Any, input: Array, values: Array) -> Any:
    """0 for what is below zero, 1 for what is above, ``values`` in between."""
    above = xp.where(input > 0, xp.ones((), input.dtype), xp.zeros((), input.dtype))
    return xp.where(input == 0, values, above)


def _no_derivative(F: Any, grad: Any) -> Any:
    raise InvalidOperation("derivative for aten::heaviside is not implemented")


heaviside.derivative(input=_no_derivative, values=_no_derivative)
