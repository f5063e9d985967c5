"""Ops about complex numbers, of real ones: conjugates, which are the tensors themselves, and angles."""

from __future__ import annotations

import math
from typing import Any

from ..errors import ShapeMismatch
from ..schema.op import composite, elementwise
from ..schema.parameters import Array


@composite(may_alias=True)
def conj(F: Any, input: Array) -> Any:
    """The conjugate: the tensor itself."""
    return input


@composite(may_alias=True)
def resolve_conj(F: Any, input: Array) -> Any:
    """The tensor itself, whose conjugate bit is never set."""
    return input


@composite(may_alias=True)
def resolve_neg(F: Any, input: Array) -> Any:
    """The tensor itself, whose negative bit is never set."""
    return input


@composite(may_alias=True, inplace=True)
def conj_physical(F: Any, input: Array) -> Any:
    """The conjugate: the tensor itself."""
    return input


@composite(may_alias=True)
def adjoint(F: Any, input: Array) -> Any:
    """The conjugate transpose of matrices: the transpose."""
    ndim = len(input.shape)
    if ndim == 1:
        raise ShapeMismatch(
            f"tensor.adjoint() is only supported on matrices or batches of matrices. Got {ndim}-D tensor."
        )
    return F.transpose(input, -2, -1) if ndim else input


@elementwise(out="bool")
def isreal(xp: Any, input: Array) -> Any:
    """Whether the imaginary part is 0: always."""
    return xp.ones(input.shape, bool)


@elementwise(
    floats=True,
    inplace=False,
)
def angle(xp: Any, input: Array) -> Any:
    """The angle from the positive axis: pi for negative numbers, else 0."""
    return xp.where(
        xp.isnan(input), input, xp.where(input < 0, xp.asarray(math.pi, input.dtype), xp.asarray(0, input.dtype))
    )


angle.derivative(input=lambda F, grad: grad * 0)
