"""Running products, extremes and log-sum-exps, and the product along a dimension."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..dtypes import from_numpy, int64, is_floating, widened
from ..errors import IndexOutOfRange, NotImplementedForDType
from ..schema.op import op
from ..schema.parameters import Array, Bool, Int, OptionalDType
from ..shapes import Spec, reduced_shape, wrap_dim
from .reduce import accumulated_dtype, check_counted
from .sorting import route

# Products ------------------------------------------------------------------------------------------------


def _cumprod_rule(input: Any, dim: int, *, dtype: Any = None) -> Spec:
    check_counted("cumprod_out_cpu", dtype)
    wrap_dim(dim, len(input.shape))
    return Spec(input.shape, accumulated_dtype(input, dtype))


@op(
    _cumprod_rule,
    inplace=True,
)
def cumprod(xp: Any, input: Array, dim: Int, *, dtype: OptionalDType = None) -> Any:
    """The running product along ``dim``."""
    wide = widened(input.astype(accumulated_dtype(input, dtype)))
    return xp.cumprod(wide, axis=dim) if input.ndim else wide


def _before(F: Any, running: Any, dim: int) -> Any:
    """A running product without each place's own factor."""
    n = running.shape[dim]
    return F.cat([F.ones_like(F.narrow(running, dim, 0, 1)), F.narrow(running, dim, 0, n - 1)], dim)


def _accumulate_back(F: Any, total: Any, factor: Any, dim: int) -> Any:
    """s, where s[k] = total[k] + factor[k] s[k + 1], and the last is total's.

    Unrolled by doubling (Hillis and Steele's scan): after a step s[k] spans twice as many terms, and
    factor[k], of those places that still lead somewhere, leads past them.
    """
    n, step = total.shape[dim], 1
    while step < n:
        left = n - step
        reached = F.narrow(total, dim, 0, left) + factor * F.narrow(total, dim, step, left)
        total = F.cat([reached, F.narrow(total, dim, left, step)], dim)
        if left > step:
            factor = F.narrow(factor, dim, 0, left - step) * F.narrow(factor, dim, step, left - step)
        step *= 2
    return total


def _cumprod_grad(F: Any, grad: Any, input: Any, result: Any, dim: int) -> Any:
    """The product before each place times what it leads to: no division, so it is exact with zeros."""
    if not input.shape or not input.shape[dim]:
        return grad
    following = F.narrow(input, dim, 1, input.shape[dim] - 1)
    return _before(F, result, dim) * _accumulate_back(F, grad, following, dim)


cumprod.derivative(input=_cumprod_grad)


def _prod_rule(input: Any, dim: int, keepdim: bool = False, *, dtype: Any = None) -> Spec:
    axis = wrap_dim(dim, len(input.shape))
    return Spec(reduced_shape(input.shape, (axis,), keepdim), accumulated_dtype(input, dtype))


@op(_prod_rule, key="prod.dim", node="ProdBackward1", scratch=1.25)
def prod_dim(xp: Any, input: Array, dim: Int, keepdim: Bool = False, *, dtype: OptionalDType = None) -> Any:
    """The product along ``dim``."""
    wide = widened(input.astype(accumulated_dtype(input, dtype)))
    return xp.prod(wide, axis=dim, keepdims=keepdim) if input.ndim else wide


def _prod_grad(F: Any, grad: Any, input: Any, dim: int, keepdim: bool) -> Any:
    """The product of all that comes before times that of all that comes after: exact with zeros."""
    if not input.shape:
        return grad
    if not keepdim:
        grad = F.unsqueeze(grad, wrap_dim(dim, len(input.shape)))
    if not input.shape[dim]:
        return F.new_zeros(grad, tuple(input.shape))
    before = _before(F, F.cumprod(input, dim), dim)
    after = F.flip(_before(F, F.cumprod(F.flip(input, (dim,)), dim), dim), (dim,))
    return grad * before * after


prod_dim.derivative(input=_prod_grad)


# Extremes ------------------------------------------------------------------------------------------------


def _running_rule(name: str) -> Callable[..., list[Spec]]:
    def rule(input: Any, dim: int) -> list[Spec]:
        if not input.shape and dim not in (0, -1):
            raise IndexOutOfRange(f"{name}(): Expected reduction dim -1 or 0 for scalar but got {dim}")
        wrap_dim(dim, len(input.shape))
        return [Spec(input.shape, input.dtype), Spec(input.shape, int64.numpy)]

    return rule


def _running(xp: Any, extreme: str, input: Any, dim: int) -> Any:
    if not input.ndim:
        return input, xp.zeros((), int64.numpy)
    values = xp.running(extreme, input, dim)
    places = xp.arange(input.shape[dim]).reshape([-1 if d == dim % input.ndim else 1 for d in range(input.ndim)])
    # A place that equals the extreme so far is its newest one; a NaN is the extreme from there on.
    newest = xp.where((input == values) | (input != input), places, 0)
    return values, xp.running("maximum", newest, dim)


@op(_running_rule("cummax"), outputs=("values", "indices"))
def cummax(xp: Any, input: Array, dim: Int) -> Any:
    """The running maximum along ``dim`` and its indices, the last of equals; the gradient goes to the index."""
    return _running(xp, "maximum", input, dim)


@op(_running_rule("cummin"), outputs=("values", "indices"))
def cummin(xp: Any, input: Array, dim: Int) -> Any:
    """The running minimum along ``dim`` and its indices, the last of equals; the gradient goes to the index."""
    return _running(xp, "minimum", input, dim)


for _indexed in (cummax, cummin):
    _indexed.derivative(input=route)


# Log-sum-exp ---------------------------------------------------------------------------------------------


def _logcumsumexp_rule(input: Any, dim: int) -> Spec:
    wrap_dim(dim, len(input.shape))
    if not is_floating(input.dtype):
        kind = from_numpy(input.dtype).kernel_name
        raise NotImplementedForDType(f"\"logcumsumexp_out_cpu\" not implemented for '{kind}'")
    return Spec(input.shape, input.dtype)


@op(
    _logcumsumexp_rule,
)
def logcumsumexp(xp: Any, input: Array, dim: Int) -> Any:
    """The logarithm of the running sum of exponentials along ``dim``, without overflow."""
    return xp.running("logaddexp", widened(input), dim) if input.ndim else input


def _logcumsumexp_grad(F: Any, grad: Any, input: Any, result: Any, dim: int) -> Any:
    """The sum of grad[i] exp(input[k] - result[i]) over i >= k, by factors that are never above 1."""
    if not input.shape or not input.shape[dim]:
        return grad
    left = input.shape[dim] - 1
    here, there = F.narrow(result, dim, 0, left), F.narrow(result, dim, 1, left)
    decay = F.where(here == -math.inf, 0.0, F.exp(here - there))
    own = F.exp(input - result)
    # Up to the first finite element that is NaN, as in torch; it must not spread to what follows.
    none = result == -math.inf
    return F.where(none, own * grad, F.where(none, 0.0, own) * _accumulate_back(F, grad, decay, dim))


logcumsumexp.derivative(input=_logcumsumexp_grad)
