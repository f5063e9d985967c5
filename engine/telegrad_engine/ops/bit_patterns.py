"""The parts of floating numbers: mantissa and exponent, and the next number towards another."""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import FLOATING, bool_, from_numpy, int32, widened
from ..errors import DTypeMismatch, NotImplementedForDType
from ..schema.cases import T, case, unary
from ..schema.op import common_dtype, composite, elementwise, op
from ..schema.parameters import Array
from ..shapes import Spec

PARTS = T(6, values=[8.0, 0.3, 0.0, -5.0, math.inf, math.nan])


def _frexp_rule(input: Any) -> list[Spec]:
    if input.dtype not in FLOATING:
        raise DTypeMismatch("torch.frexp() only supports floating-point dtypes")
    return [Spec(input.shape, input.dtype), Spec(input.shape, int32.numpy)]


@op(_frexp_rule, outputs=("mantissa", "exponent"), cases=[*unary(), case(PARTS)])
def frexp(xp: Any, input: Array) -> Any:
    """Mantissas from 0.5 to 1 and whole exponents with ``mantissa * 2 ** exponent == input``."""
    mantissa, exponent = xp.frexp(widened(input))
    return mantissa.astype(input.dtype), exponent.astype(int32.numpy)


frexp.joint_derivative(lambda F, grads, needs, exponent: (None if grads[0] is None else F.ldexp(grads[0], -exponent),))


@composite(
    inplace=True,
    cases=[
        case(T(2, 3), T(3, low=0, high=3, dtype="int64")),
        case(T(2, low=1, high=4, dtype="int64"), T(2, low=0, high=3, dtype="int64")),
        case(T(2), T(2)),
        case(T(0, 2), T(2)),
    ],
)
def ldexp(F: Any, input: Array, other: Array) -> Any:
    """``input * 2 ** other``."""
    if other.dtype is bool_:
        raise NotImplementedForDType("\"ldexp_cpu_exp\" not implemented for 'Bool'")
    factor = F.pow(2.0, other)
    if F.xp is None and input.is_floating_point() and not other.is_floating_point():
        factor = factor.to(dtype=input.dtype)
    return F.mul(input, factor)


def _floating(*inputs: Any) -> None:
    dtype = common_dtype(inputs)
    if dtype not in FLOATING:
        raise NotImplementedForDType(f"\"nextafter_cpu\" not implemented for '{from_numpy(dtype).kernel_name}'")


@elementwise(
    guard=_floating,
    cases=[
        case(T(2, 3), T(3)),
        case(T(3, values=[1.0, 0.0, 3.0]), T(3, values=[2.0, -1.0, 3.0])),
        case(T(2, dtype="int64"), T(2, dtype="int64")),
    ],
    widens=False,
)
def nextafter(xp: Any, input: Array, other: Array) -> Any:
    """The next number that the dtype has after ``input`` in the direction of ``other``."""
    return xp.nextafter(input, other)


nextafter.derivative(
    input=lambda F, grad, input, other: F.where(input == other, 0.0, grad),
    other=lambda F, grad: F.zeros_like(grad),
)
