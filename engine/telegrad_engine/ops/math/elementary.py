"""Elementwise elementary functions: powers, exponentials, logarithms, trigonometry, rounding."""

from __future__ import annotations

import math
from typing import Any

from ...dtypes import FLOATING
from ...errors import InvalidOperation
from ...schema.autocast_policy import FLOAT32_ON_CUDA, PROMOTE_ON_CUDA, UNCAST, Autocast
from ...schema.declaration import FUNCTION, INPLACE, INTERNAL, METHOD, NN_FUNCTION, scratch
from ...schema.derivative_plan import Rule
from ...schema.op import elementwise
from ...schema.parameters import Array, Int, Operand
from ...schema.promotion import COUNTS, FLOATS
from ..guards import no_bools, no_kernel
from .declarations import binary, each_floating, float_unary, floating, unary, zero_gradient

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
    if input.dtype not in FLOATING:
        raise no_kernel("round_cpu" if decimals else "round_vml_cpu", input.dtype)


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
