"""Ops that work on each element, broadcasting their inputs."""

from __future__ import annotations

import math
from typing import Any

from ..cases import M, T, binary, case, unary
from ..dtypes import FLOATING, bool_, from_numpy, is_floating
from ..errors import DTypeMismatch, InvalidOperation, NotImplementedForDType
from ..params import Array, NoneOnly, Number, Operand, Str
from ..registry import common_dtype, elementwise

# Arithmetic --------------------------------------------------------------------------------


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or getattr(value, "dtype", None) == bool_.numpy


def _check_alpha(input: Any, other: Any, *, alpha: Any = 1) -> None:
    if type(alpha) is int:
        return
    dtype = common_dtype((input, other))
    if isinstance(alpha, bool) and dtype != bool_.numpy:
        raise InvalidOperation("Boolean alpha only supported for Boolean results.")
    if isinstance(alpha, float) and dtype not in FLOATING:
        raise InvalidOperation(
            "For integral input tensors, argument alpha must not be a floating point number."
        )


def _check_difference(input: Any, other: Any, *, alpha: Any = 1) -> None:
    if _is_bool(input) and _is_bool(other):
        raise DTypeMismatch(
            "Subtraction, the `-` operator, with two bool tensors is not supported. "
            "Use the `^` or `logical_xor()` operator instead."
        )
    if _is_bool(input) or _is_bool(other):
        raise DTypeMismatch(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a "
            "mask, use the `~` or `logical_not()` operator instead."
        )
    _check_alpha(input, other, alpha=alpha)


@elementwise(cases=[*binary(), case(T(2, 3), T(3), alpha=2.5), case(T(2, 3), 1, alpha=2)], guard=_check_alpha)
def add(xp: Any, input: Operand, other: Operand, *, alpha: Number = 1) -> Any:
    """``input + alpha * other``."""
    return xp.add(input, other if alpha == 1 else other * alpha)


add.derivative(
    input=lambda F, grad: grad,
    other=lambda F, grad, alpha: grad if alpha == 1 else grad * alpha,
)


@elementwise(cases=[*binary(), case(T(2, 3), T(3), alpha=2.5)], aliases=("subtract",), guard=_check_difference)
def sub(xp: Any, input: Operand, other: Operand, *, alpha: Number = 1) -> Any:
    """``input - alpha * other``."""
    return xp.subtract(input, other if alpha == 1 else other * alpha)


sub.derivative(
    input=lambda F, grad: grad,
    other=lambda F, grad, alpha: -grad if alpha == 1 else grad * -alpha,
)


@elementwise(cases=binary(), aliases=("multiply",))
def mul(xp: Any, input: Operand, other: Operand) -> Any:
    """``input * other``."""
    return xp.multiply(input, other)


mul.derivative(
    input=lambda F, grad, other: grad * other,
    other=lambda F, grad, input: grad * input,
)


@elementwise(floats=True, cases=binary(0.5, 3.0), aliases=("divide", "true_divide"))
def div(xp: Any, input: Operand, other: Operand, *, rounding_mode: NoneOnly = None) -> Any:
    """``input / other``; integers divide to the default floating dtype."""
    return xp.true_divide(input, other)


div.derivative(
    input=lambda F, grad, other: grad / other,
    other=lambda F, grad, input, other: -grad * (input / other) / other,
)


def _is_whole(value: Any) -> bool:
    return value.dtype not in FLOATING if hasattr(value, "dtype") else not isinstance(value, float)


def _refuse_zero(xp: Any, input: Any, other: Any) -> None:
    """Integers have no infinity to answer a division by zero with."""
    if _is_whole(input) and _is_whole(other) and xp.any(xp.equal(other, 0)) and xp.size(input):
        raise InvalidOperation("ZeroDivisionError")


def _divide_down(xp: Any, input: Any, other: Any) -> Any:
    _refuse_zero(xp, input, other)
    return xp.floor_divide(input, other)


def _no_bools(kernel: str) -> Any:
    """A guard against computing in bools, for which torch has no such kernel."""

    def guard(input: Any, other: Any, **_: Any) -> None:
        if common_dtype((input, other)) == bool_.numpy:
            raise NotImplementedForDType(f"\"{kernel}\" not implemented for 'Bool'")

    return guard


@elementwise(
    key="div.mode",
    cases=[
        case(T(2, 3), T(3, low=0.5, high=3), rounding_mode="floor"),
        case(T(2, 3), 1.5, rounding_mode="trunc"),
        case(T(2, 3, low=-9, high=9, dtype="int64"), T(3, low=1, high=4, dtype="int64"), rounding_mode="trunc"),
    ],
    aliases=("divide",),
    node="DivBackward2",
    guard=lambda *_, rounding_mode: _check_rounding(rounding_mode),
)
def div_mode(xp: Any, input: Operand, other: Operand, *, rounding_mode: Str) -> Any:
    """``input / other`` rounded: "floor" down, "trunc" towards zero."""
    if rounding_mode == "floor":
        return _divide_down(xp, input, other)
    if _is_whole(input) and _is_whole(other):
        # By way of floats, large integers would be rounded.
        down = _divide_down(xp, input, other)
        return down + xp.logical_and(down * other != input, (input < 0) != (other < 0))
    return xp.trunc(xp.true_divide(input, other))


div_mode.derivative(input=lambda F, grad: F.zeros_like(grad), other=lambda F, grad: F.zeros_like(grad))


def _check_rounding(mode: str) -> None:
    if mode not in ("floor", "trunc"):
        raise InvalidOperation(
            f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{mode}'"
        )


@elementwise(
    cases=[case(T(2, 3), T(3, low=0.5, high=3)), case(T(2, 3), 1.5), case(T(0, 3), T(3, low=0.5, high=3))],
    node="NotImplemented",
    guard=_no_bools("div_floor_cpu"),
)
def floor_divide(xp: Any, input: Operand, other: Operand) -> Any:
    """``input / other`` rounded down."""
    return _divide_down(xp, input, other)



def _no_floor_divide_derivative(F: Any, grad: Any) -> Any:
    raise InvalidOperation("derivative for aten::floor_divide is not implemented")


floor_divide.derivative(input=_no_floor_divide_derivative, other=_no_floor_divide_derivative)


@elementwise(
    cases=[case(T(2, 3), T(3, low=0.5, high=3)), case(T(2, 3), 1.5), case(T(0, 3), T(3, low=0.5, high=3))],
    guard=_no_bools("remainder_cpu"),
)
def remainder(xp: Any, input: Operand, other: Operand) -> Any:
    """The remainder of ``input / other``, with the sign of ``other``, as Python's ``%``."""
    _refuse_zero(xp, input, other)
    return xp.remainder(input, other)


remainder.derivative(
    input=lambda F, grad: grad,
    other=lambda F, grad, input, other: -grad * F.floor(input / other),
)


def _no_bool_negation(input: Any) -> None:
    if input.dtype == bool_.numpy:
        raise DTypeMismatch(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, "
            "use the `~` or `logical_not()` operator instead."
        )


@elementwise(cases=unary(), aliases=("negative",), guard=_no_bool_negation)
def neg(xp: Any, input: Array) -> Any:
    """``-input``."""
    return xp.negative(input)


neg.derivative(input=lambda F, grad: -grad)


@elementwise(cases=[*unary(), case(T(3, values=[0.0, -1.0, 2.0]))], aliases=("absolute",))
def abs_(xp: Any, input: Array) -> Any:
    """The absolute value; its slope at 0 is 0."""
    return xp.absolute(input)


abs_.derivative(input=lambda F, grad, input: grad * F.sign(input))


@elementwise(cases=unary())
def sign(xp: Any, input: Array) -> Any:
    """-1, 0 or 1."""
    return xp.sign(input) if input.dtype != bool_.numpy else input


sign.derivative(input=lambda F, grad: F.zeros_like(grad))


def _check_powers(input: Any, exponent: Any) -> None:
    if not hasattr(exponent, "dtype") and exponent < 0 and common_dtype((input, exponent)) not in FLOATING:
        raise InvalidOperation("Integers to negative integer powers are not allowed.")
    if hasattr(exponent, "dtype"):
        _no_bools("pow")(input, exponent)


def _whole_power(xp: Any, input: Any, exponent: Any) -> Any:
    """Integers to integer powers: a negative one gives 0 but for the bases 1 and -1."""
    exponent = xp.asarray(exponent)
    negative = exponent < 0
    base = xp.where(xp.logical_and(negative, xp.absolute(input) != 1), 0, input)
    # 0 to the power of 1, 1 to that of 1 and -1 to that of an odd or even number.
    return xp.power(base, xp.where(negative, 2 - exponent % 2, exponent))


@elementwise(cases=[*binary(0.3, 2.0), case(T(2, 3), 2), case(T(2, 3), 3.0), case(T(2, 3), 0), case(2.0, T(2, 3))], guard=_check_powers)
def pow_(xp: Any, input: Operand, exponent: Operand) -> Any:
    """``input`` to the power ``exponent``."""
    if isinstance(exponent, (int, float)) and exponent == 2:
        return xp.multiply(input, input)
    if _is_whole(input) and _is_whole(exponent):
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
        slope = result * (math.log(input) if input else -math.inf)
        return grad * (F.where(exponent >= 0, 0.0, slope) if input == 0 else slope)
    return grad * F.where(F.logical_and(input == 0, exponent >= 0), 0.0, result * F.log(input))


pow_.derivative(input=_pow_wrt_input, exponent=_pow_wrt_exponent)


# Powers, exponentials, logarithms -------------------------------------------------------------


@elementwise(floats=True, cases=unary())
def exp(xp: Any, input: Array) -> Any:
    """e to the power of ``input``."""
    return xp.exp(input)


exp.derivative(input=lambda F, grad, result: grad * result)


@elementwise(floats=True, cases=unary())
def expm1(xp: Any, input: Array) -> Any:
    """``exp(input) - 1``, accurate near 0."""
    return xp.expm1(input)


expm1.derivative(input=lambda F, grad, result: grad * (result + 1))


@elementwise(floats=True, cases=unary(0.2, 3.0))
def log(xp: Any, input: Array) -> Any:
    """The natural logarithm."""
    return xp.log(input)


log.derivative(input=lambda F, grad, input: grad / input)


@elementwise(floats=True, cases=unary(-0.8, 3.0))
def log1p(xp: Any, input: Array) -> Any:
    """``log(1 + input)``, accurate near 0."""
    return xp.log1p(input)


log1p.derivative(input=lambda F, grad, input: grad / (input + 1))


@elementwise(floats=True, cases=unary(0.2, 3.0))
def sqrt(xp: Any, input: Array) -> Any:
    """The square root."""
    return xp.sqrt(input)


sqrt.derivative(input=lambda F, grad, result: grad / (2 * result))


@elementwise(floats=True, cases=unary(0.2, 3.0))
def rsqrt(xp: Any, input: Array) -> Any:
    """One over the square root."""
    return 1 / xp.sqrt(input)


rsqrt.derivative(input=lambda F, grad, result: -0.5 * grad * F.pow(result, 3))


@elementwise(cases=unary(), node="PowBackward0")
def square(xp: Any, input: Array) -> Any:
    """``input`` times itself."""
    return xp.multiply(input, input)


square.derivative(input=lambda F, grad, input: grad * (2 * input))


@elementwise(floats=True, cases=unary(0.3, 3.0))
def reciprocal(xp: Any, input: Array) -> Any:
    """``1 / input``."""
    return 1 / input


reciprocal.derivative(input=lambda F, grad, result: -grad * (result * result))


# Trigonometric and hyperbolic -------------------------------------------------------------------


@elementwise(floats=True, cases=unary())
def sin(xp: Any, input: Array) -> Any:
    """The sine, of radians."""
    return xp.sin(input)


sin.derivative(input=lambda F, grad, input: grad * F.cos(input))


@elementwise(floats=True, cases=unary())
def cos(xp: Any, input: Array) -> Any:
    """The cosine, of radians."""
    return xp.cos(input)


cos.derivative(input=lambda F, grad, input: -grad * F.sin(input))


@elementwise(floats=True, cases=unary())
def tanh(xp: Any, input: Array) -> Any:
    """The hyperbolic tangent."""
    return xp.tanh(input)


tanh.derivative(input=lambda F, grad, result: grad * (1 - result * result))


@elementwise(floats=True, cases=[*unary(), case(T(2, 3, low=-90.0, high=90.0))])
def sigmoid(xp: Any, input: Array) -> Any:
    """``1 / (1 + exp(-input))``."""
    return 1 / (1 + xp.exp(-input))


sigmoid.derivative(input=lambda F, grad, result: grad * (1 - result) * result)


# Rounding and limits ---------------------------------------------------------------------------


@elementwise(cases=unary())
def floor(xp: Any, input: Array) -> Any:
    """The largest whole number not above."""
    return xp.floor(input)


@elementwise(cases=unary())
def ceil(xp: Any, input: Array) -> Any:
    """The smallest whole number not below."""
    return xp.ceil(input)


@elementwise(cases=unary())
def trunc(xp: Any, input: Array) -> Any:
    """The whole number next towards zero."""
    return xp.trunc(input)


@elementwise(cases=[*unary(), case(T(4, values=[0.5, 1.5, 2.5, -0.5]))])
def round_(xp: Any, input: Array) -> Any:
    """The nearest whole number, halves to even."""
    return xp.rint(input) if input.dtype in FLOATING else input


for _flat in (floor, ceil, trunc, round_):
    _flat.derivative(input=lambda F, grad: F.zeros_like(grad))


def _check_clamp(input: Any, min: Any = None, max: Any = None) -> None:
    if min is None and max is None:
        raise InvalidOperation("torch.clamp: At least one of 'min' or 'max' must not be None")


@elementwise(
    cases=[
        case(T(2, 3), -0.5, 0.5),
        case(T(2, 3), min=0),
        case(T(2, 3), max=0.5),
        case(T(3, values=[-1.0, 0.0, 1.0]), -1, 1),
        case(T(2, 3), T(3, low=-2, high=-1), T(2, 3, low=1, high=2)),
        case(T(0, 3), min=0.0),
        case(T(), 0.0, 1.0),
    ],
    aliases=("clip",),
    node="ClampBackward1",
    guard=_check_clamp,
)
def clamp(xp: Any, input: Array, min: Operand = None, max: Operand = None) -> Any:
    """``input`` kept between ``min`` and ``max``; the slope on the boundary is 1."""
    # The upper bound goes last: where min > max, torch answers max.
    result = input if min is None else xp.maximum(input, min)
    return xp.array(input) if max is None and min is None else result if max is None else xp.minimum(result, max)


def _clamp_inside(F: Any, input: Any, min: Any, max: Any) -> Any:
    if max is None:
        return input >= min
    return input <= max if min is None else F.logical_and(input >= min, input <= max)


clamp.derivative(
    input=lambda F, grad, input, min, max: grad * _clamp_inside(F, input, min, max),
    min=lambda F, grad, input, min, max: (
        grad * (input < min if max is None else F.logical_and(input < min, min < max))
    ),
    max=lambda F, grad, input, min, max: (
        grad * (input > max if min is None else F.logical_or(input > max, max < min))
    ),
)


TIES = case(T(3, values=[1.0, 2.0, 3.0]), T(3, values=[1.0, 1.0, 4.0]))


@elementwise(cases=[*binary()[:-1], TIES], inplace=False)
def maximum(xp: Any, input: Array, other: Array) -> Any:
    """The larger of two; where they are equal each gets half the gradient."""
    return xp.maximum(input, other)


@elementwise(cases=[*binary()[:-1], TIES], inplace=False)
def minimum(xp: Any, input: Array, other: Array) -> Any:
    """The smaller of two; where they are equal each gets half the gradient."""
    return xp.minimum(input, other)


def _half_on_ties(F: Any, grad: Any, wins: Any, ties: Any) -> Any:
    return grad * wins + grad * ties * 0.5


maximum.derivative(
    input=lambda F, grad, input, other: _half_on_ties(F, grad, input > other, input == other),
    other=lambda F, grad, input, other: _half_on_ties(F, grad, other > input, input == other),
)
minimum.derivative(
    input=lambda F, grad, input, other: _half_on_ties(F, grad, input < other, input == other),
    other=lambda F, grad, input, other: _half_on_ties(F, grad, other < input, input == other),
)


# Comparisons and logic ---------------------------------------------------------------------------

COMPARED = [*binary(), case(T(3, values=[1.0, 2.0, 3.0]), T(3, values=[1.0, 3.0, 2.0]))]


@elementwise(out="bool", cases=COMPARED)
def eq(xp: Any, input: Array, other: Operand) -> Any:
    """Whether equal."""
    return xp.equal(input, other)


@elementwise(out="bool", cases=COMPARED, aliases=("not_equal",))
def ne(xp: Any, input: Array, other: Operand) -> Any:
    """Whether different."""
    return xp.not_equal(input, other)


@elementwise(out="bool", cases=COMPARED, aliases=("less",))
def lt(xp: Any, input: Array, other: Operand) -> Any:
    """Whether less."""
    return xp.less(input, other)


@elementwise(out="bool", cases=COMPARED, aliases=("less_equal",))
def le(xp: Any, input: Array, other: Operand) -> Any:
    """Whether less or equal."""
    return xp.less_equal(input, other)


@elementwise(out="bool", cases=COMPARED, aliases=("greater",))
def gt(xp: Any, input: Array, other: Operand) -> Any:
    """Whether greater."""
    return xp.greater(input, other)


@elementwise(out="bool", cases=COMPARED, aliases=("greater_equal",))
def ge(xp: Any, input: Array, other: Operand) -> Any:
    """Whether greater or equal."""
    return xp.greater_equal(input, other)


LOGICAL = [case(M(2, 3), M(3)), case(T(2, 3), T(2, 3)), case(M(), M(0, 2))]


@elementwise(out="bool", cases=LOGICAL)
def logical_and(xp: Any, input: Array, other: Array) -> Any:
    """Whether both are non-zero."""
    return xp.logical_and(input, other)


@elementwise(out="bool", cases=LOGICAL)
def logical_or(xp: Any, input: Array, other: Array) -> Any:
    """Whether either is non-zero."""
    return xp.logical_or(input, other)


@elementwise(out="bool", cases=LOGICAL)
def logical_xor(xp: Any, input: Array, other: Array) -> Any:
    """Whether exactly one is non-zero."""
    return xp.logical_xor(input, other)


@elementwise(out="bool", cases=[case(M(2, 3)), case(T(2, 3)), case(T(0))])
def logical_not(xp: Any, input: Array) -> Any:
    """Whether zero."""
    return xp.logical_not(input)


def _integral_only(name: str) -> Any:
    def guard(*inputs: Any) -> None:
        for x in inputs:
            if isinstance(x, float) or (hasattr(x, "dtype") and is_floating(x.dtype)):
                kind = from_numpy(x.dtype).kernel_name if hasattr(x, "dtype") else "Float"
                raise NotImplementedForDType(f"\"{name}_cpu\" not implemented for '{kind}'")

    return guard


BITS = [case(M(2, 3), M(3)), case(T(2, 3, low=0, high=9, dtype="int64"), T(3, low=0, high=9, dtype="int64"))]


@elementwise(cases=BITS, guard=_integral_only("bitwise_and"), keeps_dtype=False)
def bitwise_and(xp: Any, input: Operand, other: Operand) -> Any:
    """And, bit by bit; of bools, logical."""
    return xp.bitwise_and(input, other)


@elementwise(cases=BITS, guard=_integral_only("bitwise_or"), keeps_dtype=False)
def bitwise_or(xp: Any, input: Operand, other: Operand) -> Any:
    """Or, bit by bit; of bools, logical."""
    return xp.bitwise_or(input, other)


@elementwise(cases=BITS, guard=_integral_only("bitwise_xor"), keeps_dtype=False)
def bitwise_xor(xp: Any, input: Operand, other: Operand) -> Any:
    """Exclusive or, bit by bit; of bools, logical."""
    return xp.bitwise_xor(input, other)


@elementwise(cases=[case(M(2, 3)), case(T(3, low=0, high=9, dtype="int64"))], guard=_integral_only("bitwise_not"), keeps_dtype=False)
def bitwise_not(xp: Any, input: Array) -> Any:
    """Every bit flipped; of bools, not."""
    return xp.invert(input)


SPECIAL = [case(T(4, values=[float("nan"), float("inf"), -float("inf"), 1.0])), case(T(2, 3)), case(T(0))]


@elementwise(out="bool", cases=SPECIAL)
def isnan(xp: Any, input: Array) -> Any:
    """Whether not a number."""
    return xp.isnan(input)


@elementwise(out="bool", cases=SPECIAL)
def isinf(xp: Any, input: Array) -> Any:
    """Whether infinite."""
    return xp.isinf(input)


@elementwise(out="bool", cases=SPECIAL)
def isfinite(xp: Any, input: Array) -> Any:
    """Whether neither infinite nor not a number."""
    return xp.isfinite(input)


# Choosing ---------------------------------------------------------------------------------------


def _bool_condition(condition: Any, *_: Any) -> None:
    if condition.dtype != bool_.numpy:
        raise DTypeMismatch(
            "where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{from_numpy(condition.dtype).kernel_name}"
        )


@elementwise(
    cases=[
        case(M(2, 3), T(2, 3), T(3)),
        case(M(3), T(2, 1), 0.5),
        case(M(2, 3), 1.0, T()),
        case(M(0, 3), T(3), T(0, 3)),
    ],
    guard=_bool_condition,
    unpromoted=1,
    inplace=False,
)
def where(xp: Any, condition: Array, input: Operand, other: Operand) -> Any:
    """``input`` where the condition holds, else ``other``."""
    return xp.where(condition, input, other)


where.derivative(
    input=lambda F, grad, condition: F.where(condition, grad, 0.0),
    other=lambda F, grad, condition: F.where(condition, 0.0, grad),
)
