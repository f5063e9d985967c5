"""Arithmetic on each element, broadcasting the inputs."""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import FLOATING, LOW, bool_, element, float64, widened
from ..errors import DTypeMismatch, InvalidOperation
from ..schema.op import common_dtype, composite, elementwise
from ..schema.parameters import Array, NoneOnly, Number, Operand, Str
from .guards import divisible, is_whole, no_bools, refuse_zero
from .naming import by_operand, by_operands


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or getattr(value, "dtype", None) == bool_.numpy


# What is not widened below rounds a number beside a float16 or bfloat16 tensor to its dtype, as torch does.


def _scaled(xp: Any, other: Any, alpha: float) -> Any:
    if getattr(other, "dtype", None) not in LOW:
        return other * (element(alpha, other.dtype) if hasattr(other, "dtype") else alpha)
    return widened(other) * widened(xp.asarray(alpha, other.dtype))


def _check_alpha(input: Any, other: Any, *, alpha: Any = 1) -> None:
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


def _check_difference(input: Any, other: Any, *, alpha: Any = 1) -> None:
    if _is_bool(input) and _is_bool(other):
        raise DTypeMismatch(
            "Subtraction, the `-` operator, with two bool tensors is not supported. "
            "Use the `^` or `logical_xor()` operator instead."
        )
    if _is_bool(input) or _is_bool(other):
        raise DTypeMismatch(BOOL_SUBTRACTED)
    _check_alpha(input, other, alpha=alpha)


@elementwise(guard=_check_alpha, widens=False)
def add(xp: Any, input: Operand, other: Operand, *, alpha: Number = 1) -> Any:
    """``input + alpha * other``."""
    return xp.add(input, other if alpha == 1 else _scaled(xp, other, alpha))


add.derivative(
    input=lambda F, grad: grad,
    other=lambda F, grad, alpha: grad if alpha == 1 else grad * alpha,
)


@elementwise(aliases=("subtract",), guard=_check_difference, widens=False)
def sub(xp: Any, input: Operand, other: Operand, *, alpha: Number = 1) -> Any:
    """``input - alpha * other``."""
    return xp.subtract(input, other if alpha == 1 else _scaled(xp, other, alpha))


sub.derivative(
    input=lambda F, grad: grad,
    other=lambda F, grad, alpha: -grad if alpha == 1 else grad * -alpha,
)


@composite(method=False)
def rsub(F: Any, input: Array, other: Operand, *, alpha: Number = 1) -> Any:
    """``other - alpha * input``."""
    return F.sub(other, input, alpha=alpha)


@elementwise(aliases=("multiply",))
def mul(xp: Any, input: Operand, other: Operand) -> Any:
    """``input * other``."""
    return xp.multiply(input, other)


mul.derivative(
    input=lambda F, grad, other: grad * other,
    other=lambda F, grad, input: grad * input,
)


@elementwise(floats=True, aliases=("divide", "true_divide"))
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


@elementwise(
    key="div.mode",
    aliases=("divide",),
    node="DivBackward2",
    guard=lambda *_, rounding_mode: _check_rounding(rounding_mode),
)
def div_mode(xp: Any, input: Operand, other: Operand, *, rounding_mode: Str) -> Any:
    """``input / other`` rounded: "floor" down, "trunc" towards zero."""
    if rounding_mode == "floor":
        return _divide_down(xp, input, other)
    if is_whole(input) and is_whole(other):
        # By way of floats, large integers would be rounded.
        down = _divide_down(xp, input, other)
        return down + xp.logical_and(down * other != input, (input < 0) != (other < 0))
    return xp.trunc(xp.true_divide(input, other))


div_mode.derivative(input=lambda F, grad: F.zeros_like(grad), other=lambda F, grad: F.zeros_like(grad))


def _check_rounding(mode: str) -> None:
    if mode not in ("floor", "trunc"):
        raise InvalidOperation(f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{mode}'")


@elementwise(node="torch::autograd::NotImplemented", guard=divisible("div_floor_cpu"))
def floor_divide(xp: Any, input: Operand, other: Operand) -> Any:
    """``input / other`` rounded down."""
    return _divide_down(xp, input, other)


def _no_floor_divide_derivative(F: Any, grad: Any) -> Any:
    raise InvalidOperation("derivative for aten::floor_divide is not implemented")


floor_divide.derivative(input=_no_floor_divide_derivative, other=_no_floor_divide_derivative)


@elementwise(node=by_operand("Remainder", tensor=1, number=0), guard=divisible("remainder_cpu"), widens=False)
def remainder(xp: Any, input: Operand, other: Operand) -> Any:
    """The remainder of ``input / other``, with the sign of ``other``, as Python's ``%``."""
    refuse_zero(xp, input, other)
    return xp.remainder(input, other)


remainder.derivative(
    input=lambda F, grad: grad,
    other=lambda F, grad, input, other: -grad * F.floor(input / other),
)


def _no_bool_negation(input: Any) -> None:
    if input.dtype == bool_.numpy:
        raise DTypeMismatch(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a "
            "mask, "
            "use the `~` or `logical_not()` operator instead."
        )


@elementwise(aliases=("negative",), guard=_no_bool_negation)
def neg(xp: Any, input: Array) -> Any:
    """``-input``."""
    return xp.negative(input)


neg.derivative(input=lambda F, grad: -grad)


def _no_bool_positive(input: Any) -> None:
    if input.dtype == bool_.numpy:
        raise InvalidOperation("The `+` operator, on a bool tensor is not supported.")


@composite(may_alias=True)
def positive(F: Any, input: Array) -> Any:
    """``input`` itself."""
    _no_bool_positive(input._data)
    return input


@elementwise(aliases=("absolute",), guard=no_bools("abs_cpu"))
def abs_(xp: Any, input: Array) -> Any:
    """The absolute value; its slope at 0 is 0."""
    return xp.absolute(input)


abs_.derivative(input=lambda F, grad, input: grad * F.sign(input))


@elementwise()
def sign(xp: Any, input: Array) -> Any:
    """-1, 0 or 1; 0 for what is not a number."""
    if input.dtype == bool_.numpy:
        return xp.array(input)
    return xp.where(input != input, 0, xp.sign(input)).astype(input.dtype)


sign.derivative(input=lambda F, grad: F.zeros_like(grad))


def _check_powers(input: Any, exponent: Any) -> None:
    if not hasattr(exponent, "dtype") and exponent < 0 and common_dtype((input, exponent)) not in FLOATING:
        raise InvalidOperation("Integers to negative integer powers are not allowed.")
    if hasattr(exponent, "dtype"):
        no_bools("pow")(input, exponent)


def _whole_power(xp: Any, input: Any, exponent: Any) -> Any:
    """Integers to integer powers: a negative one gives 0 but for the bases 1 and -1."""
    exponent = xp.asarray(exponent)
    negative = exponent < 0
    base = xp.where(xp.logical_and(negative, xp.absolute(input) != 1), 0, input)
    # 0 to the power of 1, 1 to that of 1 and -1 to that of an odd or even number.
    return xp.power(base, xp.where(negative, 2 - exponent % 2, exponent))


@elementwise(node=by_operands("Pow", tensors=1, number_first=2, number_second=0), guard=_check_powers)
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
