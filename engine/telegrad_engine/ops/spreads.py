"""Variances and standard deviations, alone and with the mean."""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import is_floating, widened
from ..errors import DTypeMismatch
from ..schema.op import composite, op
from ..schema.parameters import Array, Bool, OptionalBool, OptionalInts, OptionalNumber
from ..shapes import Spec, wrap_dims
from .blocks import reduce_in_blocks
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


@op(_var_rule, scratch=3.0, blocked=True)
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
    axis = axes(dim, input.ndim)
    n = count(input.shape, dim) - _correction(unbiased, correction)
    total = reduce_in_blocks(xp, xp.sum, widened, (input,), axis, True)
    mean = xp.true_divide(total, count(input.shape, dim), dtype=total.dtype)
    total = reduce_in_blocks(xp, xp.sum, _squared_gaps, (input, mean), axis, keepdim)
    return total / max(n, 0.0) if n > 0 else total / xp.zeros((), total.dtype)


def _squared_gaps(input: Any, mean: Any) -> Any:
    gaps = widened(input) - mean
    return gaps * gaps


def _centred(F: Any, input: Any, dim: Any) -> Any:
    return input - F.mean(input, dim, True)


def _var_grad(F: Any, grad: Any, input: Any, dim: Any, unbiased: Any, keepdim: Any, correction: Any) -> Any:
    n = count(input.shape, dim) - _correction(unbiased, correction)
    spread = restore(F, grad, tuple(input.shape), dim, keepdim)
    return spread * _centred(F, input, dim) * (2.0 / n if n else math.nan)


var.derivative(input=_var_grad)


@op(_var_rule, scratch=3.0, blocked=True)
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


@composite(method=False, lists_outputs=True)
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


@composite(method=False, lists_outputs=True)
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


@composite(key="var.unbiased")
def var_unbiased(F: Any, input: Array, unbiased: Bool) -> Any:
    """The variance over all dimensions, divided by n - 1 if ``unbiased``, else by n."""
    return F.var(input, None, unbiased)


@composite(key="std.unbiased")
def std_unbiased(F: Any, input: Array, unbiased: Bool) -> Any:
    """The standard deviation over all dimensions, as ``var`` divides."""
    return F.std(input, None, unbiased)


@composite(key="var_mean.unbiased", method=False, lists_outputs=True)
def var_mean_unbiased(F: Any, input: Array, unbiased: Bool) -> Any:
    """The variance over all dimensions, as ``var`` divides, and the mean."""
    return F.var_mean(input, None, unbiased)


@composite(key="std_mean.unbiased", method=False, lists_outputs=True)
def std_mean_unbiased(F: Any, input: Array, unbiased: Bool) -> Any:
    """The standard deviation over all dimensions, as ``var`` divides, and the mean."""
    return F.std_mean(input, None, unbiased)
