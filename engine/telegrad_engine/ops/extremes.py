"""The largest and the smallest elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..dtypes import bool_, float32, from_numpy, int64
from ..errors import IndexOutOfRange, InvalidOperation
from ..schema.op import composite, op
from ..schema.parameters import Array, Bool, Int, Number, OptionalInt, OptionalInts
from ..shapes import Spec, reduced_shape, wrap_dim, wrap_dims
from .reduce import axes, reduced, restore
from .sorting import route_picked


@composite(
    outputs=("min", "max"),
)
def aminmax(F: Any, input: Array, *, dim: OptionalInt = None, keepdim: Bool = False) -> Any:
    """The smallest and the largest elements along ``dim``, or of all; ties share the gradient evenly."""
    over = () if dim is None else (dim,)
    return aminmax.bundle((F.amin(input, over, keepdim), F.amax(input, over, keepdim)))


@composite()
def dist(F: Any, input: Array, other: Array, p: Number = 2) -> Any:
    """The ``p``-norm of the difference."""
    return F.linalg_vector_norm(input - other, p)


def _nonempty(name: str) -> Callable[..., Spec]:
    def rule(input: Any) -> Spec:
        if math.prod(input.shape) == 0:
            raise InvalidOperation(
                f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
                "Specify the reduction dim with the 'dim' argument."
            )
        return Spec((), input.dtype)

    return rule


@op(_nonempty("max"), node="MaxBackward1")
def max_(xp: Any, input: Array) -> Any:
    """The largest element; ties share the gradient evenly."""
    return xp.max(input)


@op(_nonempty("min"), node="MinBackward1")
def min_(xp: Any, input: Array) -> Any:
    """The smallest element; ties share the gradient evenly."""
    return xp.min(input)


def _evenly(F: Any, grad: Any, hits: Any, dim: Any) -> Any:
    shares = F.sum(hits, dim, True, dtype=float32) if dim is not None else F.sum(hits, dtype=float32)
    return grad * hits / F.to(shares, dtype=from_numpy(_dtype(grad)))


def _dtype(value: Any) -> Any:
    return value._data.dtype if hasattr(value, "_data") else value.dtype


for _whole in (max_, min_):
    _whole.derivative(input=lambda F, grad, input, result: _evenly(F, grad, F.eq(input, result), None))


def _along(name: str) -> Callable[..., list[Spec]]:
    def rule(input: Any, dim: int, keepdim: bool = False) -> list[Spec]:
        axis = wrap_dim(dim, len(input.shape))
        if input.shape and input.shape[axis] == 0:
            raise IndexOutOfRange(f"{name}(): Expected reduction dim {axis} to have non-zero size.")
        shape = reduced_shape(input.shape, (axis,), keepdim)
        return [Spec(shape, input.dtype), Spec(shape, int64.numpy)]

    return rule


def _by_argument(xp: Any, find: Any, input: Any, dim: int, keepdim: bool) -> Any:
    if not input.ndim:
        return input, xp.zeros((), int64.numpy)
    indices = find(input, axis=dim, keepdims=True)
    values = xp.take_along_axis(input, indices, axis=dim)
    return (values, indices) if keepdim else (xp.squeeze(values, dim), xp.squeeze(indices, dim))


@op(_along("max"), key="max.dim", outputs=("values", "indices"), scratch=1.25)
def max_dim(xp: Any, input: Array, dim: Int, keepdim: Bool = False) -> Any:
    """The largest elements along ``dim`` and their indices; the gradient goes to the index."""
    return _by_argument(xp, xp.argmax, input, dim, keepdim)


@op(_along("min"), key="min.dim", outputs=("values", "indices"), scratch=1.25)
def min_dim(xp: Any, input: Array, dim: Int, keepdim: Bool = False) -> Any:
    """The smallest elements along ``dim`` and their indices; the gradient goes to the index."""
    return _by_argument(xp, xp.argmin, input, dim, keepdim)


for _indexed in (max_dim, min_dim):
    _indexed.derivative(input=route_picked)


@composite(key="max.other")
def max_other(F: Any, input: Array, other: Array) -> Any:
    """The larger of two, elementwise: ``maximum``."""
    return F.maximum(input, other)


@composite(key="min.other")
def min_other(F: Any, input: Array, other: Array) -> Any:
    """The smaller of two, elementwise: ``minimum``."""
    return F.minimum(input, other)


def _extreme_rule(name: str) -> Callable[..., Spec]:
    def rule(input: Any, dim: Any = None, keepdim: bool = False) -> Spec:
        ndim = len(input.shape)
        for d in [wrap_dim(d, ndim) for d in dim or range(ndim)]:
            if input.shape and input.shape[d] == 0:
                raise (
                    InvalidOperation(
                        f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
                        "Specify the reduction dim with the 'dim' argument."
                    )
                    if not dim
                    else IndexOutOfRange(f"{name}(): Expected reduction dim {d} to have non-zero size.")
                )
        return reduced(input, dim, keepdim)

    return rule


@op(_extreme_rule("amax"), scratch=0.0)
def amax(xp: Any, input: Array, dim: OptionalInts = None, keepdim: Bool = False) -> Any:
    """The largest elements over ``dim``; ties share the gradient evenly."""
    return xp.max(input, axis=axes(dim, input.ndim), keepdims=keepdim)


@op(_extreme_rule("amin"), scratch=0.0)
def amin(xp: Any, input: Array, dim: OptionalInts = None, keepdim: Bool = False) -> Any:
    """The smallest elements over ``dim``; ties share the gradient evenly."""
    return xp.min(input, axis=axes(dim, input.ndim), keepdims=keepdim)


def _amax_grad(F: Any, grad: Any, input: Any, result: Any, dim: Any, keepdim: bool) -> Any:
    shape = tuple(input.shape)
    hits = F.eq(input, restore(F, result, shape, dim, keepdim))
    return _evenly(F, restore(F, grad, shape, dim, keepdim), hits, wrap_dims(dim, len(shape)) or None)


amax.derivative(input=_amax_grad)
amin.derivative(input=_amax_grad)


def _arg_rule(name: str) -> Callable[..., Spec]:
    def rule(input: Any, dim: Any = None, keepdim: bool = False) -> Spec:
        if input.dtype == bool_.numpy:
            raise InvalidOperation(f"{name}(): does not support bool input")
        if dim is None:
            if math.prod(input.shape) == 0:
                raise IndexOutOfRange(f"{name}(): Expected reduction dim to be specified for input.numel() == 0.")
            return Spec((1,) * len(input.shape) if keepdim else (), int64.numpy)
        axis = wrap_dim(dim, len(input.shape))
        if input.shape and input.shape[axis] == 0:
            raise IndexOutOfRange(f"{name}(): Expected reduction dim {axis} to have non-zero size.")
        return Spec(reduced_shape(input.shape, (axis,), keepdim), int64.numpy)

    return rule


@op(_arg_rule("argmax"), scratch=1.25)
def argmax(xp: Any, input: Array, dim: OptionalInt = None, keepdim: Bool = False) -> Any:
    """The index of the largest element, of the flattened input unless ``dim`` is given."""
    return xp.argmax(input, axis=dim if input.ndim else None, keepdims=keepdim)


@op(_arg_rule("argmin"), scratch=1.25)
def argmin(xp: Any, input: Array, dim: OptionalInt = None, keepdim: Bool = False) -> Any:
    """The index of the smallest element, of the flattened input unless ``dim`` is given."""
    return xp.argmin(input, axis=dim if input.ndim else None, keepdims=keepdim)
