"""Ops about complex numbers, of real ones: conjugates, which are the tensors themselves, and angles."""

from __future__ import annotations

import math
from typing import Any

from ..errors import ShapeMismatch
from ..schema.cases import T, case, unary
from ..schema.op import composite, elementwise
from ..schema.parameters import Array

SELF = [case(T(2, 3)), case(T()), case(T(0, 2))]


@composite(may_alias=True, cases=SELF)
def conj(F: Any, input: Array) -> Any:
    """The conjugate: the tensor itself."""
    return input


@composite(may_alias=True, cases=SELF)
def resolve_conj(F: Any, input: Array) -> Any:
    """The tensor itself, whose conjugate bit is never set."""
    return input


@composite(may_alias=True, cases=SELF)
def resolve_neg(F: Any, input: Array) -> Any:
    """The tensor itself, whose negative bit is never set."""
    return input


@composite(may_alias=True, cases=SELF, inplace=True)
def conj_physical(F: Any, input: Array) -> Any:
    """The conjugate: the tensor itself."""
    return input


@composite(may_alias=True, cases=[case(T(2, 3)), case(T(2, 3, 4)), case(T(0, 2)), case(T(3))])
def adjoint(F: Any, input: Array) -> Any:
    """The conjugate transpose of matrices: the transpose."""
    ndim = len(input.shape)
    if ndim == 1:
        raise ShapeMismatch(
            f"tensor.adjoint() is only supported on matrices or batches of matrices. Got {ndim}-D tensor."
        )
    return F.transpose(input, -2, -1) if ndim else input


@elementwise(out="bool", cases=[*unary(), case(T(3, values=[math.nan, math.inf, 1.0]))])
def isreal(xp: Any, input: Array) -> Any:
    """Whether the imaginary part is 0: always."""
    return xp.ones(input.shape, bool)


@elementwise(
    floats=True,
    inplace=False,
    cases=[*unary(), case(T(5, values=[1.0, -1.0, 0.0, -0.0, math.nan])), case(T(2, dtype="bool"))],
)
def angle(xp: Any, input: Array) -> Any:
    """The angle from the positive axis: pi for negative numbers, else 0."""
    return xp.where(
        xp.isnan(input), input, xp.where(input < 0, xp.asarray(math.pi, input.dtype), xp.asarray(0, input.dtype))
    )


angle.derivative(input=lambda F, grad: grad * 0)
