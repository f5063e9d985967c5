"""Gathering along a dimension, and scattering."""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import element, int32, int64
from ..errors import DTypeMismatch, InvalidOperation, ShapeMismatch
from ..schema.op import op
from ..schema.parameters import Array, Bool, Int, Number
from ..shapes import Spec, wrap_dim
from .places import check_along, padded_to, places, source


def _check_index(name: str, what: str, shape: Any, index: Any) -> None:
    if math.prod(index.shape) and index.dtype != int64.numpy and index.dtype != int32.numpy:
        raise DTypeMismatch(f"{name}(): Expected dtype int32/int64 for index")
    if math.prod(index.shape) and len(index.shape) != len(shape) and (shape or len(index.shape) > 1):
        raise ShapeMismatch(f"Index tensor must have the same number of dimensions as {what} tensor")


def _gather_rule(input: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Spec:
    if sparse_grad:
        raise InvalidOperation("gather: sparse gradients are not supported; leave sparse_grad=False")
    axis = wrap_dim(dim, len(input.shape))
    _check_index("gather", "input", input.shape, index)
    for d, (n, size) in enumerate(zip(index.shape, input.shape, strict=False)):
        if d != axis and n > size:
            raise ShapeMismatch(
                f"Size does not match at dimension {d} expected index {list(index.shape)} to be no larger "
                "than "
                f"self {list(input.shape)} apart from dimension {axis}"
            )
    return Spec(index.shape, input.dtype)


def _corner(xp: Any, array: Any, shape: Any, axis: int) -> Any:
    """The part of ``array`` that a smaller index reaches in the other dimensions."""
    return array[tuple(slice(None) if d == axis else slice(0, n) for d, n in enumerate(shape))]


@op(
    _gather_rule,
)
def gather(xp: Any, input: Array, dim: Int, index: Array, *, sparse_grad: Bool = False) -> Any:
    """Along ``dim``, the elements that ``index`` names."""
    axis = dim % max(input.ndim, 1)
    check_along(xp, input, index, dim=dim)
    if not input.ndim:
        return xp.broadcast_to(input, index.shape)
    if not index.size:
        return xp.zeros(index.shape, input.dtype)
    return xp.take_along_axis(_corner(xp, input, index.shape, axis), index, axis=axis)


gather.checks("index")(check_along)
gather.derivative(
    input=lambda F, grad, input_shape, dim, index: F.scatter_add(F.new_zeros(grad, input_shape), dim, index, grad)
)


def _scatter_rule(input: Any, dim: int, index: Any, src: Any) -> Spec:
    axis = wrap_dim(dim, len(input.shape))
    _check_index("scatter", "self", input.shape, index)
    if hasattr(src, "dtype") and src.dtype != input.dtype:
        raise DTypeMismatch("scatter(): Expected self.dtype to be equal to src.dtype")
    if not math.prod(index.shape):
        return Spec(input.shape, input.dtype)
    limit = getattr(src, "shape", index.shape) or (1,)
    if len(limit) != max(len(index.shape), 1):
        raise ShapeMismatch("Index tensor must have the same number of dimensions as src tensor")
    outside = any(d != axis and n > m for d, (n, m) in enumerate(zip(index.shape, input.shape, strict=False)))
    if outside or any(n > m for n, m in zip(index.shape, limit, strict=False)):
        text = f"Expected index {list(index.shape)} to be no larger than self {list(input.shape)} apart from "
        text += f"dimension {axis}"
        if hasattr(src, "shape"):
            text += f" and to be no larger size than src {list(src.shape)}"
        raise ShapeMismatch(text)
    return Spec(input.shape, input.dtype)


def _as_vectors(xp: Any, input: Any, *others: Any) -> tuple[Any, ...]:
    """The arrays; as vectors where ``input`` has no dimensions, or where one of the others has none."""
    if input.ndim and all(x.ndim for x in others):
        return input, *others
    return tuple(xp.reshape(x, (-1,)) for x in (input, *others))


@op(_scatter_rule, inplace=True)
def scatter(xp: Any, input: Array, dim: Int, index: Array, src: Array) -> Any:
    """``input`` with ``src`` written along ``dim`` where ``index`` says."""
    axis = dim % max(input.ndim, 1)
    check_along(xp, input, index, dim=dim)
    if not index.size:
        return xp.copy(input)
    flat, index, src = _as_vectors(xp, input, index, src)
    return xp.reshape(xp.index_set(flat, places(xp, index, axis), source(src, index)), input.shape)


scatter.checks("index")(lambda xp, input, index, src, **attrs: check_along(xp, input, index, **attrs))
scatter.derivative(
    input=lambda F, grad, dim, index: F.scatter_value(grad, dim, index, 0.0),
    src=lambda F, grad, dim, index, src_shape: padded_to(F, F.gather(grad, dim, index), src_shape),
)


@op(
    lambda input, dim, index, value: _scatter_rule(input, dim, index, value),
    key="scatter.value",
    node="ScatterBackward1",
    inplace=True,
)
def scatter_value(xp: Any, input: Array, dim: Int, index: Array, value: Number) -> Any:
    """``input`` with a number written along ``dim`` where ``index`` says."""
    axis = dim % max(input.ndim, 1)
    check_along(xp, input, index, dim=dim)
    if not index.size:
        return xp.copy(input)
    flat, index = _as_vectors(xp, input, index)
    value = element(value, input.dtype)
    return xp.reshape(xp.index_set(flat, places(xp, index, axis), value), input.shape)


scatter_value.checks("index")(check_along)
scatter_value.derivative(input=lambda F, grad, dim, index: F.scatter_value(grad, dim, index, 0.0))


@op(_scatter_rule, inplace=True, scratch=1.25)
def scatter_add(xp: Any, input: Array, dim: Int, index: Array, src: Array) -> Any:
    """``input`` with ``src`` added along ``dim`` where ``index`` says; repeated indices add up."""
    axis = dim % max(input.ndim, 1)
    check_along(xp, input, index, dim=dim)
    if not index.size:
        return xp.copy(input)
    flat, index, src = _as_vectors(xp, input, index, src)
    return xp.reshape(xp.index_add(flat, places(xp, index, axis), source(src, index)), input.shape)


scatter_add.checks("index")(lambda xp, input, index, src, **attrs: check_along(xp, input, index, **attrs))
scatter_add.derivative(
    input=lambda F, grad: grad,
    src=lambda F, grad, dim, index, src_shape: padded_to(F, F.gather(grad, dim, index), src_shape),
)
