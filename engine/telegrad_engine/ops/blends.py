"""Blending and bounding: several tensors, element by element, into one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..dtypes import FLOATING, element, from_numpy
from ..errors import DTypeMismatch, InvalidOperation, NotImplementedForDType
from ..schema.op import common_dtype, elementwise
from ..schema.parameters import Array, Number, Operand
from .elementary import rounded_bound
from .guards import no_bools
from .naming import by_operand

# Bounds --------------------------------------------------------------------------------------------------


def _no_bool_bound(kernel: str) -> Callable[..., None]:
    refuse = no_bools(kernel)
    return lambda input, bound: None if hasattr(bound, "dtype") else refuse(input, bound)


@elementwise(node=by_operand("ClampMin", tensor=1, number=0), guard=_no_bool_bound("clamp_min_scalar_cpu"))
def clamp_min(xp: Any, input: Array, min: Operand) -> Any:
    """``input``, or ``min`` where that is larger; ties go to ``input``."""
    return xp.maximum(input, min)


@elementwise(node=by_operand("ClampMax", tensor=1, number=0), guard=_no_bool_bound("clamp_max_scalar_cpu"))
def clamp_max(xp: Any, input: Array, max: Operand) -> Any:
    """``input``, or ``max`` where that is smaller; ties go to ``input``."""
    return xp.minimum(input, max)


clamp_min.derivative(
    input=lambda F, grad, input, min: F.where(input >= rounded_bound(F, input, min), grad, 0.0),
    min=lambda F, grad, input, min: F.where(input < min, grad, 0.0),
)
clamp_max.derivative(
    input=lambda F, grad, input, max: F.where(input <= rounded_bound(F, input, max), grad, 0.0),
    max=lambda F, grad, input, max: F.where(input > max, grad, 0.0),
)


@elementwise(inplace=False)
def fmax(xp: Any, input: Array, other: Array) -> Any:
    """The larger of two, or the one that is not NaN; where they are equal ``input`` gets all the gradient."""
    return xp.fmax(input, other)


@elementwise(inplace=False)
def fmin(xp: Any, input: Array, other: Array) -> Any:
    """The smaller of two, or the one that is not NaN; where they are equal ``input`` gets all the gradient."""
    return xp.fmin(input, other)


fmax.derivative(
    input=lambda F, grad, input, other: F.where(F.logical_or(input >= other, F.isnan(other)), grad, 0.0),
    other=lambda F, grad, input, other: F.where(F.logical_or(input >= other, F.isnan(other)), 0.0, grad),
)
fmin.derivative(
    input=lambda F, grad, input, other: F.where(F.logical_or(input <= other, F.isnan(other)), grad, 0.0),
    other=lambda F, grad, input, other: F.where(F.logical_or(input <= other, F.isnan(other)), 0.0, grad),
)

# Blends --------------------------------------------------------------------------------------------------

C_NAMES = {
    "bool": "bool",
    "uint8": "unsigned char",
    "int8": "signed char",
    "int16": "short int",
    "int32": "int",
    "int64": "long int",
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
    "float32": "float",
    "float64": "double",
}
"""Dtypes as torch's text for lerp names them."""


def _check_lerp(input: Any, end: Any, weight: Any) -> None:
    own = from_numpy(input.dtype)
    weighted = hasattr(weight, "dtype")
    # A weight without dimensions is like a number, and may have any dtype.
    for name, other in (("end", end), ("weight", weight)) if weighted and weight.shape else (("end", end),):
        found = from_numpy(other.dtype)
        if found is not own:
            raise DTypeMismatch(f"expected dtype {C_NAMES[own.name]} for `{name}` but got dtype {C_NAMES[found.name]}")
    dtype = common_dtype((input, end, weight)) if weighted else input.dtype
    if dtype not in FLOATING:
        kernel = "lerp_kernel_tensor" if weighted else "lerp_kernel_scalar"
        raise NotImplementedForDType(f"\"{kernel}\" not implemented for '{from_numpy(dtype).kernel_name}'")


@elementwise(node=by_operand("Lerp", at=2, tensor=1, number=0), guard=_check_lerp, scratch=1.25)
def lerp(xp: Any, input: Array, end: Array, weight: Operand) -> Any:
    """``input + weight * (end - input)``, exact at both ends."""
    span = end - input
    if not hasattr(weight, "dtype"):
        return input + weight * span if weight < 0.5 else end - span * (1 - weight)
    return xp.where(weight < 0.5, input + weight * span, end - span * (1 - weight))


lerp.derivative(
    input=lambda F, grad, weight: grad * (1 - weight),
    end=lambda F, grad, weight: grad * weight,
    weight=lambda F, grad, input, end: grad * (end - input),
)


def _scale(dtype: Any, value: Any) -> Any:
    """A factor as torch takes it: for whole numbers without its fraction."""
    return value if dtype in FLOATING else element(value, dtype)


@elementwise(guard=no_bools("addcmul_cpu_out"))
def addcmul(xp: Any, input: Array, tensor1: Array, tensor2: Array, *, value: Number = 1) -> Any:
    """``input + value * tensor1 * tensor2``."""
    return input + _scale(input.dtype, value) * tensor1 * tensor2


addcmul.derivative(
    input=lambda F, grad: grad,
    tensor1=lambda F, grad, tensor2, value: grad * (tensor2 * value),
    tensor2=lambda F, grad, tensor1, value: grad * (tensor1 * value),
)


def _no_whole_division(input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> None:
    if tensor1.dtype not in FLOATING and tensor2.dtype not in FLOATING:
        raise InvalidOperation(
            "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a "
            "true division of tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input + "
            "value * torch.trunc(tensor1 / tensor2)).to(input.dtype) for integer inputs and as (input + value * "
            "tensor1 / tensor2) for float inputs. The future addcdiv behavior is just the latter implementation: "
            "(input + value * tensor1 / tensor2), for all dtypes."
        )


@elementwise(guard=_no_whole_division)
def addcdiv(xp: Any, input: Array, tensor1: Array, tensor2: Array, *, value: Number = 1) -> Any:
    """``input + value * tensor1 / tensor2``."""
    return input + value * tensor1 / tensor2


addcdiv.derivative(
    input=lambda F, grad: grad,
    tensor1=lambda F, grad, tensor2, value: grad * (value / tensor2),
    tensor2=lambda F, grad, tensor1, tensor2, value: -grad * (value * (tensor1 / (tensor2 * tensor2))),
)
