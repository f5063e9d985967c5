"""Unique elements, membership, bucketing and searches in sorted values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...cancellation import check_cancelled
from ...dtypes import bool_, float32, float64, int32, int64, is_floating, widened
from ...errors import (
    DataDependentShape,
    DTypeMismatch,
    IndexOutOfBounds,
    IndexOutOfRange,
    InvalidOperation,
    ShapeMismatch,
)
from ...schema.declaration import FUNCTION, INTERNAL, LIST, MAY_ALIAS, named, scratch
from ...schema.memory_admission import BLOCK
from ...schema.op import composite, op
from ...schema.parameters import Array, Bool, Int, ManyArrays, Operand, OptionalInt, OptionalStr
from ...shapes import Spec, check_nonnegative, is_array, size_at, wrap_dim
from ..batching import math_rules
from ..blocked_loops import flat_blocks
from ..guards import check_no_bools, kernel_name, no_kernel
from .declarations import check_has_values


@composite()
def repeat_interleave(
    F: Any, input: Array, repeats: Int, dim: OptionalInt = None, *, output_size: OptionalInt = None
) -> Any:
    """Each element along ``dim``, or of the flattened tensor, ``repeats`` times in a row."""
    if dim is None:
        input, dim = F.reshape(input, (-1,) if 0 not in input.shape else (0,)), 0
    axis = wrap_dim(dim, len(input.shape))
    shape = tuple(input.shape)
    if not shape:
        raise IndexOutOfRange("Dimension out of range (expected to be in range of [-1, 0], but got 1)")
    if repeats < 0:
        raise InvalidOperation("Repeats must be non-negative")
    n = shape[axis] * repeats
    if output_size is not None and output_size != n:
        raise InvalidOperation(f"repeat_interleave: Invalid output_size, expected {n} but got {output_size}")
    spread = F.expand(F.unsqueeze(input, axis + 1), (*shape[: axis + 1], repeats, *shape[axis + 1 :]))
    return F.reshape(spread, (*shape[:axis], n, *shape[axis + 1 :]))


@composite(key="repeat_interleave.tensor")
def repeat_interleave_tensor(
    F: Any, input: Array, repeats: Array, dim: OptionalInt = None, *, output_size: OptionalInt = None
) -> Any:
    """Each element along ``dim``, or of the flattened tensor, as often as ``repeats`` says."""
    if dim is None:
        input, dim = F.reshape(input, (-1,) if 0 not in input.shape else (0,)), 0
    axis = wrap_dim(dim, len(input.shape))
    size = input.shape[axis] if input.shape else 1
    if len(repeats.shape) > 1:
        raise InvalidOperation("repeats must be 0-dim or 1-dim tensor")
    if tuple(repeats.shape) in ((), (1,)):
        repeats = F.expand(F.reshape(repeats, (1,)), (size,))
    elif repeats.shape[0] != size:
        size_at(input.shape, dim)
        raise ShapeMismatch(
            "repeats must have the same size as input along dim, but got repeats.size(0) = "
            f"{repeats.shape[0]} and input.size({axis}) = {size}"
        )
    return F.index_select(input, axis, F.repeat_interleave_counts(repeats, output_size=output_size))


def _counts_rule(repeats: Any, output_size: int | None) -> Spec:
    if len(repeats.shape) != 1:
        raise InvalidOperation("repeat_interleave only accept 1D vector as repeat")
    if repeats.dtype.name not in ("int32", "int64"):
        raise no_kernel("repeat_interleave_cpu", repeats.dtype)
    if output_size is None and isinstance(repeats, Spec):
        raise DataDependentShape("the shape of repeat_interleave's result depends on the values of repeats")
    size = max(int(repeats.sum()), 0) if output_size is None else output_size
    return Spec(check_nonnegative((size,), "repeat_interleave"), repeats.dtype)


@op(_counts_rule, key="repeat_interleave.counts", variants=FUNCTION, memory=scratch(2.0), may_raise=True)
def repeat_interleave_counts(xp: Any, repeats: Array, *, output_size: OptionalInt = None) -> Any:
    """Each position in ``repeats`` as often as the number there says."""
    if output_size is not None and output_size != int(repeats.sum()):
        raise InvalidOperation("allocated size does not match required size")
    if repeats.size and int(repeats.min()) < 0:
        raise InvalidOperation("repeats can not be negative")
    return xp.repeat(xp.arange(repeats.size), repeats).astype(repeats.dtype)


# Unique elements -----------------------------------------------------------------------------------------


def _unique2_rule(input: Any, return_inverse: bool, return_counts: bool) -> list[Spec]:
    check_has_values("unique", input)
    # an upper bound: the number of unique elements is not known here
    return [
        Spec((input.size,), input.dtype),
        Spec(input.shape if return_inverse else (0,), int64.numpy),
        Spec((input.size if return_counts else 0,), int64.numpy),
    ]


def _unique2_scratch(input: Any, return_inverse: bool, return_counts: bool) -> int:
    """The scratch bytes of a sort with its order and counts; in blocks, of one block and of the joined results."""
    size, itemsize = math.prod(input.shape), input.dtype.itemsize
    if size * itemsize <= BLOCK:
        return int(size * (4 * itemsize + 48))
    width = max(itemsize, 4) if is_floating(input.dtype) else itemsize
    of_block = BLOCK // itemsize * (4 * width + 16 * return_inverse + 32 * return_counts)
    return int(of_block + size * (4 * itemsize + 16 * return_counts))


@op(_unique2_rule, variants=INTERNAL, results=named("values", "inverse", "counts"), memory=scratch(_unique2_scratch))
def _unique2(
    xp: Any, input: Array, sorted: Bool = True, return_inverse: Bool = False, return_counts: Bool = False
) -> Any:
    """The different elements in ascending order, where each element is among them, and how often each occurs."""
    if input.nbytes > BLOCK:
        return _unique_in_blocks(xp, input, return_inverse, return_counts)
    values, inverse, counts = xp.unique(
        xp.reshape(input, (-1,)), return_inverse=True, return_counts=True, equal_nan=False
    )
    return (
        values,
        xp.reshape(inverse, input.shape) if return_inverse else inverse[:0],
        counts[: counts.size * return_counts],
    )


def _unique_in_blocks(xp: Any, input: Any, return_inverse: bool, return_counts: bool) -> tuple[Any, Any, Any]:
    """Like ``_unique2``, from the unique elements of each block.

    NumPy's sort of float16 misplaces zeros of different signs on processors with AVX-512, so float16 is widened first.
    """
    found = [xp.unique(widened(part), return_counts=return_counts, equal_nan=False) for part in flat_blocks(input)]
    parts = [part[0] for part in found] if return_counts else found
    values = xp.unique(xp.concatenate(parts), equal_nan=False)
    numbers = values.size - int(xp.sum(values != values))  # NaNs come last and are all distinct
    counts = xp.ones((values.size * return_counts,), int64.numpy)
    if return_counts:
        counts[:numbers] = 0
        for part, part_counts in found:
            known = part == part
            counts[xp.searchsorted(values[:numbers], part[known])] += part_counts[known]
    inverse = xp.empty((input.size * return_inverse,), int64.numpy)
    if return_inverse:
        start, next_nan = 0, numbers
        for part in map(widened, flat_blocks(input)):
            places = xp.searchsorted(values[:numbers], part)
            nans = xp.flatnonzero(part != part)
            places[nans] = xp.arange(next_nan, next_nan + nans.size)
            inverse[start : start + part.size] = places
            start, next_nan = start + part.size, next_nan + nans.size
        inverse = xp.reshape(inverse, input.shape)
    return values.astype(input.dtype, copy=False), inverse, counts


def _unique_dim_rule(input: Any, dim: int) -> list[Spec]:
    if not input.shape:
        raise IndexOutOfRange(f"Dimension specified as {dim} but tensor has no dimensions")
    axis = wrap_dim(dim, len(input.shape))
    if any(n == 0 for d, n in enumerate(input.shape) if d != axis):
        raise InvalidOperation("There are 0 sized dimensions, and they aren't selected, so unique cannot be applied")
    check_has_values("unique", input)
    indices = Spec((input.shape[axis],), int64.numpy)
    return [Spec(input.shape, input.dtype), indices, indices]


@op(_unique_dim_rule, variants=INTERNAL, results=named("values", "inverse", "counts"), memory=scratch(4.0))
def unique_dim(
    xp: Any, input: Array, dim: Int, sorted: Bool = True, return_inverse: Bool = False, return_counts: Bool = False
) -> Any:
    """The different slices along ``dim`` in ascending order, where each is among them, and how often it occurs."""
    if not input.size:
        empty = xp.zeros((input.shape[dim],), int64.numpy)
        return input, empty, empty
    if isinstance(input, np.ndarray) and input.dtype.kind in "biuf":
        return _unique_slices(input, dim)
    values, inverse, counts = xp.unique(input, return_inverse=True, return_counts=True, axis=dim)
    return values, xp.reshape(inverse, (-1,)), counts


def _unique_slices(input: Any, dim: int) -> tuple[Any, Any, Any]:
    """Like ``unique_dim``, on NumPy, whose own method sorts the slices as records and holds the GIL.

    The slices are sorted by one column after another, until all of them are distinct.
    """
    n = input.shape[dim]
    rows = np.moveaxis(input, dim, 0).reshape(n, -1)
    labels, order = np.zeros(n, np.int64), np.arange(n)
    for column in rows.T:
        check_cancelled()
        order = np.lexsort((column, labels))
        sorted_labels, sorted_column = labels[order], column[order]
        starts = np.ones(n, bool)
        starts[1:] = (sorted_labels[1:] != sorted_labels[:-1]) | (sorted_column[1:] != sorted_column[:-1])
        labels[order] = np.cumsum(starts) - 1
        if starts.all():
            break
    sorted_labels = labels[order]
    first = np.flatnonzero(np.append(True, sorted_labels[1:] != sorted_labels[:-1]))
    return np.take(input, order[first], axis=dim), labels, np.diff(np.append(first, n))


@composite()
def unique(
    F: Any,
    input: Array,
    sorted: Bool = True,
    return_inverse: Bool = False,
    return_counts: Bool = False,
    dim: OptionalInt = None,
) -> Any:
    """The different elements, or slices along ``dim``, in ascending order.

    On demand also where each is among them, and how often.
    """
    if dim is None:
        values, inverse, counts = F._unique2(input, sorted, return_inverse, return_counts)
    else:
        values, inverse, counts = F.unique_dim(input, dim, sorted, return_inverse, return_counts)
    return _wanted(values, inverse if return_inverse else None, counts if return_counts else None)


def _wanted(values: Any, *others: Any) -> Any:
    """The values alone, or a tuple of the values and the others that are not None."""
    asked = [x for x in others if x is not None]
    return (values, *asked) if asked else values


def _bincount_rule(input: Any, weights: Any, minlength: int) -> Spec:
    if minlength < 0:
        raise InvalidOperation("minlength should be >= 0")
    if input.dtype.kind not in "iu":
        raise no_kernel("bincount_cpu", input.dtype)
    if len(input.shape) != 1:
        raise InvalidOperation("bincount only supports 1-d non-negative integral inputs.")
    if weights is not None and weights.shape != input.shape:
        raise ShapeMismatch("weights should be 1-d and have the same length as input")
    check_has_values("bincount", input)
    if input.size and int(input.min()) < 0:
        raise InvalidOperation("bincount only supports 1-d non-negative integral inputs.")
    dtype = int64.numpy
    if weights is not None and input.size:
        dtype = weights.dtype if weights.dtype == float32.numpy else float64.numpy
    return Spec((max(int(input.max()) + 1 if input.size else 0, minlength),), dtype)


@op(_bincount_rule, memory=scratch(4.0))
def bincount(xp: Any, input: Array, weights: Array = None, minlength: Int = 0) -> Any:
    """How often each whole number from 0 occurs, or the sums of the weights where it does."""
    return xp.bincount(input, weights, minlength)


# Membership, bucketing, and combinations of elements -----------------------------------------------------


@composite(variants=FUNCTION)
def isin(
    F: Any, elements: Operand, test_elements: Operand, *, assume_unique: Bool = False, invert: Bool = False
) -> Any:
    """Whether each of ``elements`` is one of ``test_elements``, or, with ``invert``, is none."""
    for x in (elements, test_elements):
        if hasattr(x, "_data") and x.dtype is bool_:
            raise InvalidOperation("Unsupported input type encountered for isin(): Bool")
    others = F.reshape(test_elements, (-1,)) if hasattr(test_elements, "_data") else test_elements
    each = F.unsqueeze(elements, -1) if hasattr(elements, "_data") else elements
    found = F.eq(each, others) if hasattr(each, "_data") else F.eq(others, each)
    found = F.any(found, -1)
    return F.logical_not(found) if invert else found


@composite(variants=FUNCTION)
def bucketize(F: Any, input: Operand, boundaries: Array, *, out_int32: Bool = False, right: Bool = False) -> Any:
    """How many of the ascending ``boundaries`` are below each value (or, with ``right``, not above it)."""
    if boundaries.ndim != 1:
        raise ShapeMismatch(f"boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
    return F.searchsorted(boundaries, input, out_int32=out_int32, right=right)


@composite(variants=FUNCTION, memory=MAY_ALIAS)
def cartesian_prod(F: Any, tensors: ManyArrays) -> Any:
    """A row for every way of taking one element of each vector."""
    for x in tensors:
        _check_vector(x)
    if len(tensors) == 1:
        return tensors[0]
    return F.stack([F.reshape(grid, (-1,)) for grid in F.meshgrid(list(tensors), indexing="ij")], 1)


def _check_vector(x: Any) -> None:
    if x.ndim != 1:
        raise ShapeMismatch(f"Expect a 1D vector, but got shape {list(x.shape)}")


@composite(variants=FUNCTION)
def combinations(F: Any, input: Array, r: Int = 2, with_replacement: Bool = False) -> Any:
    """A row for every choice of ``r`` elements of a vector, each once or, with replacement, repeatedly."""
    _check_vector(input)
    if r < 0:
        raise InvalidOperation(f"Expect a non-negative number, but got {r}")
    if not r:
        return F.new_zeros(input, (0,))
    n = input.shape[0]
    if not n or (r > n and not with_replacement):
        return F.reshape(F.index_select(input, 0, F.arange(0)), (0, r))
    columns = F.unbind(F.combination_indices(n, r, with_replacement), 1)
    return F.stack([F.index_select(input, 0, column) for column in columns], 1)


@composite()
def argwhere(F: Any, input: Array) -> Any:
    """The indices of the elements that are not zero, a row each."""
    return F.nonzero(input)


@composite(key="where.condition", variants=FUNCTION, results=LIST)
def where_condition(F: Any, condition: Array) -> Any:
    """The indices of the elements that are not zero, a vector a dimension."""
    return F.nonzero(condition, as_tuple=True)


def _nonzero_static_rule(input: Any, size: int) -> Spec:
    if size < 0:
        raise InvalidOperation("nonzero_static: 'size' must be an non-negative integer")
    return Spec((size, len(input.shape)), int64.numpy)


@op(_nonzero_static_rule)
def nonzero_static(xp: Any, input: Array, *, size: Int, fill_value: Int = -1) -> Any:
    """The first ``size`` indices of elements that are not zero, a row each, and rows of ``fill_value`` after them."""
    places = xp.argwhere(input)[:size]
    rest = xp.full((size - places.shape[0], input.ndim), fill_value)
    return xp.concatenate([places, rest], axis=0).astype(int64.numpy)


def _runs_rule(input: Any, dim: int) -> list[Spec]:
    check_has_values("unique_consecutive", input)
    indices = Spec((size_at(input.shape, dim),), int64.numpy)
    return [Spec(input.shape, input.dtype), indices, indices]


@op(_runs_rule, variants=INTERNAL, results=named("values", "inverse", "counts"), memory=scratch(4.0))
def _runs(xp: Any, input: Array, dim: Int = 0) -> Any:
    """The slices along ``dim``, of equal neighbours one; the run that each belongs to; and how long each run is."""
    n = input.shape[dim]
    rows = xp.reshape(xp.moveaxis(input, dim, 0), (n, math.prod(input.shape) // max(n, 1)))
    starts = xp.concatenate([xp.ones((min(n, 1),), bool), xp.any(rows[1:] != rows[:-1], axis=1)])
    (first,) = xp.nonzero(starts)
    counts = xp.concatenate([first[1:], xp.full((min(n, 1),), n)]) - first
    return xp.take(input, first, axis=dim), xp.cumsum(starts) - 1, counts


@composite()
def unique_consecutive(
    F: Any, input: Array, return_inverse: Bool = False, return_counts: Bool = False, dim: OptionalInt = None
) -> Any:
    """The elements, or slices along ``dim``, of equal neighbours only the first; on demand which, and how many."""
    source = F.reshape(input, (-1,)) if dim is None else input
    if dim is not None and any(not n for i, n in enumerate(input.shape) if i != wrap_dim(dim, input.ndim)):
        raise ShapeMismatch("There are 0 sized dimensions, and they aren't selected, so unique cannot be applied")
    values, inverse, counts = F._runs(source, 0 if dim is None else wrap_dim(dim, input.ndim))
    if dim is None:
        inverse = F.reshape(inverse, tuple(input.shape))
    return _wanted(values, inverse if return_inverse else None, counts if return_counts else None)


# Searches in sorted values -------------------------------------------------------------------------------


def _searchsorted_rule(
    sorted_sequence: Any, input: Any, out_int32: bool, right: bool, side: str | None, sorter: Any
) -> Spec:
    name, shape, found = "torch.searchsorted()", sorted_sequence.shape, input.shape if is_array(input) else ()
    if side not in (None, "left", "right"):
        raise InvalidOperation(f"{name}: side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise InvalidOperation(
            f"{name}: side and right can't be set to opposites, got side of left while right was True"
        )
    if not shape:
        raise ShapeMismatch(f"{name}: boundaries tensor should have positive dimension, but got 0 dimension")
    if len(shape) != 1 and not found:
        raise ShapeMismatch(
            f"{name}: input value can be a scalar only when boundaries tensor dimension is 1, but we got "
            f"boundaries tensor dim({len(shape)}) and input value's dim(0) numel(1)"
        )
    if len(shape) != 1 and shape[:-1] != found[:-1]:
        raise ShapeMismatch(
            f"{name}: boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and "
            f"input value tensor must match, but we got boundaries tensor {list(shape)} and input value tensor "
            f"{list(found)}"
        )
    if sorter is not None and sorter.shape != shape:
        raise ShapeMismatch(
            f"{name}: boundary and sorter must have the same size, but got boundary tensor {list(shape)}"
            f"and got sorter tensor {list(sorter.shape)}"
        )
    if sorter is not None and sorter.dtype != int64.numpy:
        kind = kernel_name(sorter)
        raise DTypeMismatch(f"{name}: sorter must be a tensor of long dtype but got dtype {kind}")
    check_no_bools("searchsorted_out_cpu", sorted_sequence)
    return Spec(found, (int32 if out_int32 else int64).numpy)


@op(_searchsorted_rule, variants=FUNCTION, memory=scratch(5.0), may_raise=True, batching=math_rules.searchsorted)
def searchsorted(
    xp: Any,
    sorted_sequence: Array,
    input: Operand,
    *,
    out_int32: Bool = False,
    right: Bool = False,
    side: OptionalStr = None,
    sorter: Array = None,
) -> Any:
    """How many elements of each sorted row are below each value (or, with ``right``, not above it)."""
    values = xp.asarray(input)
    n = sorted_sequence.shape[-1]
    if sorter is not None:
        if sorter.size and not 0 <= int(sorter.min()) <= int(sorter.max()) < n:
            raise IndexOutOfBounds("torch.searchsorted(): sorter index out of range")
        sorted_sequence = xp.take_along_axis(sorted_sequence, sorter, axis=-1)
    beyond = xp.greater if right or side == "right" else xp.greater_equal
    low, high = xp.zeros(values.shape, int64.numpy), xp.full(values.shape, n)
    for _ in range(n.bit_length()):  # a bisection of all values at once, since rows may differ
        middle = xp.minimum((low + high) // 2, n - 1)
        flat = sorted_sequence.ndim == 1
        found = sorted_sequence[middle] if flat else xp.take_along_axis(sorted_sequence, middle, axis=-1)
        stop = beyond(found, values) | (low >= high)
        low, high = xp.where(stop, low, middle + 1), xp.where(stop, xp.minimum(middle, high), high)
    return low.astype((int32 if out_int32 else int64).numpy)
