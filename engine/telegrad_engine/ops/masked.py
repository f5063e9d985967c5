"""Ops that pick or place elements under a mask."""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import bool_, from_numpy
from ..errors import DataDependentShape, DTypeMismatch, InvalidOperation
from ..schema.op import op
from ..schema.parameters import Array
from ..shapes import Spec, broadcast_shapes


def _kind(x: Any) -> str:
    return from_numpy(x.dtype).kernel_name


def _masked_select_rule(input: Any, mask: Any) -> Spec:
    if mask.dtype != bool_.numpy:
        raise DTypeMismatch("masked_select: expected BoolTensor for mask")
    shape = broadcast_shapes(mask.shape, input.shape)
    if isinstance(mask, Spec):
        raise DataDependentShape("the shape of masked_select's result depends on the mask's values")
    return Spec((int(mask.sum()) * (math.prod(shape) // max(mask.size, 1)),), input.dtype)


@op(
    _masked_select_rule,
)
def masked_select(xp: Any, input: Array, mask: Array) -> Any:
    """The elements where the mask is true, as a vector."""
    shape = broadcast_shapes(mask.shape, input.shape)
    return xp.broadcast_to(input, shape)[xp.broadcast_to(mask, shape)]


masked_select.derivative(
    input=lambda F, grad, input_shape, mask: F.masked_scatter(
        F.new_zeros(grad, broadcast_shapes(tuple(mask.shape), input_shape)), mask, grad
    )
)


def _masked_scatter_rule(input: Any, mask: Any, source: Any) -> Spec:
    shape = broadcast_shapes(mask.shape, input.shape)
    if source.dtype != input.dtype:
        raise DTypeMismatch(
            f"masked_scatter: expected self and source to have same dtypes but got{_kind(input)} and {_kind(source)}"
        )
    if mask.dtype != bool_.numpy:
        raise DTypeMismatch(f"masked_scatter_ only supports boolean masks, but got mask with dtype {_kind(mask)}")
    return Spec(shape, input.dtype)


@op(
    _masked_scatter_rule,
    inplace=True,
)
def masked_scatter(xp: Any, input: Array, mask: Array, source: Array) -> Any:
    """``input`` with the first elements of ``source``, in order, where the mask is true."""
    shape = broadcast_shapes(mask.shape, input.shape)
    places = xp.broadcast_to(mask, shape)
    n = int(places.sum())
    if n > source.size:
        raise InvalidOperation("Number of elements of source < number of ones in mask")
    return xp.index_set(xp.broadcast_to(input, shape), places, xp.reshape(source, (-1,))[:n])


def _masked_source_grad(F: Any, grad: Any, mask: Any, source_shape: Any) -> Any:
    """The gradient where the mask is true, in order: a shape that does not depend on the mask's values."""
    size = math.prod(source_shape)
    zeros = F.new_zeros(grad, (size,))
    if size == 0 or 0 in grad.shape:
        return F.reshape(zeros, source_shape)
    flat = F.reshape(F.broadcast_to(mask, tuple(grad.shape)), (-1,))
    places = F.clamp(F.cumsum(flat, 0) - 1, 0)
    taken = F.masked_fill(F.reshape(grad, (-1,)), F.logical_not(flat), 0)
    return F.reshape(F.index_put(zeros, [places], taken, True), source_shape)


masked_scatter.derivative(
    input=lambda F, grad, mask: F.masked_fill(grad, mask, 0),
    source=_masked_source_grad,
)
