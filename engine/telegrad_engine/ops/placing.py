"""Ops that place elements along a dimension."""

from __future__ import annotations

from typing import Any

from ..dtypes import element, from_numpy, int32, int64
from ..errors import DTypeMismatch, IndexOutOfBounds, IndexOutOfRange, InvalidOperation, ShapeMismatch
from ..schema.op import op
from ..schema.parameters import Array, Int, Number, Operand
from ..shapes import Spec, size_at, wrap_dim
from .naming import by_operand
from .places import any_outside


def _kind(x: Any) -> str:
    return from_numpy(x.dtype).kernel_name


def _check_bounds(
    xp: Any, index: Any, size: int, dim: int, error: type[Exception], name: str = "", least: int = 0
) -> None:
    """Raise unless every index is from ``least`` up to, but without, ``size``."""
    if any_outside(xp, index, least, size):
        wrong = int(index.max()) if int(index.max()) >= size else int(index.min())
        raise error(f"{name}index {wrong} is out of bounds for dimension {dim} with size {size}")


def _extent(input: Any, dim: int) -> tuple[int, int]:
    """The size of ``input``, as a vector if it has no dimensions, along ``dim``, and that dimension from the first."""
    shape = input.shape or (1,)
    return shape[dim], dim % len(shape)


def _along(xp: Any, input: Any, dim: int, index: Any) -> tuple[Any, Any]:
    """``input`` with at least one dimension, and the place of ``index``, a vector or scalar, along ``dim``."""
    whole = input if input.ndim else xp.reshape(input, (1,))
    return whole, (slice(None),) * (dim % whole.ndim) + (xp.reshape(index, (-1,)),)


def _length(index: Any) -> int:
    return index.shape[0] if index.shape else 1


def _picked(F: Any, grad: Any, dim: int, index: Any, shape: Any) -> Any:
    """The slices of ``grad`` along ``dim`` at ``index``, in the shape of the source that they were placed from."""
    return F.reshape(F.index_select(grad, dim, F.reshape(index, (-1,))), shape)


# Along a dimension ---------------------------------------------------------------------------------------


def _index_add_rule(input: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Spec:
    axis = wrap_dim(dim, len(input.shape))
    if len(index.shape) > 1:
        raise IndexOutOfRange(
            f"index_add_(): Index is supposed to be a vector, but got dim: {len(index.shape)} with type: "
            f"{_kind(index)} and size: {list(index.shape)}"
        )
    if index.dtype not in (int64.numpy, int32.numpy):
        raise DTypeMismatch(f"index_add_(): Expected dtype int32/int64 for index but got: {_kind(index)}")
    if source.dtype != input.dtype:
        raise DTypeMismatch(
            f"index_add_(): self ({_kind(input)}) and source ({_kind(source)}) must have the same scalar type"
        )
    if axis and axis >= len(source.shape):
        raise ShapeMismatch(
            f"index_add_(): Indexing dim {axis} is out of bounds of the source tensor with dim {len(source.shape)}"
        )
    if _length(index) != (source.shape[axis] if source.shape else 1):
        raise ShapeMismatch(
            f"index_add_(): Number of indices ({_length(index)}) should be equal to source.size(dim): "
            f"({size_at(source.shape, axis)}), for dim: {axis}"
        )
    left, right = list(input.shape), list(source.shape)
    if len(left) == len(right):
        del left[axis : axis + 1], right[axis : axis + 1]
    if left != right:
        raise ShapeMismatch(
            "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = "
            f"{list(input.shape)} source.shape = {list(source.shape)}"
        )
    return Spec(input.shape, input.dtype)


@op(_index_add_rule, inplace=True, scratch=2.0)
def index_add(xp: Any, input: Array, dim: Int, index: Array, source: Array, *, alpha: Number = 1) -> Any:
    """``input`` with ``alpha`` times the slices of ``source`` added along ``dim`` at ``index``."""
    whole, place = _along(xp, input, dim, index)
    _check_added(xp, input, index, source, dim=dim)
    added = source if source.ndim else xp.reshape(source, (1,))
    if alpha != 1:
        added = (added * alpha).astype(input.dtype)
    return xp.reshape(xp.index_add(whole, place, added), input.shape)


@index_add.checks("index")
def _check_added(xp: Any, input: Any, index: Any, _source: Any, *, dim: int, **_: Any) -> None:
    size, axis = _extent(input, dim)
    if len(input.shape) < 2 and any_outside(xp, index, 0, size):
        raise IndexOutOfRange("index out of range in self")
    _check_bounds(xp, index, size, axis, IndexOutOfBounds)


index_add.derivative(
    input=lambda F, grad: grad,
    source=lambda F, grad, source_shape, dim, index, alpha: _picked(F, grad, dim, index, source_shape) * alpha,
)


def _index_copy_rule(input: Any, dim: int, index: Any, source: Any) -> Spec:
    axis = wrap_dim(dim, len(input.shape))
    if len(index.shape) > 1:
        raise IndexOutOfRange(f"index_copy_(): Index should have dimension 1 or 0 (got {len(index.shape)})")
    n = _length(index)
    if not source.shape and n != 1:
        raise IndexOutOfRange(f"index_copy_(): When source is scalar, index should have one element (got {n})")
    if input.shape and source.shape and len(input.shape) != len(source.shape):
        raise IndexOutOfRange(
            "index_copy_(): When source and destination are not scalars, their dimensionality must match. Source "
            f"dimensionality ({len(source.shape)}), destination dimensionality ({len(input.shape)})"
        )
    if index.dtype != int64.numpy:
        raise DTypeMismatch(f"index_copy_(): Expected a long tensor for index, but got {_kind(index)}")
    if source.dtype != input.dtype:
        raise DTypeMismatch(
            f"index_copy_(): self and source expected to have the same dtype, but got (self) {_kind(input)} and "
            f"(source) {_kind(source)}"
        )
    slices = [tuple(x.shape[:axis]) + tuple(x.shape[axis + 1 :]) for x in (input, source)]
    if slices[0] != slices[1]:
        raise ShapeMismatch(
            "index_copy_(): Source/destination tensor must have same slice shapes. Destination slice shape: "
            f"{' '.join(map(str, slices[0]))} at dimension {axis} and source slice shape: "
            f"{' '.join(map(str, slices[1]))} at dimension {axis}."
        )
    if source.shape and n != source.shape[axis]:
        raise IndexOutOfRange(
            f"index_copy_(): Number of indices ({n}) should be equal to source.size(dim) ({source.shape[axis]})"
        )
    return Spec(input.shape, input.dtype)


@op(
    _index_copy_rule,
    inplace=True,
)
def index_copy(xp: Any, input: Array, dim: Int, index: Array, source: Array) -> Any:
    """``input`` with the slices of ``source`` written along ``dim`` at ``index``."""
    whole, place = _along(xp, input, dim, index)
    _check_copied(xp, input, index, source, dim=dim)
    return xp.reshape(xp.index_set(whole, place, source), input.shape)


@index_copy.checks("index")
def _check_copied(xp: Any, input: Any, index: Any, _source: Any, *, dim: int) -> None:
    size, axis = _extent(input, dim)
    _check_bounds(xp, index, size, axis, IndexOutOfRange, "index_copy_(): ")


index_copy.derivative(
    input=lambda F, grad, dim, index: F.index_fill(grad, dim, index, 0),
    source=lambda F, grad, source_shape, dim, index: _picked(F, grad, dim, index, source_shape),
)


def _index_fill_rule(input: Any, dim: int, index: Any, value: Any) -> Spec:
    if index.dtype != int64.numpy:
        raise IndexOutOfRange("index_fill_(): Expected dtype int64 for index.")
    wrap_dim(dim, len(input.shape))
    if len(index.shape) > 1:
        raise InvalidOperation("Index has to be a vector/scalar")
    if hasattr(value, "shape") and value.shape:
        raise InvalidOperation(
            "index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
            f"{len(value.shape)} dimension(s)."
        )
    return Spec(input.shape, input.dtype)


@op(_index_fill_rule, inplace=True, node=by_operand("IndexFill", at=2, tensor=1, number=0))
def index_fill(xp: Any, input: Array, dim: Int, index: Array, value: Operand) -> Any:
    """``input`` with ``value`` in the slices along ``dim`` at ``index``."""
    whole, place = _along(xp, input, dim, index)
    _check_filled(xp, input, index, value, dim=dim)
    if not hasattr(value, "dtype"):
        value = element(value, input.dtype)
    return xp.reshape(xp.index_set(whole, place, value), input.shape)


@index_fill.checks("index")
def _check_filled(xp: Any, input: Any, index: Any, _value: Any, *, dim: int) -> None:
    size, axis = _extent(input, dim)
    _check_bounds(xp, index, size, axis, IndexOutOfRange, least=-size)


def _index_filled(F: Any, grad: Any, dim: int, index: Any) -> Any:
    return F.sum(grad - F.index_fill(grad, dim, index, 0))


index_fill.derivative(
    input=lambda F, grad, dim, index: F.index_fill(grad, dim, index, 0),
    value=_index_filled,
)
