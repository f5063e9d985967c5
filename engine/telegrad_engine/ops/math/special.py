"""Special functions: error functions, gamma functions, and logarithms and exponentials to other bases."""

from __future__ import annotations

import math
from typing import Any

from ...dtypes import bool_
from ...errors import InvalidOperation
from ...schema.autocast_policy import FLOAT32_ON_CUDA
from ...schema.declaration import FUNCTION, INPLACE, METHOD, scratch
from ...schema.op import composite, elementwise, op
from ...schema.parameters import Array, Int, Operand, OptionalNumber
from ...schema.promotion import FLOATS, Promotion, common_float
from ...shapes import Spec
from ..batching.families import LEADING
from ..node_names import by_operands
from .declarations import binary, float_unary, floating

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
