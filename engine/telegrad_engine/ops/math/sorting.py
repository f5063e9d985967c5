"""Sorting, the largest and smallest elements, and selection by rank."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from ...dtypes import bool_, float32, from_numpy, int64, is_floating, widened
from ...errors import DTypeMismatch, IndexOutOfBounds, IndexOutOfRange, InvalidOperation
from ...schema.declaration import NO_SCRATCH, named, scratch
from ...schema.op import composite, op
from ...schema.parameters import Array, Bool, Int, Number, OptionalBool, OptionalInt, OptionalInts
from ...schema.promotion import FLOAT32_ON_CUDA
from ...shapes import Spec, reduced_shape, wrap_dim, wrap_dims
from ..batching import math_rules
from ..guards import check_no_bools
from .reduction import axes, reduced, restore


def route(F: Any, grads: Any, indices: Any, input_shape: Any, dim: int) -> Any:
    """The gradient of values that were gathered from ``indices`` along ``dim``."""
    if grads[0] is None or not input_shape:
        return grads[0]
    return F.scatter_add(F.new_zeros(grads[0], input_shape), dim, indices, grads[0])


def route_picked(F: Any, grads: Any, indices: Any, input_shape: Any, dim: int, keepdim: bool) -> Any:
    """Like :func:`route`, for one element per row, with or without ``keepdim``."""
    if grads[0] is None or not input_shape:
        return grads[0]
    if keepdim:
        return route(F, grads, indices, input_shape, dim)
    axis = wrap_dim(dim, len(input_shape))
    return route(F, (F.unsqueeze(grads[0], axis),), F.unsqueeze(indices, axis), input_shape, dim)


def sort_order(xp: Any, input: Any, dim: int, descending: bool = False) -> Any:
    """The indices of a stable sort along ``dim``; NaN is greater than every number."""
    input = widened(input)  # bfloat16 has no ordering of NaN
    if not input.ndim:
        return xp.zeros((), int64.numpy)
    if not descending:
        return xp.argsort(input, axis=dim, kind="stable")
    backwards = xp.argsort(xp.flip(input, dim), axis=dim, kind="stable")
    return input.shape[dim] - 1 - xp.flip(backwards, dim)


def _take(xp: Any, input: Any, indices: Any, dim: int) -> Any:
    return xp.take_along_axis(input, indices, axis=dim) if input.ndim else input


def values_and_indices(input: Any, shape: Any) -> list[Spec]:
    """The specs of an op that returns elements of ``input`` and their indices, both of ``shape``."""
    return [Spec(shape, input.dtype), Spec(shape, int64.numpy)]


def _sort_rule(input: Any, dim: int) -> list[Spec]:
    wrap_dim(dim, len(input.shape))
    return values_and_indices(input, input.shape)


def _argsort_rule(input: Any, dim: int) -> Spec:
    return _sort_rule(input, dim)[1]


@op(_sort_rule, results=named("values", "indices"))
def sort(xp: Any, input: Array, dim: Int = -1, descending: Bool = False) -> Any:
    """The elements in order along ``dim``, and their indices; equals keep their order, NaN is above all."""
    order = sort_order(xp, input, dim, descending)
    return _take(xp, input, order, dim), order


@op(_sort_rule, key="sort.stable", node="SortBackward1", results=named("values", "indices"), memory=scratch(2.0))
def sort_stable(xp: Any, input: Array, *, stable: OptionalBool, dim: Int = -1, descending: Bool = False) -> Any:
    """``sort``, which is always stable."""
    return sort.raw(xp, input, dim, descending)


@op(_argsort_rule, memory=scratch(1.25))
def argsort(xp: Any, input: Array, dim: Int = -1, descending: Bool = False) -> Any:
    """The indices that sort along ``dim``; equals keep their order, NaN is above all."""
    return sort_order(xp, input, dim, descending)


@op(_argsort_rule, key="argsort.stable", memory=scratch(2.0))
def argsort_stable(xp: Any, input: Array, *, stable: Bool, dim: Int = -1, descending: Bool = False) -> Any:
    """``argsort``, which is always stable."""
    return sort_order(xp, input, dim, descending)


def _topk_rule(input: Any, k: int, dim: int) -> list[Spec]:
    axis = wrap_dim(dim, len(input.shape))
    if not 0 <= k <= (input.shape[axis] if input.shape else 1):
        raise IndexOutOfBounds("selected index k out of range")
    if input.dtype == bool_.numpy:
        raise DTypeMismatch("topk does not support bool dtypes on CPU")
    return values_and_indices(input, tuple(k if d == axis else n for d, n in enumerate(input.shape)))


@op(_topk_rule, results=named("values", "indices"), memory=scratch(2.0))
def topk(xp: Any, input: Array, k: Int, dim: Int = -1, largest: Bool = True, sorted: Bool = True) -> Any:
    """The ``k`` largest (or smallest) elements along ``dim`` in order, and their indices; NaN is above all."""
    order = sort_order(xp, input, dim, largest)
    if input.ndim:
        order = xp.take(order, xp.arange(k), axis=dim)
    return _take(xp, input, order, dim), order


for _sorting in (sort, sort_stable, topk):
    _sorting.derivative(input=route)

# Selection by rank ---------------------------------------------------------------------------------------


def _check_reduced(name: str, input: Any, axis: int) -> None:
    """Raise for a dimension of size 0."""
    if input.shape and input.shape[axis] == 0:
        raise IndexOutOfRange(f"{name}(): Expected reduction dim {axis} to have non-zero size.")


def pick_rule(name: str, kernel: str | None, input: Any, dim: int, keepdim: bool) -> list[Spec]:
    """The specs of one element along ``dim`` and its index; ``kernel`` is torch's name if it does not support bools."""
    axis = wrap_dim(dim, len(input.shape))
    _check_reduced(name, input, axis)
    if kernel:
        check_no_bools(kernel, input)
    return values_and_indices(input, reduced_shape(input.shape, (axis,), keepdim))


def _kthvalue_rule(input: Any, k: int, dim: int, keepdim: bool) -> list[Spec]:
    axis = wrap_dim(dim, len(input.shape))
    if input.shape[axis : axis + 1] != (0,) and not 1 <= k <= (input.shape[axis] if input.shape else 1):
        raise IndexOutOfBounds(f"kthvalue(): selected number k out of range for dimension {axis}")
    return pick_rule("kthvalue", "kthvalue_cpu", input, dim, keepdim)


def pick(xp: Any, input: Any, order: Any, place: Any, dim: int, keepdim: bool) -> Any:
    """The element at position ``place`` of the sorted order in each row, and its index."""
    if not input.ndim:
        return input, order
    return _take_one(xp, input, xp.take_along_axis(order, place, axis=dim), dim, keepdim)


def _take_one(xp: Any, input: Any, indices: Any, dim: int, keepdim: bool) -> Any:
    """The elements at ``indices``, which have size 1 along ``dim``, and the indices."""
    values = xp.take_along_axis(input, indices, axis=dim)
    return (values, indices) if keepdim else (xp.squeeze(values, dim), xp.squeeze(indices, dim))


@op(_kthvalue_rule, results=named("values", "indices"), memory=scratch(2.0))
def kthvalue(xp: Any, input: Array, k: Int, dim: Int = -1, keepdim: Bool = False) -> Any:
    """The ``k``-th smallest element along ``dim``, counted from 1, and its index."""
    order = sort_order(xp, input, dim)
    place = xp.full([1] * input.ndim, k - 1)
    return pick(xp, input, order, place, dim, keepdim)


def _median_rule(input: Any) -> Spec:
    check_no_bools("median_cpu", input)
    return Spec((), input.dtype)


@op(_median_rule, memory=scratch(1.25), batching=math_rules.of_all)
def median(xp: Any, input: Array) -> Any:
    """The middle element, the lower of two, or NaN if there is any; ties share the gradient evenly."""
    floating = is_floating(input.dtype)
    if not input.size:
        return xp.full((), math.nan if floating else xp.iinfo(input.dtype).min, input.dtype)
    ordered = xp.sort(xp.reshape(widened(input), (-1,)))
    middle = ordered[(input.size - 1) // 2]
    if not floating or not xp.needs_care(xp.isnan(ordered[-1])):
        return middle
    return xp.where(xp.isnan(ordered[-1]), ordered[-1], middle)


def _share(F: Any, grad: Any, hits: Any, dim: Any) -> Any:
    """The gradient divided by the number of ``hits`` along ``dim`` or over all."""
    shares = F.sum(hits, dim, True, dtype=float32) if dim is not None else F.sum(hits, dtype=float32)
    dtype = grad._data.dtype if hasattr(grad, "_data") else grad.dtype
    return grad / F.to(shares, dtype=from_numpy(dtype))


def _shared(F: Any, grad: Any, input: Any, result: Any) -> Any:
    """The gradient shared evenly among the elements that are the result, which may be NaN."""
    hits = F.logical_or(F.eq(input, result), F.logical_and(F.isnan(input), F.isnan(result)))
    return F.where(hits, _share(F, grad, hits, None), 0.0)


median.derivative(input=_shared)


@op(
    partial(pick_rule, "median", "median_out"),
    key="median.dim",
    node="MedianBackward1",
    results=named("values", "indices"),
    memory=scratch(4.0),
)
def median_dim(xp: Any, input: Array, dim: Int, keepdim: Bool = False) -> Any:
    """The middle element along ``dim``, the lower of two, and its index; the first NaN if there is any."""
    order = sort_order(xp, input, dim)
    if not input.ndim:
        return input, order
    n = input.shape[dim]
    nans = xp.sum(input != input, axis=dim, keepdims=True)
    return pick(xp, input, order, xp.where(nans > 0, n - nans, (n - 1) // 2), dim, keepdim)


@op(partial(pick_rule, "mode", None), results=named("values", "indices"), memory=scratch(10.0))
def mode(xp: Any, input: Array, dim: Int = -1, keepdim: Bool = False) -> Any:
    """The most frequent element along ``dim``, the smallest of several, and the last index where it is."""
    order = sort_order(xp, input, dim)
    if not input.ndim:
        return input, order
    ordered = xp.moveaxis(xp.take_along_axis(input, order, axis=dim), dim, -1)
    places = xp.arange(ordered.shape[-1])
    begins = xp.concatenate([ordered[..., :1] == ordered[..., :1], ordered[..., 1:] != ordered[..., :-1]], axis=-1)
    # The position of each element in its run of equal ones: the first maximum ends the longest run.
    depth = places - xp.running("maximum", xp.where(begins, places, 0), -1)
    ends = xp.moveaxis(xp.argmax(depth, axis=-1, keepdims=True), -1, dim)
    return pick(xp, input, order, ends, dim, keepdim)


for _picking in (kthvalue, median_dim, mode):
    _picking.derivative(input=route_picked)


# The largest and the smallest elements -------------------------------------------------------------------


@composite(results=named("min", "max"))
def aminmax(F: Any, input: Array, *, dim: OptionalInt = None, keepdim: Bool = False) -> Any:
    """The smallest and the largest elements along ``dim``, or of all; ties share the gradient evenly."""
    over = () if dim is None else (dim,)
    return aminmax.bundle((F.amin(input, over, keepdim), F.amax(input, over, keepdim)))


@composite(autocast=FLOAT32_ON_CUDA)
def dist(F: Any, input: Array, other: Array, p: Number = 2) -> Any:
    """The ``p``-norm of the difference."""
    return F.linalg_vector_norm(input - other, p)


def _check_nonempty(name: str, input: Any) -> None:
    if math.prod(input.shape) == 0:
        raise InvalidOperation(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
            "Specify the reduction dim with the 'dim' argument."
        )


def _whole_rule(name: str, input: Any) -> Spec:
    """The spec of a reduction of all elements to one."""
    _check_nonempty(name, input)
    return Spec((), input.dtype)


def _extreme_rule(name: str, input: Any, dim: Any, keepdim: bool) -> Spec:
    if not dim:
        _check_nonempty(name, input)
    for axis in [wrap_dim(d, len(input.shape)) for d in dim or ()]:
        _check_reduced(name, input, axis)
    return reduced(input, dim, keepdim)


def _amax_grad(F: Any, grad: Any, input: Any, result: Any, dim: Any, keepdim: bool) -> Any:
    shape = tuple(input.shape)
    hits = F.eq(input, restore(F, result, shape, dim, keepdim))
    # A product, as in torch: an infinite gradient gives NaN at the other elements.
    return hits * _share(F, restore(F, grad, shape, dim, keepdim), hits, wrap_dims(dim, len(shape)) or None)


def _arg_rule(name: str, input: Any, dim: int | None, keepdim: bool) -> Spec:
    if input.dtype == bool_.numpy:
        raise InvalidOperation(f"{name}(): does not support bool input")
    if dim is not None:
        axis = wrap_dim(dim, len(input.shape))
        _check_reduced(name, input, axis)
        return Spec(reduced_shape(input.shape, (axis,), keepdim), int64.numpy)
    if math.prod(input.shape) == 0:
        raise IndexOutOfRange(f"{name}(): Expected reduction dim to be specified for input.numel() == 0.")
    return Spec((1,) * len(input.shape) if keepdim else (), int64.numpy)


def _declare_extreme(name: str, extreme: str, larger: str) -> None:
    """Declare the ops of "max" or of "min"; ``extreme`` and ``larger`` are their words, such as "smallest"."""

    def of_all(xp: Any, input: Array) -> Any:
        return getattr(xp, name)(input)

    def along_dim(xp: Any, input: Array, dim: Int, keepdim: Bool = False) -> Any:
        if not input.ndim:
            return input, xp.zeros((), int64.numpy)
        return _take_one(xp, input, getattr(xp, f"arg{name}")(input, axis=dim, keepdims=True), dim, keepdim)

    def of_two(F: Any, input: Array, other: Array) -> Any:
        return getattr(F, f"{name}imum")(input, other)

    def over_dims(xp: Any, input: Array, dim: OptionalInts = None, keepdim: Bool = False) -> Any:
        return getattr(xp, name)(input, axis=axes(dim, input.ndim), keepdims=keepdim)

    def index(xp: Any, input: Array, dim: OptionalInt = None, keepdim: Bool = False) -> Any:
        return getattr(xp, f"arg{name}")(input, axis=dim if input.ndim else None, keepdims=keepdim)

    of_all.__doc__ = f"The {extreme} element; ties share the gradient evenly."
    along_dim.__doc__ = f"The {extreme} elements along ``dim`` and their indices; the gradient goes to the index."
    of_two.__doc__ = f"The {larger} of two, elementwise: ``{name}imum``."
    over_dims.__doc__ = f"The {extreme} elements over ``dim``; ties share the gradient evenly."
    index.__doc__ = f"The index of the {extreme} element, of the flattened input unless ``dim`` is given."
    whole = op(partial(_whole_rule, name), key=name, node=f"{name.title()}Backward1", batching=math_rules.of_all)
    whole(of_all).derivative(input=_shared)
    pair = named("values", "indices")
    along = op(partial(pick_rule, name, None), key=f"{name}.dim", results=pair, memory=scratch(1.25))
    along(along_dim).derivative(input=route_picked)
    composite(key=f"{name}.other")(of_two)
    over = op(partial(_extreme_rule, f"a{name}"), key=f"a{name}", memory=NO_SCRATCH)
    over(over_dims).derivative(input=_amax_grad)
    op(partial(_arg_rule, f"arg{name}"), key=f"arg{name}", memory=scratch(1.25))(index)


_declare_extreme("max", "largest", "larger")
_declare_extreme("min", "smallest", "smaller")
