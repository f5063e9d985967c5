"""Repeating elements, and finding and counting the different ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..cancellation import check_cancelled
from ..dtypes import float32, float64, from_numpy, int64, is_floating, widened
from ..errors import DataDependentShape, IndexOutOfRange, InvalidOperation, NotImplementedForDType, ShapeMismatch
from ..schema.memory_admission import BLOCK
from ..schema.op import composite, op
from ..schema.parameters import Array, Bool, Int, OptionalInt
from ..shapes import Spec, check_nonnegative, size_at, wrap_dim
from .blocks import flat_blocks

# Repeating -----------------------------------------------------------------------------------------------


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


@composite(
    key="repeat_interleave.tensor",
)
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


def _counts_rule(repeats: Any, *, output_size: Any = None) -> Spec:
    if len(repeats.shape) != 1:
        raise InvalidOperation("repeat_interleave only accept 1D vector as repeat")
    if repeats.dtype.name not in ("int32", "int64"):
        kind = from_numpy(repeats.dtype).kernel_name
        raise NotImplementedForDType(f"\"repeat_interleave_cpu\" not implemented for '{kind}'")
    if output_size is None and isinstance(repeats, Spec):
        raise DataDependentShape("the shape of repeat_interleave's result depends on the values of repeats")
    size = max(int(repeats.sum()), 0) if output_size is None else output_size
    return Spec(check_nonnegative((size,), "repeat_interleave"), repeats.dtype)


@op(_counts_rule, key="repeat_interleave.counts", method=False, scratch=2.0)
def repeat_interleave_counts(xp: Any, repeats: Array, *, output_size: OptionalInt = None) -> Any:
    """Each position in ``repeats`` as often as the number there says."""
    if output_size is not None and output_size != int(repeats.sum()):
        raise InvalidOperation("allocated size does not match required size")
    if repeats.size and int(repeats.min()) < 0:
        raise InvalidOperation("repeats can not be negative")
    return xp.repeat(xp.arange(repeats.size), repeats).astype(repeats.dtype)


# Different elements --------------------------------------------------------------------------------------


def _unique2_rule(
    input: Any, sorted: Any = True, return_inverse: Any = False, return_counts: Any = False
) -> list[Spec]:
    if isinstance(input, Spec):
        raise DataDependentShape("the shape of unique's result depends on the input's values")
    # No result is larger than this.
    return [
        Spec((input.size,), input.dtype),
        Spec(input.shape if return_inverse else (0,), int64.numpy),
        Spec((input.size if return_counts else 0,), int64.numpy),
    ]


def _unique2_scratch(input: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> int:
    """The bytes of sorted elements, their order and their numbers; in blocks, of one block and of all joined."""
    size, itemsize = math.prod(input.shape), input.dtype.itemsize
    if size * itemsize <= BLOCK:
        return int(size * (4 * itemsize + 48))
    width = max(itemsize, 4) if is_floating(input.dtype) else itemsize
    of_block = BLOCK // itemsize * (4 * width + 16 * return_inverse + 32 * return_counts)
    return int(of_block + size * (4 * itemsize + 16 * return_counts))


@op(_unique2_rule, method=False, internal=True, outputs=("values", "inverse", "counts"), scratch=_unique2_scratch)
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
    """The same from the different elements of each block.

    NumPy's sort of float16 misplaces zeros of different signs on processors with AVX-512, so none is used here.
    """
    found = [xp.unique(widened(part), return_counts=return_counts, equal_nan=False) for part in flat_blocks(input)]
    parts = [part[0] for part in found] if return_counts else found
    values = xp.unique(xp.concatenate(parts), equal_nan=False)
    numbers = values.size - int(xp.sum(values != values))  # NaNs, each of its own, come last
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


def _unique_dim_rule(
    input: Any, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> list[Spec]:
    if not input.shape:
        raise IndexOutOfRange(f"Dimension specified as {dim} but tensor has no dimensions")
    axis = wrap_dim(dim, len(input.shape))
    if any(n == 0 for d, n in enumerate(input.shape) if d != axis):
        raise InvalidOperation("There are 0 sized dimensions, and they aren't selected, so unique cannot be applied")
    if isinstance(input, Spec):
        raise DataDependentShape("the shape of unique's result depends on the input's values")
    n = input.shape[axis]
    indices = Spec((n,), int64.numpy)
    return [Spec(input.shape, input.dtype), indices, indices]


@op(_unique_dim_rule, method=False, internal=True, outputs=("values", "inverse", "counts"), scratch=4.0)
def unique_dim(
    xp: Any,
    input: Array,
    dim: Int,
    sorted: Bool = True,
    return_inverse: Bool = False,
    return_counts: Bool = False,
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
    """The same on NumPy, which would sort the slices as records while no other thread runs.

    The slices are told apart by one column after the other, until no two are alike.
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
    wanted = (values, *([inverse] if return_inverse else []), *([counts] if return_counts else []))
    return wanted if len(wanted) > 1 else values


def _bincount_rule(input: Any, weights: Any = None, minlength: int = 0) -> Spec:
    if minlength < 0:
        raise InvalidOperation("minlength should be >= 0")
    if input.dtype.kind not in "iu":
        raise NotImplementedForDType(f"\"bincount_cpu\" not implemented for '{from_numpy(input.dtype).kernel_name}'")
    if len(input.shape) != 1:
        raise InvalidOperation("bincount only supports 1-d non-negative integral inputs.")
    if weights is not None and weights.shape != input.shape:
        raise ShapeMismatch("weights should be 1-d and have the same length as input")
    if isinstance(input, Spec):
        raise DataDependentShape("the shape of bincount's result depends on the input's values")
    if input.size and int(input.min()) < 0:
        raise InvalidOperation("bincount only supports 1-d non-negative integral inputs.")
    dtype = int64.numpy
    if weights is not None and input.size:
        dtype = weights.dtype if weights.dtype == float32.numpy else float64.numpy
    return Spec((max(int(input.max()) + 1 if input.size else 0, minlength),), dtype)


@op(_bincount_rule, scratch=4.0)
def bincount(xp: Any, input: Array, weights: Array = None, minlength: Int = 0) -> Any:
    """How often each whole number from 0 occurs, or the sums of the weights where it does."""
    return xp.bincount(input, weights, minlength)
