"""Ops that order elements, or pick them by their place in the order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..dtypes import bool_, int64, is_floating, widened
from ..errors import DTypeMismatch, IndexOutOfBounds, IndexOutOfRange, NotImplementedForDType
from ..schema.op import op
from ..schema.parameters import Array, Bool, Int, OptionalBool
from ..shapes import Spec, reduced_shape, wrap_dim

# Sorting -------------------------------------------------------------------------------------------------


def route(F: Any, grads: Any, indices: Any, input_shape: Any, dim: int) -> Any:
    """The gradient of values that were taken from ``indices`` along ``dim``."""
    if grads[0] is None or not input_shape:
        return grads[0]
    return F.scatter_add(F.new_zeros(grads[0], input_shape), dim, indices, grads[0])


def route_picked(F: Any, grads: Any, indices: Any, input_shape: Any, dim: int, keepdim: bool) -> Any:
    """As :func:`route`, of one element a row, the dimension being kept or not."""
    if grads[0] is None or not input_shape:
        return grads[0]
    if keepdim:
        return route(F, grads, indices, input_shape, dim)
    axis = wrap_dim(dim, len(input_shape))
    return route(F, (F.unsqueeze(grads[0], axis),), F.unsqueeze(indices, axis), input_shape, dim)


def _order(xp: Any, input: Any, dim: int, descending: bool = False) -> Any:
    """Indices that sort along ``dim``, equals in their order; NaN is above all."""
    input = widened(input)  # bfloat16 has no order for NaN
    if not input.ndim:
        return xp.zeros((), int64.numpy)
    if not descending:
        return xp.argsort(input, axis=dim, kind="stable")
    backwards = xp.argsort(xp.flip(input, dim), axis=dim, kind="stable")
    return input.shape[dim] - 1 - xp.flip(backwards, dim)


def _take(xp: Any, input: Any, indices: Any, dim: int) -> Any:
    return xp.take_along_axis(input, indices, axis=dim) if input.ndim else input


def _sort_rule(input: Any, dim: int = -1, descending: bool = False, **_: Any) -> list[Spec]:
    wrap_dim(dim, len(input.shape))
    return [Spec(input.shape, input.dtype), Spec(input.shape, int64.numpy)]


def _argsort_rule(input: Any, dim: int = -1, descending: bool = False, **_: Any) -> Spec:
    return _sort_rule(input, dim)[1]


@op(_sort_rule, outputs=("values", "indices"))
def sort(xp: Any, input: Array, dim: Int = -1, descending: Bool = False) -> Any:
    """The elements in order along ``dim``, and their indices; equals keep their order, NaN is above all."""
    order = _order(xp, input, dim, descending)
    return _take(xp, input, order, dim), order


@op(_sort_rule, key="sort.stable", outputs=("values", "indices"), node="SortBackward1", scratch=2.0)
def sort_stable(xp: Any, input: Array, *, stable: OptionalBool, dim: Int = -1, descending: Bool = False) -> Any:
    """``sort``, which is always stable."""
    return sort.raw(xp, input, dim, descending)


@op(_argsort_rule, scratch=1.25)
def argsort(xp: Any, input: Array, dim: Int = -1, descending: Bool = False) -> Any:
    """The indices that sort along ``dim``; equals keep their order, NaN is above all."""
    return _order(xp, input, dim, descending)


@op(_argsort_rule, key="argsort.stable", scratch=2.0)
def argsort_stable(xp: Any, input: Array, *, stable: Bool, dim: Int = -1, descending: Bool = False) -> Any:
    """``argsort``, which is always stable."""
    return _order(xp, input, dim, descending)


def _topk_rule(input: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> list[Spec]:
    axis = wrap_dim(dim, len(input.shape))
    if not 0 <= k <= (input.shape[axis] if input.shape else 1):
        raise IndexOutOfBounds("selected index k out of range")
    if input.dtype == bool_.numpy:
        raise DTypeMismatch("topk does not support bool dtypes on CPU")
    shape = tuple(k if d == axis else n for d, n in enumerate(input.shape))
    return [Spec(shape, input.dtype), Spec(shape, int64.numpy)]


@op(_topk_rule, outputs=("values", "indices"), scratch=2.0)
def topk(xp: Any, input: Array, k: Int, dim: Int = -1, largest: Bool = True, sorted: Bool = True) -> Any:
    """The ``k`` largest (or smallest) elements along ``dim`` in order, and their indices; NaN is above all."""
    order = _order(xp, input, dim, largest)
    if input.ndim:
        order = xp.take(order, xp.arange(k), axis=dim)
    return _take(xp, input, order, dim), order


for _sorting in (sort, sort_stable, topk):
    _sorting.derivative(input=route)

# One element of the order --------------------------------------------------------------------------------


def _pick_rule(name: str, kernel: str | None = None) -> Callable[..., list[Spec]]:
    def rule(input: Any, dim: int = -1, keepdim: bool = False) -> list[Spec]:
        axis = wrap_dim(dim, len(input.shape))
        if input.shape and input.shape[axis] == 0:
            raise IndexOutOfRange(f"{name}(): Expected reduction dim {axis} to have non-zero size.")
        if kernel and input.dtype == bool_.numpy:
            raise NotImplementedForDType(f"\"{kernel}\" not implemented for 'Bool'")
        shape = reduced_shape(input.shape, (axis,), keepdim)
        return [Spec(shape, input.dtype), Spec(shape, int64.numpy)]

    return rule


def _kthvalue_rule(input: Any, k: int, dim: int = -1, keepdim: bool = False) -> list[Spec]:
    axis = wrap_dim(dim, len(input.shape))
    if input.shape[axis : axis + 1] != (0,) and not 1 <= k <= (input.shape[axis] if input.shape else 1):
        raise IndexOutOfBounds(f"kthvalue(): selected number k out of range for dimension {axis}")
    return _pick_rule("kthvalue", "kthvalue_cpu")(input, dim, keepdim)


def _pick(xp: Any, input: Any, order: Any, place: Any, dim: int, keepdim: bool) -> Any:
    """The element at ``place`` of the order (one a row), and its index."""
    if not input.ndim:
        return input, order
    indices = xp.take_along_axis(order, place, axis=dim)
    values = xp.take_along_axis(input, indices, axis=dim)
    return (values, indices) if keepdim else (xp.squeeze(values, dim), xp.squeeze(indices, dim))


@op(_kthvalue_rule, outputs=("values", "indices"), scratch=2.0)
def kthvalue(xp: Any, input: Array, k: Int, dim: Int = -1, keepdim: Bool = False) -> Any:
    """The ``k``-th smallest element along ``dim``, counted from 1, and its index."""
    order = _order(xp, input, dim)
    place = xp.full([1] * input.ndim, k - 1)
    return _pick(xp, input, order, place, dim, keepdim)


def _median_rule(input: Any) -> Spec:
    if input.dtype == bool_.numpy:
        raise NotImplementedForDType("\"median_cpu\" not implemented for 'Bool'")
    return Spec((), input.dtype)


@op(_median_rule, scratch=1.25)
def median(xp: Any, input: Array) -> Any:
    """The middle element, the lower of two, or NaN if there is any; ties share the gradient evenly."""
    floating = is_floating(input.dtype)
    if not input.size:
        return xp.full((), math.nan if floating else xp.iinfo(input.dtype).min, input.dtype)
    ordered = xp.sort(xp.reshape(widened(input), (-1,)))
    return ordered[-1] if floating and xp.holds(xp.isnan(ordered[-1]), False) else ordered[(input.size - 1) // 2]


def _median_grad(F: Any, grad: Any, input: Any, result: Any) -> Any:
    hits = F.logical_or(F.eq(input, result), F.logical_and(F.isnan(input), F.isnan(result)))
    return F.div(grad * hits, F.sum(hits))


median.derivative(input=_median_grad)


@op(
    _pick_rule("median", "median_out"),
    key="median.dim",
    outputs=("values", "indices"),
    node="MedianBackward1",
    scratch=4.0,
)
def median_dim(xp: Any, input: Array, dim: Int, keepdim: Bool = False) -> Any:
    """The middle element along ``dim``, the lower of two, and its index; the first NaN if there is any."""
    order = _order(xp, input, dim)
    if not input.ndim:
        return input, order
    n = input.shape[dim]
    nans = xp.sum(input != input, axis=dim, keepdims=True)
    return _pick(xp, input, order, xp.where(nans > 0, n - nans, (n - 1) // 2), dim, keepdim)


@op(_pick_rule("mode"), outputs=("values", "indices"), scratch=10.0)
def mode(xp: Any, input: Array, dim: Int = -1, keepdim: Bool = False) -> Any:
    """The most frequent element along ``dim``, the smallest of several, and the last index where it is."""
    order = _order(xp, input, dim)
    if not input.ndim:
        return input, order
    ordered = xp.moveaxis(xp.take_along_axis(input, order, axis=dim), dim, -1)
    places = xp.arange(ordered.shape[-1])
    begins = xp.concatenate([ordered[..., :1] == ordered[..., :1], ordered[..., 1:] != ordered[..., :-1]], axis=-1)
    # How far into its run of equals each place is: the first of the largest ends the longest run.
    depth = places - xp.running("maximum", xp.where(begins, places, 0), -1)
    ends = xp.moveaxis(xp.argmax(depth, axis=-1, keepdims=True), -1, dim)
    return _pick(xp, input, order, ends, dim, keepdim)


for _picking in (kthvalue, median_dim, mode):
    _picking.derivative(input=route_picked)
