"""Ops that pick by flat index, repeat, reduce into places, and count."""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import from_numpy, int64
from ..errors import DTypeMismatch, IndexOutOfRange, InvalidOperation, ShapeMismatch
from ..schema.op import composite, op
from ..schema.parameters import Array, Bool, Int, OptionalInt, Str
from ..shapes import Spec, broadcast_shapes, size_at, wrap_dim
from .places import any_outside, check_along, padded_to, places, source
from .scatter import scatter


def _kind(x: Any) -> str:
    return from_numpy(x.dtype).kernel_name


# By index ------------------------------------------------------------------------------------------------


def _take_rule(input: Any, index: Any) -> Spec:
    if index.dtype != int64.numpy:
        raise DTypeMismatch(f"take(): Expected a long tensor for index, but got {_kind(index)}")
    if 0 in input.shape and 0 not in index.shape:
        raise IndexOutOfRange("take(): tried to take from an empty tensor")
    return Spec(index.shape, input.dtype)


@op(
    _take_rule,
)
def take(xp: Any, input: Array, index: Array) -> Any:
    """The elements at ``index``, as if ``input`` were a vector."""
    _check_taken(xp, input, index)
    return xp.reshape(input, (-1,))[index]


@take.checks("index")
def _check_taken(xp: Any, input: Any, index: Any) -> None:
    size = math.prod(input.shape)
    if any_outside(xp, index, -size, size):
        wrong = int(index.max()) if int(index.max()) >= size else int(index.min())
        raise IndexOutOfRange(f"out of range: tried to access index {wrong} on a tensor of {size} elements.")


take.derivative(
    input=lambda F, grad, input_shape, index: F.reshape(
        F.index_put(F.new_zeros(grad, (math.prod(input_shape),)), [index], grad, True), input_shape
    )
)


@composite()
def take_along_dim(F: Any, input: Array, indices: Array, dim: OptionalInt = None) -> Any:
    """Along ``dim``, the elements that ``indices`` names, both broadcast in the other dimensions."""
    data: Any = getattr(indices, "_data", indices)
    if data.dtype != int64.numpy:
        raise DTypeMismatch(f"torch.take_along_dim(): dtype of indices should be Long but got {_kind(data)}")
    if dim is None:
        return F.gather(F.reshape(input, (-1,)), 0, F.reshape(indices, (-1,)))
    ndim = len(input.shape)
    if ndim != len(indices.shape):
        raise ShapeMismatch(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, but got "
            f"{ndim} dimensions for input, and {len(indices.shape)} dimensions for indices"
        )
    axis = wrap_dim(dim, ndim)
    size_at(input.shape, dim)
    lone = tuple(1 if d == axis else n for d, n in enumerate(input.shape))
    shape = broadcast_shapes(lone, tuple(1 if d == axis else n for d, n in enumerate(indices.shape)))
    sizes = [(*shape[:axis], x.shape[axis], *shape[axis + 1 :]) for x in (input, indices)]
    places = F.remainder(indices, max(input.shape[axis], 1))  # torch's wraps here, whatever the index
    return F.gather(F.broadcast_to(input, sizes[0]), axis, F.broadcast_to(places, sizes[1]))


# Reducing into places ------------------------------------------------------------------------------------

REDUCERS = {"sum": "add", "mean": "add", "prod": "multiply", "amax": "maximum", "amin": "minimum"}


def _scatter_reduce_rule(input: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: Any = True) -> Spec:
    if reduce not in REDUCERS:
        raise InvalidOperation(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    spec: Spec = scatter.rule(input, index, src, dim=dim)
    return spec


def _start(xp: Any, reduce: str, dtype: Any) -> Any:
    """What reducing nothing gives."""
    if reduce in ("amax", "amin"):
        if dtype.kind == "b":
            return reduce == "amin"
        if dtype.kind in "iu":
            return xp.iinfo(dtype).min if reduce == "amax" else xp.iinfo(dtype).max
        return -xp.inf if reduce == "amax" else xp.inf
    return 1 if reduce == "prod" else 0


@op(_scatter_reduce_rule, inplace=True, scratch=3.0)
def scatter_reduce(
    xp: Any, input: Array, dim: Int, index: Array, src: Array, reduce: Str, *, include_self: Bool = True
) -> Any:
    """``input`` with ``src`` reduced into it along ``dim`` where ``index`` says."""
    axis = dim % max(input.ndim, 1)
    check_along(xp, input, index, dim=dim)
    if not index.size:
        return xp.copy(input)
    at = places(xp, index, axis)
    first = input if include_self else xp.index_set(input, at, _start(xp, reduce, input.dtype))
    result = xp.index_combine(first, at, source(src, index), REDUCERS[reduce])
    if reduce != "mean":
        return result
    counts = xp.index_add(xp.full(input.shape, int(include_self)), at, 1)
    counts = xp.maximum(counts, 1)
    return result // counts if input.dtype.kind in "iu" else (result / counts).astype(input.dtype)


scatter_reduce.checks("index")(lambda xp, input, index, src, **attrs: check_along(xp, input, index, **attrs))


@scatter_reduce.joint_derivative
def _scatter_reduce_grad(
    F: Any,
    grad: Any,
    needs: Any,
    input: Any,
    index: Any,
    src: Any,
    result: Any,
    input_dtype: Any,
    src_shape: Any,
    dim: int,
    reduce: str,
    include_self: bool,
) -> list[Any]:
    """As torch shares the gradient out: ties equally, a product's lone zero getting that of the other factors."""
    if 0 in index.shape:
        return [grad if needs[0] else None, None, F.new_zeros(grad, src_shape) if needs[2] else None]
    if tuple(src.shape) != tuple(index.shape):
        src = F.getitem(src, tuple(("slice", 0, n, 1) for n in index.shape))
    if reduce == "sum":
        to_input, to_src = grad, F.gather(grad, dim, index)
    elif reduce == "mean":
        counts = F.scatter_add(F.full_like(grad, float(include_self)), dim, index, F.ones_like(src))
        to_input = grad / F.clamp(counts, 1)
        to_src = F.gather(to_input, dim, index)
    elif reduce == "prod":
        whole = F.masked_fill(input, input == 0, 1)
        others = F.scatter_reduce(whole, dim, index, src, "prod", include_self=include_self)
        to_input = grad * others / whole
        none = src == 0
        zeros = F.scatter_add(F.zeros_like(grad), dim, index, F.cast(none, input_dtype))
        lone = F.logical_and(none, F.gather(zeros, dim, index) == 1)
        rest = F.scatter_reduce(input, dim, index, F.masked_fill(src, lone, 1), "prod", include_self=include_self)
        divided = F.gather(grad * result, dim, index) / F.masked_fill(src, none, 1)
        to_src = F.where(lone, F.gather(grad * rest, dim, index), divided)
    else:
        own = F.cast(input == result, input_dtype)
        theirs = F.cast(src == F.gather(result, dim, index), input_dtype)
        shared = grad / F.scatter_add(own, dim, index, theirs)
        to_input, to_src = own * shared, theirs * F.gather(shared, dim, index)
    if not include_self:
        to_input = F.scatter_value(to_input, dim, index, 0.0)
    return [to_input if needs[0] else None, None, padded_to(F, to_src, src_shape) if needs[2] else None]
