"""Elementwise elementary functions (powers, exponentials, trigonometry, rounding) and error and gamma functions."""

from __future__ import annotations

import math
from typing import Any

from ...dtypes import FLOATING, bool_
from ...errors import InvalidOperation
from ...schema.declaration import FUNCTION, INPLACE, INTERNAL, METHOD, NN_FUNCTION, scratch
from ...schema.derivative_plan import Rule
from ...schema.op import composite, elementwise, op
from ...schema.parameters import Array, Int, Operand, OptionalNumber
from ...schema.promotion import (
    COUNTS,
    FLOAT32_ON_CUDA,
    FLOATS,
    PROMOTE_ON_CUDA,
    UNCAST,
    Autocast,
    Promotion,
    common_float,
)
from ...shapes import Spec
from ..batching.rules import LEADING
from ..guards import check_floats, no_bools
from .declarations import binary, by_operands, each_floating, float_unary, floating, unary, zero_gradient

float_unary("exp", "e to the power of ``input``.", autocast=FLOAT32_ON_CUDA).derivative(
    input=lambda F, grad, result: grad * result
)
float_unary("expm1", "``exp(input) - 1``, accurate near 0.", autocast=FLOAT32_ON_CUDA).derivative(
    input=lambda F, grad, result: grad * (result + 1)
)
float_unary("log", "The natural logarithm.", autocast=FLOAT32_ON_CUDA).derivative(
    input=lambda F, grad, input: grad / input
)
float_unary(
    "log1p", "``log(1 + input)``, accurate near 0.", node="Log1PBackward0", autocast=FLOAT32_ON_CUDA
).derivative(input=lambda F, grad, input: grad / (input + 1))
float_unary("sqrt", "The square root.").derivative(input=lambda F, grad, result: grad / (2 * result))


@elementwise(promotion=FLOATS, autocast=FLOAT32_ON_CUDA)
def rsqrt(xp: Any, input: Array) -> Any:
    """One over the square root."""
    return 1 / xp.sqrt(input)


rsqrt.derivative(input=lambda F, grad, result: -0.5 * grad * F.pow(result, 3))


@elementwise(node="PowBackward0", promotion=COUNTS)
def square(xp: Any, input: Array) -> Any:
    """``input`` times itself."""
    return xp.multiply(input, input)


square.derivative(input=lambda F, grad, input: grad * (2 * input))


@elementwise(promotion=FLOATS, autocast=FLOAT32_ON_CUDA)
def reciprocal(xp: Any, input: Array) -> Any:
    """``1 / input``."""
    return 1 / input


reciprocal.derivative(input=lambda F, grad, result: -grad * (result * result))


# Trigonometric and hyperbolic ----------------------------------------------------------------------------


float_unary("sin", "The sine, of radians.").derivative(input=lambda F, grad, input: grad * F.cos(input))
float_unary("cos", "The cosine, of radians.").derivative(input=lambda F, grad, input: -grad * F.sin(input))
float_unary("tanh", "The hyperbolic tangent.", variants=FUNCTION | METHOD | INPLACE | NN_FUNCTION).derivative(
    input=lambda F, grad, result: F.tanh_backward(grad, result)
)


@elementwise(guard=each_floating("tanh_backward_cpu"), variants=INTERNAL, calls="tanh_slope")
def tanh_backward(xp: Any, grad_output: Array, output: Array) -> Any:
    """The gradient of tanh where its value is ``output``: ``grad_output * (1 - output**2)``."""
    return xp.tanh_slope(grad_output, output)


tanh_backward.derivative(
    grad_output=lambda F, grad, output: F.tanh_backward(grad, output),
    output=lambda F, grad, grad_output, output: grad * (-2 * output * grad_output),
)


float_unary("sigmoid", "``1 / (1 + exp(-input))``.", variants=FUNCTION | METHOD | INPLACE | NN_FUNCTION).derivative(
    input=lambda F, grad, result: F.sigmoid_backward(grad, result)
)


@elementwise(guard=each_floating("sigmoid_backward_cpu"), variants=INTERNAL, calls="sigmoid_slope")
def sigmoid_backward(xp: Any, grad_output: Array, output: Array) -> Any:
    """The gradient of sigmoid where its value is ``output``: ``grad_output * (1 - output) * output``."""
    return xp.sigmoid_slope(grad_output, output)


sigmoid_backward.derivative(
    grad_output=lambda F, grad, output: F.sigmoid_backward(grad, output),
    output=lambda F, grad, grad_output, output: grad * grad_output * (1 - 2 * output),
)


# Rounding and clamping -----------------------------------------------------------------------------------


for _name, _doc, _aliases in (
    ("floor", "The largest whole number not above.", ()),
    ("ceil", "The smallest whole number not below.", ()),
    ("trunc", "The whole number next towards zero.", ("fix",)),
):
    _guard = no_bools(f"{_name}_vml_cpu")
    unary(_name, _doc, aliases=_aliases, guard=_guard).derivative(input=zero_gradient)


@elementwise(guard=no_bools("round_vml_cpu"))
def round_(xp: Any, input: Array) -> Any:
    """The nearest whole number, halves to even."""
    return xp.rint(input) if input.dtype in FLOATING else xp.array(input)


def _check_decimals(input: Any, decimals: int) -> None:
    check_floats("round_cpu" if decimals else "round_vml_cpu", input)


@elementwise(key="round.decimals", guard=_check_decimals, node="RoundBackward1")
def round_decimals(xp: Any, input: Array, *, decimals: Int) -> Any:
    """The nearest number with so many decimals, or, below 0, with so many zeros before the point."""
    scale = 10.0 ** abs(decimals) if abs(decimals) < 309 else math.inf
    return xp.rint(input * scale) / scale if decimals >= 0 else xp.rint(input / scale) * scale


for _rounding in (round_, round_decimals):
    _rounding.derivative(input=zero_gradient)


def _check_clamp(input: Any, min: Any, max: Any) -> None:
    if min is None and max is None:
        raise InvalidOperation("torch.clamp: At least one of 'min' or 'max' must not be None")


@elementwise(
    aliases=("clip",),
    guard=_check_clamp,
    node=lambda node: f"ClampBackward{1 if node.next_edges[1] is node.next_edges[2] is None else 0}",
)
def clamp(xp: Any, input: Array, min: Operand = None, max: Operand = None) -> Any:
    """``input`` kept between ``min`` and ``max``; the slope on the boundary is 1."""
    # The upper bound is applied last: where min > max, torch returns max.
    result = input if min is None else xp.maximum(input, min)
    return xp.array(input) if max is None and min is None else result if max is None else xp.minimum(result, max)


def rounded_bound(F: Any, input: Any, bound: Any) -> Any:
    """The bound to compare ``input`` with, rounded to a 16-bit input's dtype, which NumPy does not do for bfloat16."""
    return F.new_full(input, (), bound) if isinstance(bound, float) and input.dtype.itemsize < 4 else bound


def _clamp_grad(F: Any, grad: Any, input: Any, min: Any, max: Any) -> Any:
    above = None if min is None else input >= rounded_bound(F, input, min)
    below = None if max is None else input <= rounded_bound(F, input, max)
    inside = below if above is None else above if below is None else F.logical_and(above, below)
    return F.where(inside, grad, 0.0)


def _clamp_min_grad(F: Any, grad: Any, input: Any, min: Any, max: Any) -> Any:
    return F.where(input < min if max is None else F.logical_and(input < min, min < max), grad, 0.0)


def _clamp_max_grad(F: Any, grad: Any, input: Any, min: Any, max: Any) -> Any:
    return F.where(input > max if min is None else F.logical_or(input > max, max < min), grad, 0.0)


clamp.derivative(input=_clamp_grad, min=_clamp_min_grad, max=_clamp_max_grad)


def _half_on_ties(F: Any, grad: Any, loses: Any, ties: Any) -> Any:
    return F.where(loses, 0.0, grad) + F.where(ties, grad * 0.5, 0.0)


binary(
    "maximum", "The larger of two; where they are equal each gets half the gradient.", variants=FUNCTION | METHOD
).derivative(
    input=lambda F, grad, input, other: _half_on_ties(F, grad, input <= other, input == other),
    other=lambda F, grad, input, other: _half_on_ties(F, grad, other <= input, input == other),
)
binary(
    "minimum", "The smaller of two; where they are equal each gets half the gradient.", variants=FUNCTION | METHOD
).derivative(
    input=lambda F, grad, input, other: _half_on_ties(F, grad, input >= other, input == other),
    other=lambda F, grad, input, other: _half_on_ties(F, grad, other >= input, input == other),
)


# Trigonometric and hyperbolic functions and their inverses -----------------------------------------------


def _inverse(name: str, doc: str, derivative: Rule, autocast: Autocast = UNCAST) -> None:
    """Declare an inverse function such as ``asin``, which torch also calls ``arcsin``, its only name in NumPy."""
    arc_name = f"arc{name[1:]}"
    float_unary(name, doc, calls=arc_name, aliases=(arc_name,), autocast=autocast).derivative(input=derivative)


float_unary("tan", "The tangent, of radians.", autocast=FLOAT32_ON_CUDA).derivative(
    input=lambda F, grad, result: grad * (1 + result * result)
)
_inverse(
    "asin",
    "The angle, in radians, that has this sine.",
    lambda F, grad, input: grad * F.rsqrt(1 - input * input),
    FLOAT32_ON_CUDA,
)
_inverse(
    "acos",
    "The angle, in radians, that has this cosine.",
    lambda F, grad, input: -grad * F.rsqrt(1 - input * input),
    FLOAT32_ON_CUDA,
)
_inverse("atan", "The angle, in radians, that has this tangent.", lambda F, grad, input: grad / (input * input + 1))
float_unary("sinh", "The hyperbolic sine.", autocast=FLOAT32_ON_CUDA).derivative(
    input=lambda F, grad, input: grad * F.cosh(input)
)
float_unary("cosh", "The hyperbolic cosine.", autocast=FLOAT32_ON_CUDA).derivative(
    input=lambda F, grad, input: grad * F.sinh(input)
)
_inverse("asinh", "The inverse of the hyperbolic sine.", lambda F, grad, input: grad * F.rsqrt(input * input + 1))
_inverse(
    "acosh",
    "The inverse of the hyperbolic cosine, from 1 on.",
    lambda F, grad, input: grad * F.rsqrt(input * input - 1),
)
_inverse(
    "atanh",
    "The inverse of the hyperbolic tangent, between -1 and 1.",
    lambda F, grad, input: grad / (1 - input * input),
)


def _sinc_grad(F: Any, grad: Any, input: Any) -> Any:
    turned = math.pi * input
    slope = (turned * F.cos(turned) - F.sin(turned)) / (turned * input)
    return F.where(input == 0, 0.0, grad * slope)


float_unary("sinc", "``sin(pi * input) / (pi * input)``, and 1 at 0.", memory=scratch(2.0)).derivative(input=_sinc_grad)


def _over_square(F: Any, input: Any, other: Any) -> Any:
    square = input * input + other * other
    return F.where(square == 0, 0.0, 1 / square)


binary(
    "atan2",
    "The angle, in radians, of the point (``other``, ``input``); its slope at the origin is 0.",
    calls="arctan2",
    aliases=("arctan2",),
    promotion=FLOATS,
    autocast=PROMOTE_ON_CUDA,
).derivative(
    input=lambda F, grad, input, other: grad * other * _over_square(F, input, other),
    other=lambda F, grad, input, other: -grad * input * _over_square(F, input, other),
)

binary(
    "hypot",
    "The length of the hypotenuse: ``sqrt(input ** 2 + other ** 2)`` without overflow.",
    guard=floating("hypot_cpu"),
).derivative(
    input=lambda F, grad, input, result: grad * (input / result),
    other=lambda F, grad, other, result: grad * (other / result),
)


@elementwise(node="Deg2RadBackward0", promotion=FLOATS)
def deg2rad(xp: Any, input: Array) -> Any:
    """Degrees as radians."""
    return input * (math.pi / 180)


@elementwise(node="Rad2DegBackward0", promotion=FLOATS)
def rad2deg(xp: Any, input: Array) -> Any:
    """Radians as degrees."""
    return input * (180 / math.pi)


deg2rad.derivative(input=lambda F, grad: F.deg2rad(grad))
rad2deg.derivative(input=lambda F, grad: F.rad2deg(grad))


# Logarithms and exponentials to other bases --------------------------------------------------------------


float_unary("exp2", "2 to the power of ``input``.").derivative(
    input=lambda F, grad, result: grad * result * math.log(2)
)
float_unary("log2", "The logarithm to base 2.", autocast=FLOAT32_ON_CUDA).derivative(
    input=lambda F, grad, input: grad / (input * math.log(2))
)
float_unary("log10", "The logarithm to base 10.", autocast=FLOAT32_ON_CUDA).derivative(
    input=lambda F, grad, input: grad / (input * math.log(10))
)

binary(
    "logaddexp",
    "``log(exp(input) + exp(other))`` without overflow.",
    guard=floating("logaddexp_cpu"),
    variants=FUNCTION | METHOD,
).derivative(
    input=lambda F, grad, input, other: grad / (1 + F.exp(other - input)),
    other=lambda F, grad, input, other: grad / (1 + F.exp(input - other)),
)
binary(
    "logaddexp2",
    "``log2(2**input + 2**other)`` without overflow.",
    guard=floating("logaddexp_cpu"),
    variants=FUNCTION | METHOD,
).derivative(
    input=lambda F, grad, input, other: grad / (1 + F.exp2(other - input)),
    other=lambda F, grad, input, other: grad / (1 + F.exp2(input - other)),
)


@elementwise(
    node=by_operands("Xlogy", tensors=0, number_first=1, number_second=2), promotion=FLOATS, memory=scratch(1.25)
)
def xlogy(xp: Any, input: Operand, other: Operand) -> Any:
    """``input * log(other)``, and 0 where ``input`` is 0 unless ``other`` is NaN."""
    if not hasattr(other, "dtype"):
        other = xp.asarray(other, input.dtype)  # so that its logarithm does not widen the result
    product = input * xp.log(other)
    return xp.where(xp.logical_and(xp.equal(input, 0), ~xp.isnan(other)), xp.zeros_like(product), product)


xlogy.derivative(
    input=lambda F, grad, input, other: F.where((input == 0) * (other <= 0), 0.0, F.xlogy(grad, other)),
    other=lambda F, grad, input, other: grad * input / other,
)


@elementwise(promotion=Promotion(common_float))
def logit(xp: Any, input: Array, eps: OptionalNumber = None) -> Any:
    """``log(input / (1 - input))`` of the input kept between ``eps`` and ``1 - eps``, if that is given."""
    if eps is not None and eps >= 0:
        low, high = xp.asarray(eps, input.dtype), xp.asarray(1 - eps, input.dtype)
        input = xp.where(input < low, low, xp.where(input > high, high, input))
    return xp.log(input / (1 - input))


def _logit_grad(F: Any, grad: Any, input: Any, eps: float | None) -> Any:
    low, beyond = (0.0, math.nan) if eps is None or eps < 0 else (eps, 0.0)
    outside = F.logical_or(input < low, input > 1 - low)
    return F.where(outside, beyond, grad / (input * (1 - input)))


logit.derivative(input=_logit_grad)

# Error functions -----------------------------------------------------------------------------------------


float_unary(
    "erf",
    "The error function: the integral of ``2 / sqrt(pi) * exp(-t * t)`` from 0 to ``input``.",
    memory=scratch(3.0),
).derivative(input=lambda F, grad, input: grad * (2 / math.sqrt(math.pi) * F.exp(-input * input)))
float_unary("erfc", "``1 - erf(input)``, accurate where that is near 0.").derivative(
    input=lambda F, grad, input: grad * (-2 / math.sqrt(math.pi) * F.exp(-input * input))
)
float_unary("erfinv", "The inverse of the error function, between -1 and 1.", autocast=FLOAT32_ON_CUDA).derivative(
    input=lambda F, grad, result: grad * (math.sqrt(math.pi) / 2 * F.exp(result * result))
)

# Gamma functions -----------------------------------------------------------------------------------------


float_unary("lgamma", "The logarithm of the gamma function's magnitude.", memory=scratch(2.5)).derivative(
    input=lambda F, grad, input: grad * F.digamma(input)
)
float_unary("digamma", "The derivative of ``lgamma``.").derivative(
    input=lambda F, grad, input: grad * F.polygamma(1, input)
)


def _polygamma_rule(n: int, input: Any) -> Spec:
    if n < 0:
        raise InvalidOperation("polygamma(n, x) does not support negative n.")
    return Spec(input.shape, common_float((input,)))


# torch's method takes the order last.
@op(_polygamma_rule, variants=FUNCTION, promotion=Promotion(common_float), memory=scratch(3.0), batching=LEADING)
def polygamma(xp: Any, n: Int, input: Array) -> Any:
    """The derivative of order ``n`` of ``digamma``."""
    return xp.polygamma(n, input)


polygamma.derivative(input=lambda F, grad, n, input: grad * F.polygamma(n + 1, input))


@composite(variants=FUNCTION | METHOD | INPLACE)
def mvlgamma(F: Any, input: Array, p: Int) -> Any:
    """The logarithm of the multivariate gamma function of dimension ``p``."""
    if p < 1:
        raise InvalidOperation("p has to be greater than or equal to 1")
    if input.dtype is bool_:
        raise InvalidOperation("The input tensor may not be a boolean tensor.")
    shifts = F.arange(1 - p, 1) * 0.5
    if input.is_floating_point():
        shifts = F.to(shifts, dtype=input.dtype)
    terms = F.lgamma(F.unsqueeze(input, -1) + shifts)
    return F.sum(terms, -1) + p * (p - 1) / 4 * math.log(math.pi)
