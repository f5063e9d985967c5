"""Special functions: of the error integral, of the gamma function, and of logarithms to other bases."""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import FLOATING, bool_, from_numpy
from ..errors import InvalidOperation, NotImplementedForDType
from ..schema.cases import T, binary, case, unary
from ..schema.op import common_dtype, common_float, composite, elementwise, op
from ..schema.parameters import Array, Int, Operand, OptionalNumber
from ..shapes import Spec
from .naming import by_operands

# Powers of 2, logarithms ---------------------------------------------------------------------------------


@elementwise(floats=True, cases=unary())
def exp2(xp: Any, input: Array) -> Any:
    """2 to the power of ``input``."""
    return xp.exp2(input)


exp2.derivative(input=lambda F, grad, result: grad * result * math.log(2))


@elementwise(floats=True, cases=unary(0.2, 3.0))
def log2(xp: Any, input: Array) -> Any:
    """The logarithm to base 2."""
    return xp.log2(input)


log2.derivative(input=lambda F, grad, input: grad / (input * math.log(2)))


@elementwise(floats=True, cases=unary(0.2, 3.0))
def log10(xp: Any, input: Array) -> Any:
    """The logarithm to base 10."""
    return xp.log10(input)


log10.derivative(input=lambda F, grad, input: grad / (input * math.log(10)))


def _no_whole_numbers(input: Any, other: Any) -> None:
    dtype = common_dtype((input, other))
    if dtype not in FLOATING:
        raise NotImplementedForDType(f"\"logaddexp_cpu\" not implemented for '{from_numpy(dtype).kernel_name}'")


@elementwise(
    cases=[
        *binary()[:-1],
        case(T(2, low=-300, high=300), T(3, 1, low=-300, high=300)),
        case(T(3, values=[-math.inf, math.inf, -math.inf]), T(3, values=[0.0, 0.0, -math.inf])),
    ],
    inplace=False,
    guard=_no_whole_numbers,
)
def logaddexp(xp: Any, input: Array, other: Array) -> Any:
    """``log(exp(input) + exp(other))`` without overflow."""
    return xp.logaddexp(input, other)


logaddexp.derivative(
    input=lambda F, grad, input, other: grad / (1 + F.exp(other - input)),
    other=lambda F, grad, input, other: grad / (1 + F.exp(input - other)),
)


@elementwise(cases=[*binary()[:-1], case(T(2), T(2, dtype="int64"))], inplace=False, guard=_no_whole_numbers)
def logaddexp2(xp: Any, input: Array, other: Array) -> Any:
    """``log2(2**input + 2**other)`` without overflow."""
    return xp.logaddexp2(input, other)


logaddexp2.derivative(
    input=lambda F, grad, input, other: grad / (1 + F.exp2(other - input)),
    other=lambda F, grad, input, other: grad / (1 + F.exp2(input - other)),
)


@elementwise(
    floats=True,
    cases=[
        *binary(0.2, 3.0),
        case(2.0, T(2, 3, low=0.2, high=3.0)),
        case(T(4, values=[0.0, 0.0, 0.0, 2.0]), T(4, values=[0.0, -1.0, math.nan, -1.0], constant=True)),
        case(T(2, values=[0.0, 1.0]), 0),
        case(T(2, values=[0.0, 1.0]), 2),
    ],
    node=by_operands("Xlogy", tensors=0, number_first=1, number_second=2),
    scratch=1.25,
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


@elementwise(
    floats=True,
    cases=[
        *unary(0.1, 0.9),
        case(T(5, values=[0.05, 0.1, 0.5, 0.9, 0.95]), 0.1),
        case(T(2, 3, low=0.1, high=0.9), eps=None),
        case(T(3, values=[0.5, 2.0, -1.0])),
        case(T(4, values=[0.2, 0.5, 0.7, 0.8]), eps=0.7),
        case(T(3, values=[1.0, 2.0, -1.0], dtype="int64"), 0.25),
    ],
    widens=False,
)
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

# The error integral --------------------------------------------------------------------------------------


@elementwise(floats=True, cases=unary(), scratch=3.0)
def erf(xp: Any, input: Array) -> Any:
    """The error function: the integral of ``2 / sqrt(pi) * exp(-t * t)`` from 0 to ``input``."""
    return xp.erf(input)


erf.derivative(input=lambda F, grad, input: grad * (2 / math.sqrt(math.pi) * F.exp(-input * input)))


@elementwise(floats=True, cases=[*unary(), case(T(3, low=4, high=6))])
def erfc(xp: Any, input: Array) -> Any:
    """``1 - erf(input)``, accurate where that is near 0."""
    return xp.erfc(input)


erfc.derivative(input=lambda F, grad, input: grad * (-2 / math.sqrt(math.pi) * F.exp(-input * input)))


@elementwise(floats=True, cases=[*unary(-0.9, 0.9), case(T(3, values=[0.0, 1.0, 2.0]))])
def erfinv(xp: Any, input: Array) -> Any:
    """The inverse of the error function, between -1 and 1."""
    return xp.erfinv(input)


erfinv.derivative(input=lambda F, grad, result: grad * (math.sqrt(math.pi) / 2 * F.exp(result * result)))

# The gamma function --------------------------------------------------------------------------------------


GAMMA = [
    *unary(0.3, 4.0),
    case(T(4, values=[-0.5, -1.5, -0.25, 20.0])),
    case(T(5, values=[0.0, -1.0, -math.inf, math.inf, math.nan], constant=True)),
]


@elementwise(floats=True, cases=[*GAMMA, case(T(2, values=[1.0, 2.0]))], scratch=2.5)
def lgamma(xp: Any, input: Array) -> Any:
    """The logarithm of the gamma function's magnitude."""
    return xp.lgamma(input)


lgamma.derivative(input=lambda F, grad, input: grad * F.digamma(input))


@elementwise(floats=True, cases=GAMMA)
def digamma(xp: Any, input: Array) -> Any:
    """The derivative of ``lgamma``."""
    return xp.digamma(input)


digamma.derivative(input=lambda F, grad, input: grad * F.polygamma(1, input))


def _polygamma_rule(n: int, input: Any) -> Spec:
    if n < 0:
        raise InvalidOperation("polygamma(n, x) does not support negative n.")
    return Spec(input.shape, common_float((input,)))


@op(
    _polygamma_rule,
    cases=[case(n, T(3, low=0.4, high=4.0)) for n in (0, 1, 2, 5, -1)] + [case(1, T()), case(2, T(0, 3))],
    common=common_float,
    method=False,  # torch's method has the order last
    scratch=3.0,
)
def polygamma(xp: Any, n: Int, input: Array) -> Any:
    """The derivative of order ``n`` of ``digamma``."""
    return xp.polygamma(n, input)


polygamma.derivative(input=lambda F, grad, n, input: grad * F.polygamma(n + 1, input))


@composite(
    inplace=True,
    cases=[
        case(T(3, low=2.0, high=4.0), 2),
        case(T(2, 2, low=3.0, high=4.0), 3),
        case(T(2, low=1.0, high=2.0), 1),
        case(T(2), 0),
    ],
)
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
