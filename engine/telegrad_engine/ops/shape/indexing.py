"""Selecting and writing elements by index, by mask and by flat position."""

from __future__ import annotations

import math
from operator import itemgetter
from typing import Any

from ...dtypes import bool_, element, from_numpy, int32, int64
from ...errors import DataDependentShape, DTypeMismatch, IndexOutOfRange, InvalidOperation, ShapeMismatch
from ...schema.declaration import (
    APART,
    FUNCTION,
    INPLACE,
    INTERNAL,
    LIST,
    METHOD,
    METHOD_OF_TORCH,
    NO_SCRATCH,
    ONLY_ITSELF,
    ONLY_SECOND,
    VIEW,
    Batching,
    Overlap,
    scratch,
)
from ...schema.op import composite, op
from ...schema.parameters import Array, Bool, Index, Indices, Int, Ints, Operand, OptionalInt, Places, Str
from ...schema.promotion import PROMOTE_ON_CUDA
from ...shapes import Spec, broadcast_shapes, check_keeps_shape, check_nonnegative, expands_to, size_at, wrap_dim
from ..batching import shape_rules
from ..guards import kernel_name
from ..math.declarations import by_operand
from .scatter import (
    any_outside,
    check_added,
    check_along,
    check_scalar_value,
    outlier,
    padded_to,
    places,
    scatter_rule,
    source,
)

WHOLE = ("slice", None, None, None)


def as_index(items: tuple[Any, ...]) -> tuple[Any, ...]:
    """Convert an index from its wire format to Python's: ("slice", 0, 2, 1), "...", None and ints."""
    return tuple(slice(*item[1:]) if isinstance(item, tuple) else ... if item == "..." else item for item in items)


def _getitem_node(node: Any) -> str:
    """The node name in torch, which splits an index into select, slice and unsqueeze and ends with the last one."""
    last = next((item for item in reversed(node.attrs["index"]) if item != "..." and item != WHOLE), "...")
    if isinstance(last, tuple):
        return "SliceBackward0"
    return {"...": "AliasBackward0", None: "UnsqueezeBackward0"}.get(last, "SelectBackward0")


def _slice_length(start: int | None, stop: int | None, step: int | None, size: int) -> int:
    """The number of elements that a slice takes from a dimension of ``size``.

    Bounds in range are only compared and subtracted, so that they may be symbolic in a planned program.
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


def _getter(xp: Any, input: Any, index: Any) -> Any:
    return itemgetter((*as_index(index), ...) if "..." not in index else as_index(index))


@op(
    _getitem_rule,
    variants=METHOD_OF_TORCH - METHOD,
    node=_getitem_node,
    memory=VIEW,
    batching=shape_rules.getitem,
    prepare=_getter,
)
def getitem(xp: Any, input: Array, index: Index) -> Any:
    """``input[index]`` for ints, slices, None and ellipsis: a view.

    In the wire format, an index is a list of ints, null, "..." and ["slice", start, stop, step].
    """
    return _getter(xp, input, index)(input)


getitem.derivative(input=lambda F, grad, input_shape, index: F.getitem_scatter(grad, input_shape, index))


def _getitem_scatter_rule(input: Any, size: Any, index: Any) -> Spec:
    result = Spec(check_nonnegative(size, "getitem_scatter"), input.dtype)
    check_keeps_shape(_getitem_rule(result, index).shape, input.shape)
    return result


@op(_getitem_scatter_rule, variants=INTERNAL, memory=scratch(2.0), batching=shape_rules.getitem_scatter)
def getitem_scatter(xp: Any, input: Array, size: Ints, index: Index) -> Any:
    """Zeros of shape ``size`` with ``input`` at ``index``: what ``getitem`` does to a gradient."""
    return xp.index_set(xp.zeros(size, input.dtype), as_index(index), input)


getitem_scatter.derivative(input=lambda F, grad, index: F.getitem(grad, index))


# Index tensors -------------------------------------------------------------------------------------------


def _index_rule(input: Any, indices: Any) -> Spec:
    ndim = len(input.shape)
    if len(indices) > ndim:
        raise IndexOutOfRange(f"too many indices for tensor of dimension {ndim}")
    present = [i for i, x in enumerate(indices) if x is not None]
    for i in present:
        if indices[i].dtype.name not in ("int64", "int32", "uint8"):
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


def _checked_index(xp: Any, input: Any, indices: Any) -> tuple[Any, ...]:
    """Convert the index tensors to an index; raises unless all are in range."""
    for dim, x in enumerate(indices):
        if x is not None:
            check_along(xp, input, x, dim=dim, error=IndexOutOfRange, negative=True)
    return tuple(slice(None) if x is None else x for x in indices)


def _check_read(xp: Any, input: Any, indices: Any, *_values: Any) -> None:
    if 0 not in _index_rule(input, indices).shape:
        _checked_index(xp, input, indices)


@op(_index_rule, variants=INTERNAL, batching=shape_rules.index)
def index(xp: Any, input: Array, indices: Indices) -> Any:
    """``input`` at index tensors, null where a dimension is taken whole."""
    shape = _index_rule(input, indices).shape
    if 0 in shape:  # nothing is read, so indices out of range are harmless
        return xp.zeros(shape, input.dtype)
    return input[_checked_index(xp, input, indices)]


index.checks("indices")(_check_read)
index.derivative(
    input=lambda F, grad, input_shape, indices: F.index_put(F.new_zeros(grad, input_shape), indices, grad, True)
)


def _index_put_rule(input: Any, indices: Any, values: Any) -> Spec:
    target = _index_rule(input, indices).shape
    if hasattr(values, "shape"):
        if values.dtype != input.dtype:
            raise IndexOutOfRange(
                "Index put requires the source and destination dtypes match, got "
                f"{kernel_name(input)} for the destination and {kernel_name(values)} for the source."
            )
        if not expands_to(values.shape, target):
            raise ShapeMismatch(
                f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to indexing result of "
                f"shape {list(target)}"
            )
    return Spec(input.shape, input.dtype)


@op(
    _index_put_rule,
    variants=FUNCTION | METHOD | INPLACE,
    memory=scratch(2.0),
    overlap=Overlap(itself=False, whole=True),
    autocast=PROMOTE_ON_CUDA,
    batching=shape_rules.index_put._replace(in_place="index_put_"),
)
def index_put(xp: Any, input: Array, indices: Places, values: Operand, accumulate: Bool = False) -> Any:
    """``input`` with ``values`` put, or added if ``accumulate``, at index tensors."""
    if 0 in _index_rule(input, indices).shape:
        return xp.array(input)
    place = _checked_index(xp, input, indices)
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


@composite(key="index_put.masks", variants=FUNCTION | METHOD | INPLACE)
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


@op(_index_select_rule, memory=NO_SCRATCH, batching=shape_rules.along_index)
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
    check_scalar_value("masked_fill_", value)
    return Spec(broadcast_shapes(mask.shape, input.shape), input.dtype)


@op(
    _masked_fill_rule,
    variants=FUNCTION | METHOD | INPLACE,
    node=by_operand("MaskedFill", at=2, tensor=1, number=0),
    overlap=ONLY_SECOND,
    batching=shape_rules.masked_fill._replace(in_place="inplace arithmetic"),
)
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


@op(_nonzero_rule, memory=scratch(1.25))
def nonzero(xp: Any, input: Array) -> Any:
    """The indices of the elements that are not zero, a row each: (n, ndim), int64."""
    return xp.argwhere(input)


@composite(key="nonzero.as_tuple", results=LIST)
def nonzero_as_tuple(F: Any, input: Array, *, as_tuple: Bool) -> Any:
    """The indices of the elements that are not zero, a vector a dimension."""
    if not as_tuple:
        return F.nonzero(input)
    return F.unbind(F.nonzero(input if input.ndim else F.reshape(input, (1,))), 1)


def _masked_select_rule(input: Any, mask: Any) -> Spec:
    if mask.dtype != bool_.numpy:
        raise DTypeMismatch("masked_select: expected BoolTensor for mask")
    shape = broadcast_shapes(mask.shape, input.shape)
    if isinstance(mask, Spec):
        raise DataDependentShape("the shape of masked_select's result depends on the mask's values")
    return Spec((int(mask.sum()) * (math.prod(shape) // max(mask.size, 1)),), input.dtype)


@op(
    _masked_select_rule,
    batching=shape_rules.masked_select._replace(
        dynamic=(
            "vmap: Attempted to vmap over `mask` in torch.masked_select(self, mask) We cannot support this because for "
            "each batch this would return a differently shaped Tensor. Please file an issue at "
            "https://github.com/pytorch/pytorch/issues if you need this feature."
        ),
    ),
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
            f"masked_scatter: expected self and source to have same dtypes but got{kernel_name(input)} and "
            f"{kernel_name(source)}"
        )
    if mask.dtype != bool_.numpy:
        raise DTypeMismatch(f"masked_scatter_ only supports boolean masks, but got mask with dtype {kernel_name(mask)}")
    return Spec(shape, input.dtype)


@op(
    _masked_scatter_rule,
    variants=FUNCTION | METHOD | INPLACE,
    may_raise=True,
    overlap=ONLY_ITSELF,
    batching=shape_rules.masked_scatter,
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
    """The gradient where the mask is true, in order; its shape does not depend on the mask's values."""
    size = math.prod(source_shape)
    zeros = F.new_zeros(grad, (size,))
    if size == 0 or 0 in grad.shape:
        return F.reshape(zeros, source_shape)
    flat = F.reshape(F.broadcast_to(mask, tuple(grad.shape)), (-1,))
    places = F.clamp(F.cumsum(flat, 0) - 1, 0)
    taken = F.masked_fill(F.reshape(grad, (-1,)), F.logical_not(flat), 0)
    return F.reshape(F.index_put(zeros, [places], taken, True), source_shape)


masked_scatter.derivative(input=lambda F, grad, mask: F.masked_fill(grad, mask, 0), source=_masked_source_grad)


# index_reduce --------------------------------------------------------------------------------------------


@composite(variants=FUNCTION | METHOD | INPLACE, overlap=APART)
def index_reduce(
    F: Any, input: Array, dim: Int, index: Array, source: Array, reduce: Str, *, include_self: Bool = True
) -> Any:
    """``input`` with the slices of ``source`` reduced into it along ``dim`` at ``index``."""
    axis = wrap_dim(dim, len(input.shape))
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise InvalidOperation(
            f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}."
        )
    own, positions, added = [Spec(tuple(x.shape), x.dtype.numpy) for x in (input, index, source)]
    check_added("index_reduce_()", own, axis, positions, added)
    along = F.reshape(index, tuple(-1 if d == axis else 1 for d in range(len(source.shape))))
    places = F.expand(along, tuple(source.shape))
    return F.scatter_reduce(input, dim, places, source, reduce, include_self=include_self)


# Taking elements ----------------------------------------------------------------------------------------


def _take_rule(input: Any, index: Any) -> Spec:
    if index.dtype != int64.numpy:
        raise DTypeMismatch(f"take(): Expected a long tensor for index, but got {kernel_name(index)}")
    if 0 in input.shape and 0 not in index.shape:
        raise IndexOutOfRange("take(): tried to take from an empty tensor")
    return Spec(index.shape, input.dtype)


@op(_take_rule, batching=shape_rules.take)
def take(xp: Any, input: Array, index: Array) -> Any:
    """The elements at ``index``, as if ``input`` were a vector."""
    _check_taken(xp, input, index)
    return xp.reshape(input, (-1,))[index]


@take.checks("index")
def _check_taken(xp: Any, input: Any, index: Any) -> None:
    size = math.prod(input.shape)
    if any_outside(xp, index, -size, size):
        raise IndexOutOfRange(
            f"out of range: tried to access index {outlier(index, size)} on a tensor of {size} elements."
        )


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
        raise DTypeMismatch(f"torch.take_along_dim(): dtype of indices should be Long but got {kernel_name(data)}")
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
    places = F.remainder(indices, max(input.shape[axis], 1))  # torch wraps any index here
    return F.gather(F.broadcast_to(input, sizes[0]), axis, F.broadcast_to(places, sizes[1]))


# scatter_reduce ------------------------------------------------------------------------------------------

REDUCERS = {"sum": "add", "mean": "add", "prod": "multiply", "amax": "maximum", "amin": "minimum"}


def _scatter_reduce_rule(input: Any, dim: int, index: Any, src: Any, reduce: str) -> Spec:
    if reduce not in REDUCERS:
        raise InvalidOperation(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    return scatter_rule(input, dim, index, src)


def _start(xp: Any, reduce: str, dtype: Any) -> Any:
    """The identity element of the reduction."""
    if reduce not in ("amax", "amin"):
        return int(reduce == "prod")
    if dtype.kind == "b":
        return reduce == "amin"
    limits = xp.iinfo(dtype) if dtype.kind in "iu" else None
    least, greatest = (limits.min, limits.max) if limits else (-xp.inf, xp.inf)
    return least if reduce == "amax" else greatest


@op(
    _scatter_reduce_rule,
    variants=FUNCTION | METHOD | INPLACE,
    memory=scratch(3.0),
    overlap=APART,
    batching=Batching(in_place="scatter_reduce_"),
)
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
    counts = xp.maximum(xp.index_add(xp.full(input.shape, int(include_self)), at, 1), 1)
    return result // counts if input.dtype.kind in "iu" else (result / counts).astype(input.dtype)


scatter_reduce.checks("index")(check_along)


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
    """The gradient, shared as in torch: evenly among ties; a single zero factor gets that of the other factors."""
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
