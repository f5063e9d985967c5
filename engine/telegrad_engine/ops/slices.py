"""Parts of a tensor written out of place, and flat positions: ``slice_scatter``, ``select_scatter``, ``put``."""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import element, from_numpy, int64
from ..errors import DTypeMismatch, IndexOutOfRange, InvalidOperation, ShapeMismatch
from ..schema.op import composite, op
from ..schema.parameters import Array, Bool, Int, Ints, Number, OptionalInt
from ..shapes import Spec, wrap_dim
from .parts import select
from .places import any_outside


def _bounds(size: int, start: int | None, end: int | None, step: int) -> slice:
    """The slice, its bounds within the dimension. Raises RuntimeError for a step that is not positive."""
    if step <= 0:
        raise InvalidOperation("slice step must be positive")
    first, last, _ = slice(start, end, step).indices(size)
    return slice(first, max(first, last), step)


def _check_part(src: Any, part: tuple[int, ...]) -> None:
    if tuple(src.shape) != part:
        raise ShapeMismatch(
            f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, "
            f"slice size = {list(part)}"
        )


def _slice_scatter_rule(
    input: Any, src: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Spec:
    if not input.shape:
        raise IndexOutOfRange("slice() cannot be applied to a 0-dim tensor.")
    axis = wrap_dim(dim, len(input.shape))
    where = _bounds(input.shape[axis], start, end, step)
    length = len(range(where.start, where.stop, where.step))
    _check_part(src, (*input.shape[:axis], length, *input.shape[axis + 1 :]))
    return Spec(input.shape, input.dtype)


@op(
    _slice_scatter_rule,
)
def slice_scatter(
    xp: Any,
    input: Array,
    src: Array,
    dim: Int = 0,
    start: OptionalInt = None,
    end: OptionalInt = None,
    step: Int = 1,
) -> Any:
    """``input`` with ``src`` in place of the slice ``start:end:step`` of dimension ``dim``."""
    axis = dim % input.ndim
    where = _bounds(input.shape[axis], start, end, step)
    return xp.index_set(input, (slice(None),) * axis + (where,), src.astype(input.dtype))


def _cut(F: Any, grad: Any, dim: int, start: Any, end: Any, step: int) -> Any:
    axis = dim % len(grad.shape)
    return F.getitem(grad, (*[("slice", None, None, None)] * axis, ("slice", start, end, step)))


slice_scatter.derivative(
    input=lambda F, grad, src_shape, dim, start, end, step: F.slice_scatter(
        grad, F.new_zeros(grad, src_shape), dim, start, end, step
    ),
    src=lambda F, grad, dim, start, end, step: _cut(F, grad, dim, start, end, step),
)


@composite()
def select_scatter(F: Any, input: Array, src: Array, dim: Int, index: Int) -> Any:
    """``input`` with ``src`` in place of the slice at ``index`` of dimension ``dim``."""
    _check_part(src, select.rule(input, dim=dim, index=index).shape)
    axis = wrap_dim(dim, len(input.shape))
    place = index % input.shape[axis]
    return F.slice_scatter(input, F.unsqueeze(src, axis), axis, place, place + 1)


def _as_strided_scatter_rule(input: Any, src: Any, size: Any, stride: Any, storage_offset: int | None = None) -> Spec:
    from .strided import as_strided

    _check_part(src, as_strided.rule(input, size=size, stride=stride, storage_offset=storage_offset).shape)
    return Spec(input.shape, input.dtype)


@op(
    _as_strided_scatter_rule,
)
def as_strided_scatter(
    xp: Any, input: Array, src: Array, size: Ints, stride: Ints, storage_offset: OptionalInt = None
) -> Any:
    """``input`` with ``src`` in place of what ``as_strided`` shows of it."""
    flat = xp.reshape(input, (-1,))
    places = xp.as_strided(xp.arange(flat.shape[0]), size, stride, storage_offset or 0)
    return xp.reshape(xp.index_set(flat, places, src.astype(input.dtype)), input.shape)


as_strided_scatter.derivative(
    input=lambda F, grad, src_shape, size, stride, storage_offset: F.as_strided_scatter(
        F.contiguous(grad), F.new_zeros(grad, src_shape), size, stride, storage_offset
    ),
    src=lambda F, grad, size, stride, storage_offset: F.as_strided(F.contiguous(grad), size, stride, storage_offset),
)

# Flat positions ------------------------------------------------------------------------------------------


def _put_rule(input: Any, index: Any, source: Any, accumulate: bool = False) -> Spec:
    if index.dtype != int64.numpy:
        raise DTypeMismatch(f"put_(): Expected a long tensor for index, but got {from_numpy(index.dtype).kernel_name}")
    if source.dtype != input.dtype:
        own, other = from_numpy(input.dtype).kernel_name, from_numpy(source.dtype).kernel_name
        raise DTypeMismatch(
            f"put_(): self and source expected to have the same dtype, but got self.dtype = {own} and source.dtype = "
            f"{other}"
        )
    counts = [math.prod(x.shape) for x in (source, index)]
    if counts[0] != counts[1]:
        raise IndexOutOfRange(
            "put_(): Expected source and index to have the same number of elements, but got source.numel() = "
            f"{counts[0]}, index.numel() = {counts[1]}"
        )
    if not math.prod(input.shape) and counts[1]:
        raise IndexOutOfRange("put_(): tried to put into an empty tensor")
    return Spec(input.shape, input.dtype)


@op(
    _put_rule,
    inplace=True,
)
def put(xp: Any, input: Array, index: Array, source: Array, accumulate: Bool = False) -> Any:
    """``input`` with the elements of ``source`` at the flat positions ``index``; with ``accumulate`` they add up."""
    flat, places = xp.reshape(input, (-1,)), xp.reshape(index, (-1,))
    size = flat.shape[0]
    if any_outside(xp, places, -size, size):
        wrong = next(int(i) for i in places.tolist() if not -size <= i < size)
        raise IndexOutOfRange(f"out of range: tried to access index {wrong} on a tensor of {size} elements.")
    places = xp.where(places < 0, places + size, places)
    write = xp.index_add if accumulate else xp.index_set
    return xp.reshape(write(flat, places, xp.reshape(source, (-1,))), input.shape)


put.derivative(
    input=lambda F, grad, index, source_shape, accumulate: (
        grad if accumulate else F.put(grad, index, F.new_zeros(grad, source_shape))
    ),
    source=lambda F, grad, index, source_shape: F.reshape(F.take(grad, index), source_shape),
)

# Diagonals written in place ------------------------------------------------------------------------------


def _fill_diagonal_rule(input: Any, fill_value: Any, wrap: bool = False) -> Spec:
    if len(input.shape) < 2:
        raise ShapeMismatch("dimensions must larger than 1")
    if len(input.shape) > 2 and len(set(input.shape)) > 1:
        raise ShapeMismatch("all dimensions of input must be of equal length")
    return Spec(input.shape, input.dtype)


def _on_diagonal(shape: tuple[int, ...], wrap: bool) -> slice:
    """Where the diagonal is among the elements in their order; one that wraps goes on below a square."""
    if not math.prod(shape):
        return slice(0)
    step = 1 + sum(math.prod(shape[axis:]) for axis in range(1, len(shape)))
    end = math.prod(shape) if wrap else min(shape[0], shape[1]) * step if len(shape) == 2 else math.prod(shape)
    return slice(0, end, step)


# One that wraps is tested elsewhere: in place, torch counts it as two changes.
@op(
    _fill_diagonal_rule,
    inplace=True,
    internal=True,
    method=True,
)
def fill_diagonal(xp: Any, input: Array, fill_value: Number, wrap: Bool = False) -> Any:
    """One number on the diagonal; ``fill_diagonal_`` writes it."""
    flat = xp.reshape(input, (-1,))
    value = element(fill_value, input.dtype)
    return xp.reshape(xp.index_set(flat, _on_diagonal(input.shape, wrap), value), input.shape)


fill_diagonal.derivative(input=lambda F, grad, wrap: F.fill_diagonal(grad, 0, wrap))
