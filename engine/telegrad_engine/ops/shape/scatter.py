"""Gathering and scattering along a dimension, and writing parts of a tensor out of place."""

from __future__ import annotations

import math
from typing import Any

from ...dtypes import element, int32, int64
from ...errors import DTypeMismatch, IndexOutOfBounds, IndexOutOfRange, InvalidOperation, ShapeMismatch
from ...schema.declaration import APART, FUNCTION, INPLACE, METHOD, ONLY_SECOND, UNCHECKED, Batching, scratch
from ...schema.op import composite, op
from ...schema.parameters import Array, Bool, Int, Ints, Number, Operand, OptionalInt
from ...schema.promotion import PROMOTE_ON_CUDA, Autocast, Policy
from ...shapes import Spec, size_at, wrap_dim
from ..batching import shape_rules
from ..guards import kernel_name
from ..math.declarations import by_operand
from .joining import select
from .views import as_strided, check_part, write_flat


def any_outside(xp: Any, index: Any, least: int, size: int) -> bool:
    """Whether any index is less than ``least`` or at least ``size``."""
    return bool(index.size) and xp.is_invalid((index.min() < least) | (index.max() >= size))


def outlier(index: Any, size: int) -> int:
    """The out-of-range index that torch's error texts name: the largest if it is too large, else the smallest."""
    largest = int(index.max())
    return largest if largest >= size else int(index.min())


def check_along(
    xp: Any, input: Any, index: Any, *_sources: Any, dim: int, error: Any = IndexOutOfBounds, negative: bool = False
) -> None:
    """Raise unless every index is within ``input`` along ``dim``; if ``negative``, those below 0 count from the end."""
    shape = input.shape or (1,)
    size = shape[dim]
    if any_outside(xp, index, -size if negative else 0, size):
        wrong = outlier(index, size)
        raise error(f"index {wrong} is out of bounds for dimension {dim % len(shape)} with size {size}")


def check_scalar_value(name: str, value: Any) -> None:
    """Raise if the value is a tensor with dimensions."""
    if getattr(value, "shape", ()):
        raise InvalidOperation(
            f"{name} only supports a 0-dimensional value tensor, but got tensor with {len(value.shape)} dimension(s)."
        )


def places(xp: Any, index: Any, axis: int) -> tuple[Any, ...]:
    """The index arrays of the positions that the elements of ``index`` refer to."""
    grids = []
    for d, n in enumerate(index.shape):
        shape = [1] * index.ndim
        shape[d] = n
        grids.append(index if d == axis else xp.reshape(xp.arange(n), tuple(shape)))
    return tuple(grids)


def source(src: Any, index: Any) -> Any:
    """The part of a source that is covered by an index, which may be smaller."""
    return src[tuple(slice(0, n) for n in index.shape)]


def padded_to(F: Any, grad: Any, shape: tuple[int, ...]) -> Any:
    """Pad the gradient with zeros for elements of a source that is larger than its index."""
    if tuple(grad.shape) == shape:
        return grad
    if 0 in grad.shape:  # an empty index may have other dimensions than its source
        return F.new_zeros(grad, shape)
    return F.getitem_scatter(grad, shape, tuple(("slice", 0, n, 1) for n in grad.shape))


# Gather and scatter --------------------------------------------------------------------------------------


def _check_index(name: str, what: str, shape: Any, index: Any) -> None:
    if math.prod(index.shape) and index.dtype != int64.numpy and index.dtype != int32.numpy:
        raise DTypeMismatch(f"{name}(): Expected dtype int32/int64 for index")
    if math.prod(index.shape) and len(index.shape) != len(shape) and (shape or len(index.shape) > 1):
        raise ShapeMismatch(f"Index tensor must have the same number of dimensions as {what} tensor")


def _gather_rule(input: Any, dim: int, index: Any, sparse_grad: bool) -> Spec:
    if sparse_grad:
        raise InvalidOperation("gather: sparse gradients are not supported; leave sparse_grad=False")
    axis = wrap_dim(dim, len(input.shape))
    _check_index("gather", "input", input.shape, index)
    for d, (n, size) in enumerate(zip(index.shape, input.shape, strict=False)):
        if d != axis and n > size:
            raise ShapeMismatch(
                f"Size does not match at dimension {d} expected index {list(index.shape)} to be no larger than "
                f"self {list(input.shape)} apart from dimension {axis}"
            )
    return Spec(index.shape, input.dtype)


@op(_gather_rule)
def gather(xp: Any, input: Array, dim: Int, index: Array, *, sparse_grad: Bool = False) -> Any:
    """Along ``dim``, the elements that ``index`` names."""
    axis = dim % max(input.ndim, 1)
    check_along(xp, input, index, dim=dim)
    if not input.ndim:
        return xp.broadcast_to(input, index.shape)
    if not index.size:
        return xp.zeros(index.shape, input.dtype)
    within_reach = tuple(slice(None) if d == axis else slice(0, n) for d, n in enumerate(index.shape))
    return xp.take_along_axis(input[within_reach], index, axis=axis)


gather.checks("index")(check_along)
gather.derivative(
    input=lambda F, grad, input_shape, dim, index: F.scatter_add(F.new_zeros(grad, input_shape), dim, index, grad)
)


def scatter_rule(input: Any, dim: int, index: Any, src: Any) -> Spec:
    """The spec of ``input`` with ``src``, a tensor or a number, scattered into it."""
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
        beside = f" and to be no larger size than src {list(src.shape)}" if hasattr(src, "shape") else ""
        raise ShapeMismatch(
            f"Expected index {list(index.shape)} to be no larger than self {list(input.shape)} apart from dimension "
            f"{axis}{beside}"
        )
    return Spec(input.shape, input.dtype)


def _scattered(xp: Any, write: Any, input: Any, dim: int, index: Any, src: Any) -> Any:
    """``input`` with ``src``, a tensor or a number, written by ``write`` along ``dim`` at ``index``."""
    check_along(xp, input, index, dim=dim)
    if not index.size:
        return xp.copy(input)
    flat, axis, number = input, dim % max(input.ndim, 1), not hasattr(src, "shape")
    if not (input.ndim and index.ndim and (number or src.ndim)):  # a vector and a 0-dim tensor may be combined
        flat, index = xp.reshape(input, (-1,)), xp.reshape(index, (-1,))
        src = src if number else xp.reshape(src, (-1,))
    values = element(src, input.dtype) if number else source(src, index)
    return xp.reshape(write(flat, places(xp, index, axis), values), input.shape)


@op(scatter_rule, variants=FUNCTION | METHOD | INPLACE, overlap=APART)
def scatter(xp: Any, input: Array, dim: Int, index: Array, src: Array) -> Any:
    """``input`` with ``src`` written along ``dim`` where ``index`` says."""
    return _scattered(xp, xp.index_set, input, dim, index, src)


scatter.checks("index")(check_along)
scatter.derivative(
    input=lambda F, grad, dim, index: F.scatter_value(grad, dim, index, 0.0),
    src=lambda F, grad, dim, index, src_shape: padded_to(F, F.gather(grad, dim, index), src_shape),
)


@op(
    lambda input, dim, index, value: scatter_rule(input, dim, index, value),
    key="scatter.value",
    variants=FUNCTION | METHOD | INPLACE,
    node="ScatterBackward1",
    overlap=APART,
)
def scatter_value(xp: Any, input: Array, dim: Int, index: Array, value: Number) -> Any:
    """``input`` with a number written along ``dim`` where ``index`` says."""
    return _scattered(xp, xp.index_set, input, dim, index, value)


scatter_value.checks("index")(check_along)
scatter_value.derivative(input=lambda F, grad, dim, index: F.scatter_value(grad, dim, index, 0.0))


@op(
    scatter_rule,
    variants=FUNCTION | METHOD | INPLACE,
    memory=scratch(1.25),
    overlap=APART,
    autocast=PROMOTE_ON_CUDA,
    batching=Batching(in_place="scatter_add_"),
)
def scatter_add(xp: Any, input: Array, dim: Int, index: Array, src: Array) -> Any:
    """``input`` with ``src`` added along ``dim`` where ``index`` says; repeated indices add up."""
    return _scattered(xp, xp.index_add, input, dim, index, src)


scatter_add.checks("index")(check_along)
scatter_add.derivative(
    input=lambda F, grad: grad,
    src=lambda F, grad, dim, index, src_shape: padded_to(F, F.gather(grad, dim, index), src_shape),
)


# Slices along a dimension -------------------------------------------------------------------------------


def _along(xp: Any, input: Any, dim: int, index: Any) -> tuple[Any, Any]:
    """Return ``input`` with at least one dimension, and the full index of ``index`` (0-dim or 1-dim) along ``dim``."""
    whole = input if input.ndim else xp.reshape(input, (1,))
    return whole, (slice(None),) * (dim % whole.ndim) + (xp.reshape(index, (-1,)),)


def _picked(F: Any, grad: Any, dim: int, index: Any, shape: Any) -> Any:
    """The slices of ``grad`` along ``dim`` at ``index``, in the shape of the source."""
    return F.reshape(F.index_select(grad, dim, F.reshape(index, (-1,))), shape)


def check_added(name: str, input: Any, axis: int, index: Any, source: Any) -> None:
    """Raise unless ``index`` and ``source`` match ``input``, as index_add_ and index_reduce_ do."""
    n = math.prod(index.shape)
    if len(index.shape) > 1:
        raise IndexOutOfRange(
            f"{name}: Index is supposed to be a vector, but got dim: {len(index.shape)} with type: "
            f"{kernel_name(index)} and size: {list(index.shape)}"
        )
    if index.dtype not in (int64.numpy, int32.numpy):
        raise DTypeMismatch(f"{name}: Expected dtype int32/int64 for index but got: {kernel_name(index)}")
    if source.dtype != input.dtype:
        raise DTypeMismatch(
            f"{name}: self ({kernel_name(input)}) and source ({kernel_name(source)}) must have the same scalar type"
        )
    if axis and axis >= len(source.shape):
        raise ShapeMismatch(
            f"{name}: Indexing dim {axis} is out of bounds of the source tensor with dim {len(source.shape)}"
        )
    if n != (source.shape[axis] if source.shape else 1):
        raise ShapeMismatch(
            f"{name}: Number of indices ({n}) should be equal to source.size(dim): ({size_at(source.shape, axis)}), "
            f"for dim: {axis}"
        )
    left, right = list(input.shape), list(source.shape)
    if len(left) == len(right):
        del left[axis : axis + 1], right[axis : axis + 1]
    if left != right:
        raise ShapeMismatch(
            "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = "
            f"{list(input.shape)} source.shape = {list(source.shape)}"
        )


def _index_add_rule(input: Any, dim: int, index: Any, source: Any) -> Spec:
    check_added("index_add_()", input, wrap_dim(dim, len(input.shape)), index, source)
    return Spec(input.shape, input.dtype)


@op(
    _index_add_rule,
    variants=FUNCTION | METHOD | INPLACE,
    memory=scratch(2.0),
    overlap=APART,
    batching=shape_rules.along_index._replace(in_place="index_add_"),
)
def index_add(xp: Any, input: Array, dim: Int, index: Array, source: Array, *, alpha: Number = 1) -> Any:
    """``input`` with ``alpha`` times the slices of ``source`` added along ``dim`` at ``index``."""
    whole, place = _along(xp, input, dim, index)
    _check_added(xp, input, index, source, dim=dim)
    added = source if source.ndim else xp.reshape(source, (1,))
    if alpha != 1:
        added = (added * alpha).astype(input.dtype)
    return xp.reshape(xp.index_add(whole, place, added), input.shape)


@index_add.checks("index")
def _check_added(xp: Any, input: Any, index: Any, _source: Any, *, dim: int) -> None:
    if len(input.shape) < 2 and any_outside(xp, index, 0, math.prod(input.shape)):
        raise IndexOutOfRange("index out of range in self")
    check_along(xp, input, index, dim=dim)


index_add.derivative(
    input=lambda F, grad: grad,
    source=lambda F, grad, source_shape, dim, index, alpha: _picked(F, grad, dim, index, source_shape) * alpha,
)


def _index_copy_rule(input: Any, dim: int, index: Any, source: Any) -> Spec:
    axis = wrap_dim(dim, len(input.shape))
    if len(index.shape) > 1:
        raise IndexOutOfRange(f"index_copy_(): Index should have dimension 1 or 0 (got {len(index.shape)})")
    n = math.prod(index.shape)
    if not source.shape and n != 1:
        raise IndexOutOfRange(f"index_copy_(): When source is scalar, index should have one element (got {n})")
    if input.shape and source.shape and len(input.shape) != len(source.shape):
        raise IndexOutOfRange(
            "index_copy_(): When source and destination are not scalars, their dimensionality must match. Source "
            f"dimensionality ({len(source.shape)}), destination dimensionality ({len(input.shape)})"
        )
    if index.dtype != int64.numpy:
        raise DTypeMismatch(f"index_copy_(): Expected a long tensor for index, but got {kernel_name(index)}")
    if source.dtype != input.dtype:
        raise DTypeMismatch(
            f"index_copy_(): self and source expected to have the same dtype, but got (self) {kernel_name(input)} and "
            f"(source) {kernel_name(source)}"
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
    variants=FUNCTION | METHOD | INPLACE,
    overlap=APART,
    autocast=Autocast(cpu=Policy.PROMOTE),
    batching=shape_rules.along_index,
)
def index_copy(xp: Any, input: Array, dim: Int, index: Array, source: Array) -> Any:
    """``input`` with the slices of ``source`` written along ``dim`` at ``index``."""
    whole, place = _along(xp, input, dim, index)
    _check_copied(xp, input, index, source, dim=dim)
    return xp.reshape(xp.index_set(whole, place, source), input.shape)


@index_copy.checks("index")
def _check_copied(xp: Any, input: Any, index: Any, _source: Any, *, dim: int) -> None:
    check_along(xp, input, index, dim=dim, error=lambda text: IndexOutOfRange(f"index_copy_(): {text}"))


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
    check_scalar_value("index_fill_", value)
    return Spec(input.shape, input.dtype)


@op(
    _index_fill_rule,
    variants=FUNCTION | METHOD | INPLACE,
    node=by_operand("IndexFill", at=2, tensor=1, number=0),
    overlap=ONLY_SECOND,
    batching=shape_rules.index_fill._replace(in_place="index_fill_"),
)
def index_fill(xp: Any, input: Array, dim: Int, index: Array, value: Operand) -> Any:
    """``input`` with ``value`` in the slices along ``dim`` at ``index``."""
    whole, place = _along(xp, input, dim, index)
    _check_filled(xp, input, index, value, dim=dim)
    if not hasattr(value, "dtype"):
        value = element(value, input.dtype)
    return xp.reshape(xp.index_set(whole, place, value), input.shape)


@index_fill.checks("index")
def _check_filled(xp: Any, input: Any, index: Any, _value: Any, *, dim: int) -> None:
    check_along(xp, input, index, dim=dim, error=IndexOutOfRange, negative=True)


index_fill.derivative(
    input=lambda F, grad, dim, index: F.index_fill(grad, dim, index, 0),
    value=lambda F, grad, dim, index: F.sum(F.where(F.index_fill(F.zeros_like(grad), dim, index, 1) == 1, grad, 0.0)),
)


# Writing parts out of place -----------------------------------------------------------------------------


def _bounds(size: int, start: int | None, end: int | None, step: int) -> slice:
    """The slice with its bounds clipped to the dimension. Raises InvalidOperation for a step that is not positive."""
    if step <= 0:
        raise InvalidOperation("slice step must be positive")
    first, last, _ = slice(start, end, step).indices(size)
    return slice(first, max(first, last), step)


def _slice_scatter_rule(input: Any, src: Any, dim: int, start: int | None, end: int | None, step: int) -> Spec:
    if not input.shape:
        raise IndexOutOfRange("slice() cannot be applied to a 0-dim tensor.")
    axis = wrap_dim(dim, len(input.shape))
    where = _bounds(input.shape[axis], start, end, step)
    length = len(range(where.start, where.stop, where.step))
    check_part(src, (*input.shape[:axis], length, *input.shape[axis + 1 :]))
    return Spec(input.shape, input.dtype)


@op(_slice_scatter_rule)
def slice_scatter(
    xp: Any, input: Array, src: Array, dim: Int = 0, start: OptionalInt = None, end: OptionalInt = None, step: Int = 1
) -> Any:
    """``input`` with ``src`` in place of the slice ``start:end:step`` of dimension ``dim``."""
    axis = dim % input.ndim
    where = _bounds(input.shape[axis], start, end, step)
    return xp.index_set(input, (slice(None),) * axis + (where,), src.astype(input.dtype))


def sliced(F: Any, x: Any, dim: int, start: Any, end: Any, step: int) -> Any:
    """The slice ``start:end:step`` of dimension ``dim``."""
    return F.getitem(x, (*[("slice", None, None, None)] * wrap_dim(dim, len(x.shape)), ("slice", start, end, step)))


slice_scatter.derivative(
    input=lambda F, grad, src_shape, dim, start, end, step: F.slice_scatter(
        grad, F.new_zeros(grad, src_shape), dim, start, end, step
    ),
    src=lambda F, grad, dim, start, end, step: sliced(F, grad, dim, start, end, step),
)


@composite()
def select_scatter(F: Any, input: Array, src: Array, dim: Int, index: Int) -> Any:
    """``input`` with ``src`` in place of the slice at ``index`` of dimension ``dim``."""
    check_part(src, select.rule(input, dim=dim, index=index).shape)
    axis = wrap_dim(dim, len(input.shape))
    place = index % input.shape[axis]
    return F.slice_scatter(input, F.unsqueeze(src, axis), axis, place, place + 1)


def _as_strided_scatter_rule(input: Any, src: Any, size: Any, stride: Any, storage_offset: int | None) -> Spec:
    check_part(src, as_strided.rule(input, size=size, stride=stride, storage_offset=storage_offset).shape)
    return Spec(input.shape, input.dtype)


@op(_as_strided_scatter_rule, batching=shape_rules.strided)
def as_strided_scatter(
    xp: Any, input: Array, src: Array, size: Ints, stride: Ints, storage_offset: OptionalInt = None
) -> Any:
    """``input`` with ``src`` in place of what ``as_strided`` shows of it."""
    places = xp.as_strided(xp.arange(input.size), size, stride, storage_offset or 0)
    return write_flat(xp, input, places, src.astype(input.dtype))


as_strided_scatter.derivative(
    input=lambda F, grad, src_shape, size, stride, storage_offset: F.as_strided_scatter(
        F.contiguous(grad), F.new_zeros(grad, src_shape), size, stride, storage_offset
    ),
    src=lambda F, grad, size, stride, storage_offset: F.as_strided(F.contiguous(grad), size, stride, storage_offset),
)

# Flat positions ------------------------------------------------------------------------------------------


def _put_rule(input: Any, index: Any, source: Any) -> Spec:
    if index.dtype != int64.numpy:
        raise DTypeMismatch(f"put_(): Expected a long tensor for index, but got {kernel_name(index)}")
    if source.dtype != input.dtype:
        raise DTypeMismatch(
            "put_(): self and source expected to have the same dtype, but got self.dtype = "
            f"{kernel_name(input)} and source.dtype = {kernel_name(source)}"
        )
    sources, indices = math.prod(source.shape), math.prod(index.shape)
    if sources != indices:
        raise IndexOutOfRange(
            "put_(): Expected source and index to have the same number of elements, but got source.numel() = "
            f"{sources}, index.numel() = {indices}"
        )
    if not math.prod(input.shape) and indices:
        raise IndexOutOfRange("put_(): tried to put into an empty tensor")
    return Spec(input.shape, input.dtype)


@op(_put_rule, variants=FUNCTION | METHOD | INPLACE, may_raise=True, overlap=APART, batching=shape_rules.put)
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

# Filling diagonals ---------------------------------------------------------------------------------------


def _fill_diagonal_rule(input: Any) -> Spec:
    if len(input.shape) < 2:
        raise ShapeMismatch("dimensions must larger than 1")
    if len(input.shape) > 2 and len(set(input.shape)) > 1:
        raise ShapeMismatch("all dimensions of input must be of equal length")
    return Spec(input.shape, input.dtype)


def _on_diagonal(shape: tuple[int, ...], wrap: bool) -> slice:
    """The slice of the diagonal's flat indices; with ``wrap`` it continues below the square part."""
    size = math.prod(shape)
    if not size:
        return slice(0)
    step = 1 + sum(math.prod(shape[axis:]) for axis in range(1, len(shape)))
    return slice(0, size if wrap or len(shape) > 2 else min(shape) * step, step)


# ``wrap`` is tested separately, because in place torch counts it as two changes.
@op(_fill_diagonal_rule, variants=INPLACE, overlap=UNCHECKED)
def fill_diagonal(xp: Any, input: Array, fill_value: Number, wrap: Bool = False) -> Any:
    """One number on the diagonal; ``fill_diagonal_`` writes it."""
    return write_flat(xp, input, _on_diagonal(input.shape, wrap), element(fill_value, input.dtype))


fill_diagonal.derivative(input=lambda F, grad, wrap: F.fill_diagonal(grad, 0, wrap))
