"""Variances and standard deviations, alone and with the mean."""

from __future__ import annotations

import math
from typing import Any

from ..cases import T, case, reduction
from ..dtypes import is_floating, widened
from ..errors import DTypeMismatch
from ..params import Array, Bool, OptionalBool, OptionalInts, OptionalNumber
from ..registry import composite, op
from ..specs import Spec, wrap_dims
from .reduce import axes, count, reduced, restore


def _var_rule(
    input: Any,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Spec:
    if not is_floating(input.dtype):
        raise DTypeMismatch("std and var only support floating point and complex dtypes")
    wrap_dims(dim, len(input.shape), in_turn=True)
    return reduced(input, dim, keepdim)


def _correction(unbiased: Any, correction: Any) -> float:
    if correction is not None:
        return float(correction)
    return 0.0 if unbiased is False else 1.0


VARIANCES = [
    *[case(*c.args, **c.kwargs) for c in reduction((3, 2, 4)) if c.args[0].shape],
    case(T(3, 4), dim=1, correction=0),
    case(T(3, 4), dim=0, unbiased=False),
]


@op(_var_rule, cases=VARIANCES)
def var(
    xp: Any,
    input: Array,
    dim: OptionalInts = None,
    unbiased: OptionalBool = None,
    keepdim: Bool = False,
    *,
    correction: OptionalNumber = None,
) -> Any:
    """The variance over ``dim``, divided by n - correction (1 unless told)."""
    axis, input = axes(dim, input.ndim), widened(input)
    n = count(input.shape, dim) - _correction(unbiased, correction)
    total = xp.sum(input, axis=axis, keepdims=True)
    centred = input - xp.true_divide(total, count(input.shape, dim), dtype=total.dtype)
    total = xp.sum(centred * centred, axis=axis, keepdims=keepdim)
    return total / max(n, 0.0) if n > 0 else total / xp.zeros((), input.dtype)


def _centred(F: Any, input: Any, dim: Any) -> Any:
    return input - F.mean(input, dim, True)


def _var_grad(F: Any, grad: Any, input: Any, dim: Any, unbiased: Any, keepdim: Any, correction: Any) -> Any:
    n = count(input.shape, dim) - _correction(unbiased, correction)
    spread = restore(F, grad, tuple(input.shape), dim, keepdim)
    return spread * _centred(F, input, dim) * (2.0 / n if n else math.nan)


var.derivative(input=_var_grad)


@op(_var_rule, cases=VARIANCES)
def std(
    xp: Any,
    input: Array,
    dim: OptionalInts = None,
    unbiased: OptionalBool = None,
    keepdim: Bool = False,
    *,
    correction: OptionalNumber = None,
) -> Any:
    """The standard deviation over ``dim``: the square root of the variance."""
    return xp.sqrt(var.raw(xp, input, dim, unbiased, keepdim, correction=correction))


def _std_grad(
    F: Any, grad: Any, input: Any, result: Any, dim: Any, unbiased: Any, keepdim: Any, correction: Any
) -> Any:
    # Where the deviation is 0 the slope is taken as 0, as torch does.
    slope = F.where(result == 0.0, 0.0, grad / (result * 2.0))
    return _var_grad(F, slope, input, dim, unbiased, keepdim, correction)


std.derivative(input=_std_grad)


MOMENTS = [
    case(T(2, 3)),
    case(T(2, 3, 4), 1),
    case(T(2, 3, 4), (0, 2), True, True),
    case(T(2, 3), 1, False),
    case(T(2, 3), dim=0, correction=0, keepdim=True),
    case(T(2, 3), 2),
]


@composite(method=False, lists_outputs=True, cases=MOMENTS)
def var_mean(
    F: Any,
    input: Array,
    dim: OptionalInts = None,
    unbiased: OptionalBool = None,
    keepdim: Bool = False,
    *,
    correction: OptionalNumber = None,
) -> Any:
    """The variance over ``dim``, divided by n - correction (1 unless told), and the mean."""
    return F.var(input, dim, unbiased, keepdim, correction=correction), F.mean(input, dim, keepdim)


@composite(method=False, lists_outputs=True, cases=MOMENTS)
def std_mean(
    F: Any,
    input: Array,
    dim: OptionalInts = None,
    unbiased: OptionalBool = None,
    keepdim: Bool = False,
    *,
    correction: OptionalNumber = None,
) -> Any:
    """The standard deviation over ``dim``, as ``var_mean`` the variance, and the mean."""
    return F.std(input, dim, unbiased, keepdim, correction=correction), F.mean(input, dim, keepdim)
