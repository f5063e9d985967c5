"""Elementary functions of each element: powers, exponentials, logarithms, trigonometry, rounding."""

from __future__ import annotations

import math
from typing import Any

from ...dtypes import FLOATING, from_numpy
from ...errors import InvalidOperation, NotImplementedForDType
from ...schema.op import common_dtype, elementwise
from ...schema.parameters import Array, Int, Operand
from ..guards import no_bools


@elementwise(floats=True)
def exp(xp: Any, input: Array) -> Any:
    """e to the power of ``input``."""
    return xp.exp(input)


exp.derivative(input=lambda F, grad, result: grad * result)


@elementwise(floats=True)
def expm1(xp: Any, input: Array) -> Any:
    """``exp(input) - 1``, accurate near 0."""
    return xp.expm1(input)


expm1.derivative(input=lambda F, grad, result: grad * (result + 1))


@elementwise(floats=True)
def log(xp: Any, input: Array) -> Any:
    """The natural logarithm."""
    return xp.log(input)


log.derivative(input=lambda F, grad, input: grad / input)


@elementwise(floats=True, node="Log1PBackward0")
def log1p(xp: Any, input: Array) -> Any:
    """``log(1 + input)``, accurate near 0."""
    return xp.log1p(input)


log1p.derivative(input=lambda F, grad, input: grad / (input + 1))


@elementwise(floats=True)
def sqrt(xp: Any, input: Array) -> Any:
    """The square root."""
    return xp.sqrt(input)


sqrt.derivative(input=lambda F, grad, result: grad / (2 * result))


@elementwise(floats=True)
def rsqrt(xp: Any, input: Array) -> Any:
    """One over the square root."""
    return 1 / xp.sqrt(input)


rsqrt.derivative(input=lambda F, grad, result: -0.5 * grad * F.pow(result, 3))


@elementwise(counts=True, node="PowBackward0")
def square(xp: Any, input: Array) -> Any:
    """``input`` times itself."""
    return xp.multiply(input, input)


square.derivative(input=lambda F, grad, input: grad * (2 * input))


@elementwise(floats=True)
def reciprocal(xp: Any, input: Array) -> Any:
    """``1 / input``."""
    return 1 / input


reciprocal.derivative(input=lambda F, grad, result: -grad * (result * result))


# Trigonometric and hyperbolic ----------------------------------------------------------------------------


@elementwise(floats=True)
def sin(xp: Any, input: Array) -> Any:
    """The sine, of radians."""
    return xp.sin(input)


sin.derivative(input=lambda F, grad, input: grad * F.cos(input))


@elementwise(floats=True)
def cos(xp: Any, input: Array) -> Any:
    """The cosine, of radians."""
    return xp.cos(input)


cos.derivative(input=lambda F, grad, input: -grad * F.sin(input))


@elementwise(floats=True, functional=True)
def tanh(xp: Any, input: Array) -> Any:
    """The hyperbolic tangent."""
    return xp.tanh(input)


tanh.derivative(input=lambda F, grad, result: F.tanh_backward(grad, result))


@elementwise(private=True, inplace=False)
def tanh_backward(xp: Any, grad_output: Array, output: Array) -> Any:
    """The gradient of tanh where its value is ``output``: ``grad_output * (1 - output**2)``."""
    return xp.tanh_slope(grad_output, output)


tanh_backward.derivative(
    grad_output=lambda F, grad, output: F.tanh_backward(grad, output),
    output=lambda F, grad, grad_output, output: grad * (-2 * output * grad_output),
)


@elementwise(floats=True, functional=True)
def sigmoid(xp: Any, input: Array) -> Any:
    """``1 / (1 + exp(-input))``."""
    return xp.sigmoid(input)


sigmoid.derivative(input=lambda F, grad, result: F.sigmoid_backward(grad, result))


@elementwise(private=True, inplace=False)
def sigmoid_backward(xp: Any, grad_output: Array, output: Array) -> Any:
    """The gradient of sigmoid where its value is ``output``: ``grad_output * (1 - output) * output``."""
    return xp.sigmoid_slope(grad_output, output)


sigmoid_backward.derivative(
    grad_output=lambda F, grad, output: F.sigmoid_backward(grad, output),
    output=lambda F, grad, grad_output, output: grad * grad_output * (1 - 2 * output),
)


# Rounding and limits -------------------------------------------------------------------------------------


@elementwise(guard=no_bools("floor_vml_cpu"))
def floor(xp: Any, input: Array) -> Any:
    """The largest whole number not above."""
    return xp.floor(input)


@elementwise(guard=no_bools("ceil_vml_cpu"))
def ceil(xp: Any, input: Array) -> Any:
    """The smallest whole number not below."""
    return xp.ceil(input)


@elementwise(guard=no_bools("trunc_vml_cpu"), aliases=("fix",))
def trunc(xp: Any, input: Array) -> Any:
    """The whole number next towards zero."""
    return xp.trunc(input)


@elementwise(guard=no_bools("round_vml_cpu"))
def round_(xp: Any, input: Array) -> Any:
    """The nearest whole number, halves to even."""
    return xp.rint(input) if input.dtype in FLOATING else xp.array(input)


def _check_decimals(input: Any, *, decimals: int) -> None:
    if input.dtype not in FLOATING:
        kernel = "round_cpu" if decimals else "round_vml_cpu"
        raise NotImplementedForDType(f"\"{kernel}\" not implemented for '{from_numpy(input.dtype).kernel_name}'")


@elementwise(
    key="round.decimals",
    node="RoundBackward1",
    guard=_check_decimals,
)
def round_decimals(xp: Any, input: Array, *, decimals: Int) -> Any:
    """The nearest number with so many decimals, or, below 0, with so many zeros before the point."""
    scale = 10.0 ** abs(decimals) if abs(decimals) < 309 else math.inf
    return xp.rint(input * scale) / scale if decimals >= 0 else xp.rint(input / scale) * scale


for _flat in (floor, ceil, trunc, round_, round_decimals):
    _flat.derivative(input=lambda F, grad: F.zeros_like(grad))


def _check_clamp(input: Any, min: Any = None, max: Any = None) -> None:
    if min is None and max is None:
        raise InvalidOperation("torch.clamp: At least one of 'min' or 'max' must not be None")


@elementwise(
    aliases=("clip",),
    node=lambda node: f"ClampBackward{1 if node.next_edges[1] is node.next_edges[2] is None else 0}",
    guard=_check_clamp,
)
def clamp(xp: Any, input: Array, min: Operand = None, max: Operand = None) -> Any:
    """``input`` kept between ``min`` and ``max``; the slope on the boundary is 1."""
    # The upper bound goes last: where min > max, torch answers max.
    result = input if min is None else xp.maximum(input, min)
    return xp.array(input) if max is None and min is None else result if max is None else xp.minimum(result, max)


def rounded_bound(F: Any, input: Any, bound: Any) -> Any:
    """What ``input`` is compared with: a number is rounded to its dtype first, which NumPy does not do for bfloat16."""
    return F.new_full(input, (), bound) if isinstance(bound, float) and input.dtype.itemsize < 4 else bound


def _clamp_inside(F: Any, input: Any, min: Any, max: Any) -> Any:
    above = None if min is None else input >= rounded_bound(F, input, min)
    below = None if max is None else input <= rounded_bound(F, input, max)
    return below if above is None else above if below is None else F.logical_and(above, below)


def _clamp_grad(F: Any, grad: Any, input: Any, min: Any, max: Any) -> Any:
    return F.where(_clamp_inside(F, input, min, max), grad, 0.0)


def _clamp_min_grad(F: Any, grad: Any, input: Any, min: Any, max: Any) -> Any:
    return F.where(input < min if max is None else F.logical_and(input < min, min < max), grad, 0.0)


def _clamp_max_grad(F: Any, grad: Any, input: Any, min: Any, max: Any) -> Any:
    return F.where(input > max if min is None else F.logical_or(input > max, max < min), grad, 0.0)


clamp.derivative(input=_clamp_grad, min=_clamp_min_grad, max=_clamp_max_grad)


@elementwise(inplace=False)
def maximum(xp: Any, input: Array, other: Array) -> Any:
    """The larger of two; where they are equal each gets half the gradient."""
    return xp.maximum(input, other)


@elementwise(inplace=False)
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


# Trigonometric and hyperbolic functions of each element, and their inverses ------------------------------


@elementwise(floats=True)
def tan(xp: Any, input: Array) -> Any:
    """The tangent, of radians."""
    return xp.tan(input)


tan.derivative(input=lambda F, grad, result: grad * (1 + result * result))


@elementwise(floats=True, aliases=("arcsin",))
def asin(xp: Any, input: Array) -> Any:
    """The angle, in radians, that has this sine."""
    return xp.arcsin(input)


asin.derivative(input=lambda F, grad, input: grad * F.rsqrt(1 - input * input))


@elementwise(floats=True, aliases=("arccos",))
def acos(xp: Any, input: Array) -> Any:
    """The angle, in radians, that has this cosine."""
    return xp.arccos(input)


acos.derivative(input=lambda F, grad, input: -grad * F.rsqrt(1 - input * input))


@elementwise(floats=True, aliases=("arctan",))
def atan(xp: Any, input: Array) -> Any:
    """The angle, in radians, that has this tangent."""
    return xp.arctan(input)


atan.derivative(input=lambda F, grad, input: grad / (input * input + 1))


@elementwise(floats=True)
def sinh(xp: Any, input: Array) -> Any:
    """The hyperbolic sine."""
    return xp.sinh(input)


sinh.derivative(input=lambda F, grad, input: grad * F.cosh(input))


@elementwise(floats=True)
def cosh(xp: Any, input: Array) -> Any:
    """The hyperbolic cosine."""
    return xp.cosh(input)


cosh.derivative(input=lambda F, grad, input: grad * F.sinh(input))


@elementwise(floats=True, aliases=("arcsinh",))
def asinh(xp: Any, input: Array) -> Any:
    """The inverse of the hyperbolic sine."""
    return xp.arcsinh(input)


asinh.derivative(input=lambda F, grad, input: grad * F.rsqrt(input * input + 1))


@elementwise(floats=True, aliases=("arccosh",))
def acosh(xp: Any, input: Array) -> Any:
    """The inverse of the hyperbolic cosine, from 1 on."""
    return xp.arccosh(input)


acosh.derivative(input=lambda F, grad, input: grad * F.rsqrt(input * input - 1))


@elementwise(floats=True, aliases=("arctanh",))
def atanh(xp: Any, input: Array) -> Any:
    """The inverse of the hyperbolic tangent, between -1 and 1."""
    return xp.arctanh(input)


atanh.derivative(input=lambda F, grad, input: grad / (1 - input * input))


@elementwise(floats=True, scratch=2.0)
def sinc(xp: Any, input: Array) -> Any:
    """``sin(pi * input) / (pi * input)``, and 1 at 0."""
    return xp.sinc(input)


def _sinc_grad(F: Any, grad: Any, input: Any) -> Any:
    turned = math.pi * input
    slope = (turned * F.cos(turned) - F.sin(turned)) / (turned * input)
    return F.where(input == 0, 0.0, grad * slope)


sinc.derivative(input=_sinc_grad)


@elementwise(floats=True, aliases=("arctan2",))
def atan2(xp: Any, input: Array, other: Array) -> Any:
    """The angle, in radians, of the point (``other``, ``input``); its slope at the origin is 0."""
    return xp.arctan2(input, other)


def _over_square(F: Any, input: Any, other: Any) -> Any:
    square = input * input + other * other
    return F.where(square == 0, 0.0, 1 / square)


atan2.derivative(
    input=lambda F, grad, input, other: grad * other * _over_square(F, input, other),
    other=lambda F, grad, input, other: -grad * input * _over_square(F, input, other),
)


def _no_whole_numbers(input: Any, other: Any) -> None:
    dtype = common_dtype((input, other))
    if dtype not in FLOATING:
        raise NotImplementedForDType(f"\"hypot_cpu\" not implemented for '{from_numpy(dtype).kernel_name}'")


@elementwise(guard=_no_whole_numbers)
def hypot(xp: Any, input: Array, other: Array) -> Any:
    """The length of the hypotenuse: ``sqrt(input ** 2 + other ** 2)`` without overflow."""
    return xp.hypot(input, other)


hypot.derivative(
    input=lambda F, grad, input, result: grad * (input / result),
    other=lambda F, grad, other, result: grad * (other / result),
)


@elementwise(node="Deg2RadBackward0", floats=True)
def deg2rad(xp: Any, input: Array) -> Any:
    """Degrees as radians."""
    return input * (math.pi / 180)


@elementwise(node="Rad2DegBackward0", floats=True)
def rad2deg(xp: Any, input: Array) -> Any:
    """Radians as degrees."""
    return input * (180 / math.pi)


deg2rad.derivative(input=lambda F, grad: F.deg2rad(grad))
rad2deg.derivative(input=lambda F, grad: F.rad2deg(grad))
