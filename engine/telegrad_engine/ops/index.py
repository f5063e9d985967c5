"""Ops that pick or place elements by index."""

from __future__ import annotations

from typing import Any

from ..dtypes import bool_, can_cast, element, from_numpy, int32, int64
from ..errors import DataDependentShape, DTypeMismatch, IndexOutOfRange, InvalidOperation, ShapeMismatch
from ..schema.op import composite, op
from ..schema.parameters import Array, Bool, Index, Indices, Int, Items, Operand, Places
from ..shapes import Spec, broadcast_shapes, check_keeps_shape, expands_to, wrap_dim
from .naming import by_operand
from .places import any_outside

# Basic indexing: ints, slices, None and ellipsis ---------------------------------------------------------

WHOLE = ("slice", None, None, None)


def as_index(items: tuple[Any, ...]) -> tuple[Any, ...]:
    """An index in the wire's form as Python's: ("slice", 0, 2, 1), "...", None and ints."""
    return tuple(slice(*item[1:]) if isinstance(item, tuple) else ... if item == "..." else item for item in items)


def _getitem_node(node: Any) -> str:
    """torch takes an index apart into selects, slices and unsqueezes; the last one made the tensor."""
    last = next((item for item in reversed(node.attrs["index"]) if item != "..." and item != WHOLE), "...")
    if isinstance(last, tuple):
        return "SliceBackward0"
    return {"...": "AliasBackward0", None: "UnsqueezeBackward0"}.get(last, "SelectBackward0")


def _slice_length(start: int | None, stop: int | None, step: int | None, size: int) -> int:
    """How many elements a slice takes of a dimension of ``size``.

    Bounds that are in range are only compared and subtracted, so that in a planned program they may differ.
    """
    if start is not None and stop is not None and (step is None or step > 0) and 0 <= start <= stop <= size:
        length = stop - start
        return length if step is None else -(-length // step)
    return len(range(*slice(start, stop, step).indices(size)))


def _getitem_rule(input: Any, index: tuple[Any, ...]) -> Spec:
    used = sum(1 for item in index if isinstance(item, (int, tuple)))
    ndim = len(input.shape)
    if used > ndim:
        raise IndexOutOfRange(f"too many indices for tensor of dimension {ndim}")
    if "..." not in index:
        index = (*index, "...")
    shape: list[int] = []
    dim = 0
    for item in index:
        if item is None:
            shape.append(1)
        elif item == "...":
            shape.extend(input.shape[dim : dim + ndim - used])
            dim += ndim - used
        elif isinstance(item, tuple):
            _, start, stop, step = item
            shape.append(_slice_length(start, stop, step, input.shape[dim]))
            dim += 1
        else:
            size = input.shape[dim]
            if not -size <= item < size:
                raise IndexOutOfRange(f"index {item} is out of bounds for dimension {dim} with size {size}")
            dim += 1
    return Spec(tuple(shape), input.dtype)


@op(_getitem_rule, view=True, method=False, node=_getitem_node)
def getitem(xp: Any, input: Array, index: Index) -> Any:
    """``input[index]`` for ints, slices, None and ellipsis: a view.

    On the wire an index is a list of ints, null, "..." and ["slice", start, stop, step].
    """
    return input[(*as_index(index), ...) if "..." not in index else as_index(index)]


getitem.derivative(input=lambda F, grad, input_shape, index: F.getitem_scatter(grad, input_shape, index))


def _getitem_scatter_rule(input: Any, size: Any, index: Any) -> Spec:
    result = Spec(tuple(size), input.dtype)
    check_keeps_shape(_getitem_rule(result, index).shape, input.shape)
    return result


@op(_getitem_scatter_rule, private=True, method=False, scratch=2.0)
def getitem_scatter(xp: Any, input: Array, size: Items, index: Index) -> Any:
    """Zeros of shape ``size`` with ``input`` at ``index``: what ``getitem`` does to a gradient."""
    return xp.index_set(xp.zeros(size, input.dtype), as_index(index), input)


getitem_scatter.derivative(input=lambda F, grad, index: F.getitem(grad, index))


# Index tensors -------------------------------------------------------------------------------------------


def _check_bounds(xp: Any, index: Any, size: int, dim: int, kind: type[Exception]) -> None:
    """Raise unless every index is within ``size``; negative ones count from the end."""
    if any_outside(xp, index, -size, size):
        wrong = int(index.max()) if int(index.max()) >= size else int(index.min())
        raise kind(f"index {wrong} is out of bounds for dimension {dim} with size {size}")


def _index_rule(input: Any, indices: Any) -> Spec:
    ndim = len(input.shape)
    if len(indices) > ndim:
        raise IndexOutOfRange(f"too many indices for tensor of dimension {ndim}")
    present = [i for i, x in enumerate(indices) if x is not None]
    for i in present:
        if indices[i].dtype.kind not in "iu":
            raise IndexOutOfRange("tensors used as indices must be long, int, byte or bool tensors")
    if not present:
        raise InvalidOperation("index() needs at least one index tensor")
    try:
        block = broadcast_shapes(*[indices[i].shape for i in present])
    except ShapeMismatch:
        shapes = ", ".join(str(list(indices[i].shape)) for i in present)
        raise IndexOutOfRange(
            f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}"
        ) from None
    if 0 not in block and any(input.shape[i] == 0 for i in present):
        raise IndexOutOfRange("index is out of bounds for dimension with size 0")
    rest = [n for i, n in enumerate(input.shape) if i not in present]
    adjacent = present == list(range(present[0], present[-1] + 1))
    place = present[0] if adjacent else 0
    return Spec((*rest[:place], *block, *rest[place:]), input.dtype)


def _full_index(xp: Any, input: Any, indices: Any) -> tuple[Any, ...]:
    _check_places(xp, input, indices)
    return tuple(slice(None) if x is None else x for x in indices)


def _check_places(xp: Any, input: Any, indices: Any, *_values: Any, **_: Any) -> None:
    for dim, x in enumerate(indices):
        if x is not None:
            _check_bounds(xp, x, input.shape[dim], dim, IndexOutOfRange)


def _check_read(xp: Any, input: Any, indices: Any, *_values: Any, **_: Any) -> None:
    if 0 not in _index_rule(input, indices).shape:
        _check_places(xp, input, indices)


@op(_index_rule, method=False, internal=True)
def index(xp: Any, input: Array, indices: Indices) -> Any:
    """``input`` at index tensors, null where a dimension is taken whole."""
    shape = _index_rule(input, indices).shape
    if 0 in shape:  # nothing is read, so an index that points outside does no harm
        return xp.zeros(shape, input.dtype)
    return input[_full_index(xp, input, indices)]


index.checks("indices")(_check_read)
index.derivative(
    input=lambda F, grad, input_shape, indices: F.index_put(F.new_zeros(grad, input_shape), indices, grad, True)
)


def _index_put_rule(input: Any, indices: Any, values: Any, accumulate: bool = False) -> Spec:
    target = _index_rule(input, indices).shape
    if hasattr(values, "shape"):
        if values.dtype != input.dtype:
            raise IndexOutOfRange(
                "Index put requires the source and destination dtypes match, got "
                f"{from_numpy(input.dtype).kernel_name} for the destination and "
                f"{from_numpy(values.dtype).kernel_name} for the source."
            )
        if not expands_to(values.shape, target):
            raise ShapeMismatch(
                f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to "
                "indexing result "
                f"of shape {list(target)}"
            )
    return Spec(input.shape, input.dtype)


@op(_index_put_rule, inplace=True, scratch=2.0)
def index_put(xp: Any, input: Array, indices: Places, values: Operand, accumulate: Bool = False) -> Any:
    """``input`` with ``values`` put, or added if ``accumulate``, at index tensors."""
    if 0 in _index_rule(input, indices).shape:
        return xp.array(input)
    place = _full_index(xp, input, indices)
    if not hasattr(values, "dtype"):
        values = element(values, input.dtype)
    return xp.index_add(input, place, values) if accumulate else xp.index_set(input, place, values)


index_put.checks("indices")(_check_read)
index_put.derivative(
    input=lambda F, grad, indices, accumulate: (
        grad if accumulate else F.index_put(grad, indices, F.new_zeros(grad, ()))
    ),
    values=lambda F, grad, indices: F.index(grad, indices),
)


@composite(
    key="index_put.masks",
    inplace=True,
)
def index_put_masks(F: Any, input: Array, indices: Indices, values: Operand, accumulate: Bool = False) -> Any:
    """``index_put`` where masks stand for the places of their true elements."""
    found: list[Any] = []
    for index in indices:
        masked = index is not None and index.dtype is bool_
        found.extend(F.unbind(F.nonzero(index), 1) if masked else [index])
    return F.index_put(input, found, values, accumulate)


def _index_select_rule(input: Any, dim: int, index: Any) -> Spec:
    axis = wrap_dim(dim, len(input.shape))
    if len(index.shape) > 1:
        raise IndexOutOfRange("index_select(): Index is supposed to be a vector")
    if index.dtype not in (int64.numpy, int32.numpy):
        raise DTypeMismatch("index_select(): Expected dtype int32 or int64 for index")
    n = index.shape[0] if index.shape else 1
    if not input.shape and n != 1:
        raise InvalidOperation(f"index_select(): Index to scalar can have only 1 value, got {n} value(s)")
    return Spec((*input.shape[:axis], n, *input.shape[axis + 1 :]) if input.shape else (), input.dtype)


@op(_index_select_rule, scratch=0.0)
def index_select(xp: Any, input: Array, dim: Int, index: Array) -> Any:
    """The slices along ``dim`` that ``index`` names."""
    _check_selected(xp, input, index, dim=dim)
    return xp.take(input, xp.reshape(index, (-1,)), axis=dim) if input.ndim else input


@index_select.checks("index")
def _check_selected(xp: Any, input: Any, index: Any, *, dim: int) -> None:
    if any_outside(xp, index, 0, input.shape[dim] if input.shape else 1):
        raise IndexOutOfRange("index out of range in self")


def _index_select_grad(F: Any, grad: Any, input_shape: Any, dim: int, index: Any) -> Any:
    if not input_shape:
        return grad
    axis = dim % len(input_shape)
    return F.index_put(F.new_zeros(grad, input_shape), [None] * axis + [F.reshape(index, (-1,))], grad, True)


index_select.derivative(input=_index_select_grad)


# Masks ---------------------------------------------------------------------------------------------------


def _masked_fill_rule(input: Any, mask: Any, value: Any) -> Spec:
    if mask.dtype != bool_.numpy:
        name = from_numpy(mask.dtype).c_name
        raise DTypeMismatch(f"masked_fill_ only supports boolean masks, but got mask with dtype {name}")
    if hasattr(value, "shape") and value.shape:
        raise InvalidOperation(
            "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
            f"{len(value.shape)} dimension(s)."
        )
    if isinstance(value, float) and not can_cast(from_numpy(input.dtype).numpy, input.dtype):
        raise DTypeMismatch("value cannot be converted to the input's dtype")
    return Spec(broadcast_shapes(mask.shape, input.shape), input.dtype)


@op(_masked_fill_rule, inplace=True, node=by_operand("MaskedFill", at=2, tensor=1, number=0))
def masked_fill(xp: Any, input: Array, mask: Array, value: Operand) -> Any:
    """``input`` with ``value`` where the mask is true."""
    return xp.where(mask, xp.asarray(value).astype(input.dtype), input)


masked_fill.derivative(
    input=lambda F, grad, mask: F.where(mask, 0.0, grad),
    value=lambda F, grad, mask: F.sum(F.where(mask, grad, 0.0)),
)


def _nonzero_rule(input: Any) -> Spec:
    if isinstance(input, Spec):
        raise DataDependentShape("the shape of nonzero's result depends on the input's values")
    return Spec((int((input != 0).sum()), len(input.shape)), int64.numpy)


@op(_nonzero_rule, scratch=1.25)
def nonzero(xp: Any, input: Array) -> Any:
    """The indices of the elements that are not zero, a row each: (n, ndim), int64."""
    return xp.argwhere(input)
