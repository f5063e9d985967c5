"""The parts of floating numbers: mantissa and exponent, and the next number towards another."""

from __future__ import annotations

from typing import Any

from ..dtypes import FLOATING, bool_, from_numpy, int32, widened
from ..errors import DTypeMismatch, NotImplementedForDType
from ..schema.op import common_dtype, composite, elementwise, op
from ..schema.parameters import Array
from ..shapes import Spec


def _frexp_rule(input: Any) -> list[Spec]:
    if input.dtype not in FLOATING:
        raise DTypeMismatch("torch.frexp() only supports floating-point dtypes")
    return [Spec(input.shape, input.dtype), Spec(input.shape, int32.numpy)]


@op(_frexp_rule, outputs=("mantissa", "exponent"))
def frexp(xp: Any, input: Array) -> Any:
    """Mantissas from 0.5 to 1 and whole exponents with ``mantissa * 2 ** exponent == input``."""
    mantissa, exponent = xp.frexp(widened(input))
    return mantissa.astype(input.dtype), exponent.astype(int32.numpy)


frexp.joint_derivative(lambda F, grads, needs, exponent: (None if grads[0] is None else F.ldexp(grads[0], -exponent),))


@composite(
    inplace=True,
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


@elementwise(guard=_floating, widens=False)
def nextafter(xp: Any, input: Array, other: Array) -> Any:
    """The next number that the dtype has after ``input`` in the direction of ``other``."""
    return xp.nextafter(input, other)


nextafter.derivative(
    input=lambda F, grad, input, other: F.where(input == other, 0.0, grad),
    other=lambda F, grad: F.zeros_like(grad),
)
