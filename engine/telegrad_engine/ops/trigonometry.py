"""Trigonometric and hyperbolic functions of each element, and their inverses."""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import FLOATING, from_numpy
from ..errors import NotImplementedForDType
from ..schema.op import common_dtype, elementwise
from ..schema.parameters import Array


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
