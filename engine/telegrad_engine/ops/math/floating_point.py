"""Signs, fractions, remainders and closeness of floating-point numbers, mantissas and exponents, and complex stubs."""

from __future__ import annotations

import math
from typing import Any

from ...dtypes import FLOATING, bool_, int32, is_floating, widened
from ...errors import DTypeMismatch, InvalidOperation, ShapeMismatch
from ...schema.declaration import (
    FUNCTION,
    INPLACE,
    MAY_ALIAS,
    METHOD,
    NO_BATCHING_RULE,
    ONLY_ITSELF,
    TRUTH,
    Batching,
    named,
    scratch,
)
from ...schema.op import composite, elementwise, op
from ...schema.parameters import Array, Bool, Number, Operand, OptionalNumber
from ...schema.promotion import FLOATS, TO_BOOL, UNWIDENED, default_float
from ...shapes import Spec, broadcast_shapes
from ..batching.rules import LEADING
from ..guards import check_no_bools, divisible, kernel_name, refuse_zero
from .declarations import binary, by_operand, division, floating, not_implemented_derivative, zero_gradient


@elementwise(promotion=TO_BOOL)
def signbit(xp: Any, input: Array) -> Any:
    """Whether the sign is a minus, which a zero and NaN may have too."""
    return xp.signbit(input) if is_floating(input.dtype) else xp.less(input, 0)


@elementwise(promotion=TO_BOOL)
def isposinf(xp: Any, input: Array) -> Any:
    """Whether each element is infinity."""
    return xp.equal(input, math.inf)


@elementwise(promotion=TO_BOOL)
def isneginf(xp: Any, input: Array) -> Any:
    """Whether each element is minus infinity."""
    return xp.equal(input, -math.inf)


def _one_dtype(input: Any, values: Any) -> None:
    if input.dtype != values.dtype:
        raise DTypeMismatch("heaviside is not yet implemented for tensors with different dtypes.")


@elementwise(guard=_one_dtype)
def heaviside(xp: Any, input: Array, values: Array) -> Any:
    """0 for what is below zero, 1 for what is above, ``values`` in between."""
    above = xp.where(input > 0, xp.ones((), input.dtype), xp.zeros((), input.dtype))
    return xp.where(input == 0, values, above)


_no_derivative = not_implemented_derivative("heaviside")
heaviside.derivative(input=_no_derivative, values=_no_derivative)


@elementwise(memory=scratch(1.25))
def sgn(xp: Any, input: Array) -> Any:
    """-1, 0 or 1: of real numbers the same as ``sign``; 0 of NaN."""
    if input.dtype == bool_.numpy:
        return xp.array(input)
    return xp.where(xp.isnan(input), xp.zeros_like(input), xp.sign(input))


sgn.derivative(input=zero_gradient)


@elementwise(guard=floating("frac_cpu"))
def frac(xp: Any, input: Array) -> Any:
    """What is left without the whole part, with the sign of ``input``."""
    return input - xp.trunc(input)


frac.derivative(input=lambda F, grad: grad)


@division(guard=divisible("fmod_cpu"), node=by_operand("Fmod", tensor=1, number=0), promotion=UNWIDENED)
def fmod(xp: Any, input: Array, other: Operand) -> Any:
    """The remainder of ``input / other``, with the sign of ``input``, as C's fmod."""
    refuse_zero(xp, input, other)
    return xp.fmod(input, other)


fmod.derivative(
    input=lambda F, grad: grad,
    other=lambda F, grad, input, other: -grad * F.trunc(input / other),
)


binary(
    "copysign",
    "The magnitude of ``input`` with the sign of ``other``, which may be that of a zero.",
    operands=(Array, Operand),
    node=by_operand("Copysign", tensor=0, number=1),
    promotion=FLOATS,
).derivative(
    input=lambda F, grad, input, result: grad * F.where(input == 0, 0.0, result / input),
    other=zero_gradient,
)


@elementwise(promotion=UNWIDENED, memory=scratch(1.25))
def nan_to_num(
    xp: Any, input: Array, nan: OptionalNumber = None, posinf: OptionalNumber = None, neginf: OptionalNumber = None
) -> Any:
    """``input`` with numbers for NaN (0) and the infinities (the largest and the lowest of the dtype)."""
    if input.dtype not in FLOATING:
        return xp.array(input)
    largest = xp.nextafter(xp.asarray(math.inf, input.dtype), xp.asarray(0, input.dtype))
    odd = ((xp.isnan(input), nan, 0), (input == math.inf, posinf, largest), (input == -math.inf, neginf, -largest))
    result = input
    for hit, wanted, default in odd:
        result = xp.where(hit, xp.asarray(default if wanted is None else wanted, input.dtype), result)
    return result


nan_to_num.derivative(input=lambda F, grad, input: grad * F.isfinite(input))


def _check_closeness(input: Any, other: Any, rtol: float, atol: float) -> None:
    if input.dtype != other.dtype:
        names = [kernel_name(x) for x in (input, other)]
        raise DTypeMismatch(f"{names[0]} did not match {names[1]}")
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if not tolerance >= 0:
            raise InvalidOperation(f"{name} must be greater than or equal to zero, but got {tolerance:g}")


@elementwise(guard=_check_closeness, promotion=TO_BOOL, memory=scratch(2.0))
def isclose(
    xp: Any, input: Array, other: Array, rtol: Number = 1e-05, atol: Number = 1e-08, equal_nan: Bool = False
) -> Any:
    """Whether equal, or ``abs(input - other) <= atol + rtol * abs(other)`` and finite."""
    close = xp.equal(input, other)
    if input.dtype not in FLOATING:
        input, other = input.astype(default_float()), other.astype(default_float())
    elif equal_nan:
        close = xp.logical_or(close, xp.logical_and(xp.isnan(input), xp.isnan(other)))
    error = xp.absolute(input - other)
    near = xp.logical_and(xp.isfinite(error), error <= atol + xp.absolute(rtol * other))
    return xp.logical_or(close, near)


def _closeness_rule(input: Any, other: Any, rtol: float, atol: float) -> Spec:
    broadcast_shapes(input.shape, other.shape)
    _check_closeness(input, other, rtol, atol)
    return Spec((), bool_.numpy)


@op(
    _closeness_rule,
    results=TRUTH,
    memory=scratch(10.0),
    batching=Batching(
        refusal=(
            "vmap over torch.allclose isn't supported yet. Please file an issue at "
            "https://github.com/pytorch/pytorch/issues if you need this feature."
        )
    ),
)
def allclose(
    xp: Any, input: Array, other: Array, rtol: Number = 1e-05, atol: Number = 1e-08, equal_nan: Bool = False
) -> Any:
    """Whether all elements are close, as ``isclose`` says."""
    return xp.all(isclose.raw(xp, input, other, rtol, atol, equal_nan))


@op(
    lambda input, other: Spec((), bool_.numpy),
    results=TRUTH,
    batching=Batching(refusal=NO_BATCHING_RULE.format("equal")),
)
def equal(xp: Any, input: Array, other: Array) -> Any:
    """Whether both have the same shape and the same elements; a NaN equals nothing."""
    return xp.asarray(tuple(input.shape) == tuple(other.shape) and bool(xp.all(xp.equal(input, other))))


# Mantissa and exponent, and the next representable number ------------------------------------------------


def _frexp_rule(input: Any) -> list[Spec]:
    if input.dtype not in FLOATING:
        raise DTypeMismatch("torch.frexp() only supports floating-point dtypes")
    return [Spec(input.shape, input.dtype), Spec(input.shape, int32.numpy)]


@op(_frexp_rule, results=named("mantissa", "exponent"), batching=LEADING)
def frexp(xp: Any, input: Array) -> Any:
    """Mantissas from 0.5 to 1 and whole exponents with ``mantissa * 2 ** exponent == input``."""
    mantissa, exponent = xp.frexp(widened(input))
    return mantissa.astype(input.dtype), exponent.astype(int32.numpy)


frexp.joint_derivative(lambda F, grads, needs, exponent: (None if grads[0] is None else F.ldexp(grads[0], -exponent),))


@composite(variants=FUNCTION | METHOD | INPLACE, overlap=ONLY_ITSELF)
def ldexp(F: Any, input: Array, other: Array) -> Any:
    """``input * 2 ** other``."""
    check_no_bools("ldexp_cpu_exp", other)
    factor = F.pow(2.0, other)
    if F.xp is None and input.is_floating_point() and not other.is_floating_point():
        factor = factor.to(dtype=input.dtype)
    return F.mul(input, factor)


binary(
    "nextafter",
    "The next number that the dtype has after ``input`` in the direction of ``other``.",
    guard=floating("nextafter_cpu"),
    promotion=UNWIDENED,
).derivative(
    input=lambda F, grad, input, other: F.where(input == other, 0.0, grad),
    other=zero_gradient,
)


# Complex numbers: no tensor is complex yet, so a conjugate is the tensor itself --------------------------

for _name, _doc, _variants in (
    ("conj", "The conjugate: the tensor itself.", FUNCTION | METHOD),
    ("resolve_conj", "The tensor itself, whose conjugate bit is never set.", FUNCTION | METHOD),
    ("resolve_neg", "The tensor itself, whose negative bit is never set.", FUNCTION | METHOD),
    ("conj_physical", "The conjugate: the tensor itself.", FUNCTION | METHOD | INPLACE),
):

    def _itself(F: Any, input: Array) -> Any:
        return input

    _itself.__doc__ = _doc
    composite(key=_name, variants=_variants, memory=MAY_ALIAS)(_itself)


@composite(memory=MAY_ALIAS)
def adjoint(F: Any, input: Array) -> Any:
    """The conjugate transpose of matrices: the transpose."""
    ndim = len(input.shape)
    if ndim == 1:
        raise ShapeMismatch(
            f"tensor.adjoint() is only supported on matrices or batches of matrices. Got {ndim}-D tensor."
        )
    return F.transpose(input, -2, -1) if ndim else input


@elementwise(promotion=TO_BOOL)
def isreal(xp: Any, input: Array) -> Any:
    """Whether the imaginary part is 0: always."""
    return xp.ones(input.shape, bool)


@elementwise(variants=FUNCTION | METHOD, promotion=FLOATS)
def angle(xp: Any, input: Array) -> Any:
    """The angle from the positive axis: pi for negative numbers, else 0."""
    real = xp.where(input < 0, xp.asarray(math.pi, input.dtype), xp.asarray(0, input.dtype))
    return xp.where(xp.isnan(input), input, real)


angle.derivative(input=zero_gradient)
