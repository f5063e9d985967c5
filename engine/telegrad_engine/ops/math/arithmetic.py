"""Elementwise arithmetic (sums to powers, integer ops, interpolation, clamping), comparisons, logic and ``where``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...dtypes import FLOATING, LOW, bool_, element, float32, float64, from_numpy, is_floating, widened
from ...errors import DTypeMismatch, InvalidOperation
from ...schema.declaration import FUNCTION, INPLACE, INPLACE_ARITHMETIC, MAY_ALIAS, METHOD, scratch
from ...schema.op import composite, elementwise
from ...schema.parameters import Array, NoneOnly, Number, Operand, Str
from ...schema.promotion import (
    FLOAT32_ON_CUDA,
    FLOATS,
    PROMOTE_ON_CUDA,
    TO_BOOL,
    UNWIDENED,
    WHOLE,
    Promotion,
    common_dtype,
)
from ..guards import divisible, is_whole, kernel_name, no_bools, no_kernel, refuse_zero
from .declarations import binary, by_operand, by_operands, division, not_implemented_derivative, unary, zero_gradient
from .elementary import rounded_bound


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or getattr(value, "dtype", None) == bool_.numpy


# Kernels that do not widen round a number combined with a float16 or bfloat16 tensor to its dtype, as torch does.


def _scaled(xp: Any, other: Any, alpha: float) -> Any:
    """``other * alpha``."""
    if getattr(other, "dtype", None) not in LOW:
        return other * (element(alpha, other.dtype) if hasattr(other, "dtype") else alpha)
    return widened(other) * widened(xp.asarray(alpha, other.dtype))


def _check_alpha(input: Any, other: Any, alpha: Any) -> None:
    if alpha.__class__ is int:
        if alpha != 1:
            element(alpha, common_dtype((input, other)))
        return
    dtype = common_dtype((input, other))
    if isinstance(alpha, bool) and dtype != bool_.numpy:
        raise InvalidOperation("Boolean alpha only supported for Boolean results.")
    if isinstance(alpha, float) and dtype not in FLOATING:
        raise InvalidOperation("For integral input tensors, argument alpha must not be a floating point number.")


BOOL_SUBTRACTED = (
    "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use "
    "the `~` or `logical_not()` operator instead."
)


def _check_difference(input: Any, other: Any, alpha: Any) -> None:
    if _is_bool(input) and _is_bool(other):
        raise DTypeMismatch(
            "Subtraction, the `-` operator, with two bool tensors is not supported. "
            "Use the `^` or `logical_xor()` operator instead."
        )
    if _is_bool(input) or _is_bool(other):
        raise DTypeMismatch(BOOL_SUBTRACTED)
    _check_alpha(input, other, alpha)


@elementwise(guard=_check_alpha, promotion=UNWIDENED, calls="add")
def add(xp: Any, input: Operand, other: Operand, *, alpha: Number = 1) -> Any:
    """``input + alpha * other``."""
    return xp.add(input, other if alpha == 1 else _scaled(xp, other, alpha))


add.derivative(
    input=lambda F, grad: grad,
    other=lambda F, grad, alpha: grad if alpha == 1 else grad * alpha,
)


@elementwise(
    aliases=("subtract",), guard=_check_difference, promotion=UNWIDENED, calls="subtract", batching=INPLACE_ARITHMETIC
)
def sub(xp: Any, input: Operand, other: Operand, *, alpha: Number = 1) -> Any:
    """``input - alpha * other``."""
    return xp.subtract(input, other if alpha == 1 else _scaled(xp, other, alpha))


sub.derivative(
    input=lambda F, grad: grad,
    other=lambda F, grad, alpha: -grad if alpha == 1 else grad * -alpha,
)


@composite(variants=FUNCTION)
def rsub(F: Any, input: Array, other: Operand, *, alpha: Number = 1) -> Any:
    """``other - alpha * input``."""
    return F.sub(other, input, alpha=alpha)


binary(
    "mul",
    "``input * other``.",
    calls="multiply",
    operands=(Operand, Operand),
    aliases=("multiply",),
    batching=INPLACE_ARITHMETIC,
).derivative(
    input=lambda F, grad, other: grad * other,
    other=lambda F, grad, input: grad * input,
)


@elementwise(aliases=("divide", "true_divide"), promotion=FLOATS, calls="true_divide", batching=INPLACE_ARITHMETIC)
def div(xp: Any, input: Operand, other: Operand, *, rounding_mode: NoneOnly = None) -> Any:
    """``input / other``; integers divide to the default floating dtype."""
    return xp.true_divide(input, other)


div.derivative(
    input=lambda F, grad, other: grad / other,
    other=lambda F, grad, input, other: -grad * (input / other) / other,
)


def _divide_down(xp: Any, input: Any, other: Any) -> Any:
    refuse_zero(xp, input, other)
    return xp.floor_divide(input, other)


def _check_rounding(input: Any, other: Any, rounding_mode: str) -> None:
    if rounding_mode not in ("floor", "trunc"):
        raise InvalidOperation(
            f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'"
        )


@division(key="div.mode", aliases=("divide",), guard=_check_rounding, node="DivBackward2")
def div_mode(xp: Any, input: Operand, other: Operand, *, rounding_mode: Str) -> Any:
    """``input / other`` rounded: "floor" down, "trunc" towards zero."""
    if rounding_mode == "floor":
        return _divide_down(xp, input, other)
    if is_whole(input) and is_whole(other):
        # A division in floats would round large integers.
        down = _divide_down(xp, input, other)
        return down + xp.logical_and(down * other != input, (input < 0) != (other < 0))
    return xp.trunc(xp.true_divide(input, other))


div_mode.derivative(input=zero_gradient, other=zero_gradient)


@division(guard=divisible("div_floor_cpu"), node="torch::autograd::NotImplemented")
def floor_divide(xp: Any, input: Operand, other: Operand) -> Any:
    """``input / other`` rounded down."""
    return _divide_down(xp, input, other)


_no_derivative = not_implemented_derivative("floor_divide")
floor_divide.derivative(input=_no_derivative, other=_no_derivative)


@division(guard=divisible("remainder_cpu"), node=by_operand("Remainder", tensor=1, number=0), promotion=UNWIDENED)
def remainder(xp: Any, input: Operand, other: Operand) -> Any:
    """The remainder of ``input / other``, with the sign of ``other``, as Python's ``%``."""
    refuse_zero(xp, input, other)
    return xp.remainder(input, other)


remainder.derivative(
    input=lambda F, grad: grad,
    other=lambda F, grad, input, other: -grad * F.div_mode(input, other, rounding_mode="floor"),
)


def _no_bool_negation(input: Any) -> None:
    if input.dtype == bool_.numpy:
        raise DTypeMismatch(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, "
            "use the `~` or `logical_not()` operator instead."
        )


unary("neg", "``-input``.", calls="negative", aliases=("negative",), guard=_no_bool_negation).derivative(
    input=lambda F, grad: -grad
)


@composite(memory=MAY_ALIAS)
def positive(F: Any, input: Array) -> Any:
    """``input`` itself."""
    if input.dtype is bool_:
        raise InvalidOperation("The `+` operator, on a bool tensor is not supported.")
    return input


unary(
    "abs",
    "The absolute value; its slope at 0 is 0.",
    calls="absolute",
    aliases=("absolute",),
    guard=no_bools("abs_cpu"),
).derivative(input=lambda F, grad, input: grad * F.sign(input))


@elementwise()
def sign(xp: Any, input: Array) -> Any:
    """-1, 0 or 1; 0 for what is not a number."""
    if input.dtype == bool_.numpy:
        return xp.array(input)
    return xp.where(input != input, 0, xp.sign(input)).astype(input.dtype)


sign.derivative(input=zero_gradient)


def _check_powers(input: Any, exponent: Any) -> None:
    if not hasattr(exponent, "dtype") and exponent < 0 and common_dtype((input, exponent)) not in FLOATING:
        raise InvalidOperation("Integers to negative integer powers are not allowed.")
    if hasattr(exponent, "dtype"):
        no_bools("pow")(input, exponent)


def _whole_power(xp: Any, input: Any, exponent: Any) -> Any:
    """Integers to integer powers; a negative exponent gives 0 unless the base is 1 or -1."""
    exponent = xp.asarray(exponent)
    negative = exponent < 0
    base = xp.where(xp.logical_and(negative, xp.absolute(input) != 1), 0, input)
    # A negative exponent becomes 1 or 2 with the same parity, which is enough for the bases 0, 1 and -1.
    return xp.power(base, xp.where(negative, 2 - exponent % 2, exponent))


@elementwise(
    guard=_check_powers, node=by_operands("Pow", tensors=1, number_first=2, number_second=0), autocast=FLOAT32_ON_CUDA
)
def pow_(xp: Any, input: Operand, exponent: Operand) -> Any:
    """``input`` to the power ``exponent``."""
    if isinstance(exponent, (int, float)) and exponent == 2:
        return xp.multiply(input, input)
    if is_whole(input) and is_whole(exponent):
        return _whole_power(xp, input, exponent)
    return xp.power(input, exponent)


def _pow_wrt_input(F: Any, grad: Any, input: Any, exponent: Any) -> Any:
    if isinstance(exponent, (int, float)):
        if exponent == 0:
            return F.zeros_like(grad)
        return grad * (exponent * (input if exponent == 2 else input ** (exponent - 1)))
    return F.where(exponent == 0.0, 0.0, grad * (exponent * F.pow(input, exponent - 1)))


def _pow_wrt_exponent(F: Any, grad: Any, input: Any, exponent: Any, result: Any) -> Any:
    if isinstance(input, (int, float)):
        slope = result * (math.log(input) if input > 0 else math.nan if input else -math.inf)
        return grad * (F.where(exponent >= 0, 0.0, slope) if input == 0 else slope)
    return grad * F.where(F.logical_and(input == 0, exponent >= 0), 0.0, result * F.log(input))


pow_.derivative(input=_pow_wrt_input, exponent=_pow_wrt_exponent)


@composite()
def float_power(F: Any, input: Operand, exponent: Operand) -> Any:
    """``input`` to the power ``exponent``, in float64."""
    base, exponent = (x.to(dtype=float64) if hasattr(x, "_data") else float(x) for x in (input, exponent))
    return F.pow(base, exponent)


# Integer ops: bit shifts, and common divisors and multiples ----------------------------------------------


def _whole_numbers(kernel: str) -> Callable[..., None]:
    """A guard that raises unless an op computes in integers; bools are not integers here."""

    def guard(*inputs: Any) -> None:
        dtype = common_dtype(inputs)
        if dtype in FLOATING or dtype == bool_.numpy:
            raise no_kernel(f"{kernel}_cpu", dtype)

    return guard


def _shift(xp: Any, shift: Any, input: Any, other: Any, rest: Any) -> Any:
    """``shift(input, other)`` where ``other`` is a valid number of bits, else ``rest(input)``."""
    dtype = common_dtype((input, other))
    input, other = xp.asarray(input, dtype), xp.asarray(other, dtype)
    width = dtype.itemsize * 8
    inside = (other >= 0) & (other < width)
    return xp.where(inside, shift(input, xp.where(inside, other, 0)), rest(input)).astype(dtype)


@elementwise(guard=_whole_numbers("lshift"), promotion=WHOLE)
def bitwise_left_shift(xp: Any, input: Operand, other: Operand) -> Any:
    """The bits of ``input`` moved up by ``other`` places; 0 if that is no number of places that there are."""
    return _shift(xp, xp.left_shift, input, other, xp.zeros_like)


@elementwise(guard=_whole_numbers("rshift"), promotion=WHOLE)
def bitwise_right_shift(xp: Any, input: Operand, other: Operand) -> Any:
    """The bits of ``input`` moved down by ``other`` places; the sign alone if that is no number of places."""
    return _shift(xp, xp.right_shift, input, other, lambda x: xp.where(x < 0, -1, 0))


for _name, _doc in (
    ("gcd", "The greatest common divisor, which is not negative."),
    ("lcm", "The least common multiple, which is not negative."),
):
    binary(_name, _doc, guard=_whole_numbers(_name), promotion=WHOLE)


# Bounds: clamp_min, clamp_max, fmax and fmin -------------------------------------------------------------


def _no_bool_bound(kernel: str) -> Callable[..., None]:
    refuse = no_bools(kernel)
    return lambda input, bound: None if hasattr(bound, "dtype") else refuse(input, bound)


@elementwise(
    guard=_no_bool_bound("clamp_min_scalar_cpu"), node=by_operand("ClampMin", tensor=1, number=0), calls="maximum"
)
def clamp_min(xp: Any, input: Array, min: Operand) -> Any:
    """``input``, or ``min`` where that is larger; ties go to ``input``."""
    return xp.maximum(input, min)


@elementwise(
    guard=_no_bool_bound("clamp_max_scalar_cpu"), node=by_operand("ClampMax", tensor=1, number=0), calls="minimum"
)
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


binary(
    "fmax",
    "The larger of two, or the one that is not NaN; where they are equal ``input`` gets all the gradient.",
    variants=FUNCTION | METHOD,
).derivative(
    input=lambda F, grad, input, other: F.where(F.logical_or(input >= other, F.isnan(other)), grad, 0.0),
    other=lambda F, grad, input, other: F.where(F.logical_or(input >= other, F.isnan(other)), 0.0, grad),
)
binary(
    "fmin",
    "The smaller of two, or the one that is not NaN; where they are equal ``input`` gets all the gradient.",
    variants=FUNCTION | METHOD,
).derivative(
    input=lambda F, grad, input, other: F.where(F.logical_or(input <= other, F.isnan(other)), grad, 0.0),
    other=lambda F, grad, input, other: F.where(F.logical_or(input <= other, F.isnan(other)), 0.0, grad),
)

# Interpolation and fused operations ----------------------------------------------------------------------


def _check_lerp(input: Any, end: Any, weight: Any) -> None:
    weighted = hasattr(weight, "dtype")
    # A 0-dim weight is treated like a number and may have any dtype.
    for name, other in (("end", end), ("weight", weight)) if weighted and weight.shape else (("end", end),):
        if other.dtype != input.dtype:
            own, found = from_numpy(input.dtype), from_numpy(other.dtype)
            raise DTypeMismatch(f"expected dtype {own.c_name} for `{name}` but got dtype {found.c_name}")
    dtype = common_dtype((input, end, weight)) if weighted else input.dtype
    if dtype not in FLOATING:
        raise no_kernel("lerp_kernel_tensor" if weighted else "lerp_kernel_scalar", dtype)


@elementwise(guard=_check_lerp, node=by_operand("Lerp", at=2, tensor=1, number=0), memory=scratch(1.25))
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


@elementwise(guard=no_bools("addcmul_cpu_out"), autocast=PROMOTE_ON_CUDA)
def addcmul(xp: Any, input: Array, tensor1: Array, tensor2: Array, *, value: Number = 1) -> Any:
    """``input + value * tensor1 * tensor2``."""
    return input + element(value, input.dtype) * tensor1 * tensor2


addcmul.derivative(
    input=lambda F, grad: grad,
    tensor1=lambda F, grad, tensor2, value: grad * (tensor2 * value),
    tensor2=lambda F, grad, tensor1, value: grad * (tensor1 * value),
)


def _no_whole_division(input: Any, tensor1: Any, tensor2: Any) -> None:
    if tensor1.dtype not in FLOATING and tensor2.dtype not in FLOATING:
        raise InvalidOperation(
            "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a "
            "true division of tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input + "
            "value * torch.trunc(tensor1 / tensor2)).to(input.dtype) for integer inputs and as (input + value * "
            "tensor1 / tensor2) for float inputs. The future addcdiv behavior is just the latter implementation: "
            "(input + value * tensor1 / tensor2), for all dtypes."
        )


@elementwise(guard=_no_whole_division, autocast=PROMOTE_ON_CUDA)
def addcdiv(xp: Any, input: Array, tensor1: Array, tensor2: Array, *, value: Number = 1) -> Any:
    """``input + value * tensor1 / tensor2``."""
    return input + value * tensor1 / tensor2


addcdiv.derivative(
    input=lambda F, grad: grad,
    tensor1=lambda F, grad, tensor2, value: grad * (value / tensor2),
    tensor2=lambda F, grad, tensor1, tensor2, value: -grad * (value * (tensor1 / (tensor2 * tensor2))),
)


# Comparisons, logic and bits -----------------------------------------------------------------------------


for _name, _calls, _aliases, _doc in (
    ("eq", "equal", (), "Whether equal."),
    ("ne", "not_equal", ("not_equal",), "Whether different."),
    ("lt", "less", ("less",), "Whether less."),
    ("le", "less_equal", ("less_equal",), "Whether less or equal."),
    ("gt", "greater", ("greater",), "Whether greater."),
    ("ge", "greater_equal", ("greater_equal",), "Whether greater or equal."),
):
    # Out of place, the result is bool and nothing is recorded; in place, the result has the tensor's own dtype.
    binary(
        _name,
        _doc,
        calls=_calls,
        operands=(Array, Operand),
        aliases=_aliases,
        variants=FUNCTION | METHOD | INPLACE,
        promotion=TO_BOOL,
    ).derivative(input=zero_gradient, other=zero_gradient)

binary(
    "logical_and",
    "Whether both are non-zero.",
    variants=FUNCTION | METHOD | INPLACE,
    promotion=TO_BOOL,
    batching=INPLACE_ARITHMETIC,
)
binary(
    "logical_or",
    "Whether either is non-zero.",
    variants=FUNCTION | METHOD | INPLACE,
    promotion=TO_BOOL,
    batching=INPLACE_ARITHMETIC,
)
binary(
    "logical_xor",
    "Whether exactly one is non-zero.",
    variants=FUNCTION | METHOD | INPLACE,
    promotion=TO_BOOL,
    batching=INPLACE_ARITHMETIC,
)
unary("logical_not", "Whether zero.", variants=FUNCTION | METHOD | INPLACE, promotion=TO_BOOL)


def _whole_numbers_or_bools(kernel: str) -> Any:
    def guard(*inputs: Any) -> None:
        for x in inputs:
            if isinstance(x, float) or (hasattr(x, "dtype") and is_floating(x.dtype)):
                raise no_kernel(kernel, getattr(x, "dtype", float32.numpy))

    return guard


for _name, _doc in (
    ("bitwise_and", "And, bit by bit; of bools, logical."),
    ("bitwise_or", "Or, bit by bit; of bools, logical."),
    ("bitwise_xor", "Exclusive or, bit by bit; of bools, logical."),
):
    _guard = _whole_numbers_or_bools(f"{_name}_cpu")
    binary(_name, _doc, operands=(Operand, Operand), guard=_guard, promotion=WHOLE)

unary(
    "bitwise_not",
    "Every bit flipped; of bools, not.",
    calls="invert",
    guard=_whole_numbers_or_bools("bitwise_not_cpu"),
    promotion=WHOLE,
)

unary("isnan", "Whether not a number.", promotion=TO_BOOL)
unary("isinf", "Whether infinite.", promotion=TO_BOOL)
unary("isfinite", "Whether neither infinite nor not a number.", promotion=TO_BOOL)


# where ---------------------------------------------------------------------------------------------------


def _bool_condition(condition: Any, *_: Any) -> None:
    if condition.dtype != bool_.numpy:
        raise DTypeMismatch(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype {kernel_name(condition)}"
        )


@elementwise(guard=_bool_condition, variants=FUNCTION, promotion=Promotion(widens=True, unpromoted=1), calls="where")
def where(xp: Any, condition: Array, input: Operand, other: Operand) -> Any:
    """``input`` where the condition holds, else ``other``."""
    return xp.where(condition, input, other)


where.derivative(
    input=lambda F, grad, condition: F.where(condition, grad, 0.0),
    other=lambda F, grad, condition: F.where(condition, 0.0, grad),
)
