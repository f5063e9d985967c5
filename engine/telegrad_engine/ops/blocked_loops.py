"""Loops of kernels over blocks of large arrays, to bound the size of temporaries and check for cancellation in between.

An array that fits in one block is computed at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..cancellation import check_cancelled
from ..schema.memory_admission import BLOCK
from ..shapes import broadcast_shapes

PROMOTE = 8
"""The bytes of an element of the widest dtype."""


def blocks(array: Any, axis: int, nbytes: int, largest: int = BLOCK) -> Iterable[Any]:
    """Views of consecutive parts along ``axis``, each with at most ``largest`` of the ``nbytes``, or a single slice."""
    n = array.shape[axis]
    if nbytes <= largest or n <= 1:
        return (array,)
    return _slices(array, axis, max(1, n * largest // nbytes))


def _slices(array: Any, axis: int, step: int) -> Iterator[Any]:
    for start in range(0, array.shape[axis], step):
        check_cancelled()
        yield array[(*(slice(None),) * axis, slice(start, start + step))]


def flat_blocks(array: Any) -> Iterator[Any]:
    """The elements in row-major order, as vectors of at most BLOCK bytes; a view is copied one vector at a time."""
    for part in blocks(array, 0, array.nbytes):
        if part.nbytes <= BLOCK:
            yield part.reshape(-1)
        else:
            yield from flat_blocks(part[0])


def map_in_blocks(
    xp: Any, function: Callable[..., tuple[Any, ...]], arrays: Sequence[Any], dims: int, nbytes: int
) -> tuple[Any, ...]:
    """``function(*arrays)``, applied block by block; the function must treat each index of the first ``dims`` alone.

    All arrays and results have these first ``dims`` dimensions. ``nbytes`` is what a single call would compute at once.
    """
    dim = next((d for d in range(dims) if arrays[0].shape[d] > 1), None)
    if nbytes <= BLOCK or dim is None:
        return function(*arrays)
    parts = []
    for part in zip(*[blocks(x, dim, nbytes) for x in arrays], strict=True):
        share = nbytes // arrays[0].shape[dim] * part[0].shape[dim]
        parts.append(map_in_blocks(xp, function, part, dims, share))
    return tuple([xp.concatenate(results, axis=dim) for results in zip(*parts, strict=True)])


def reduce_in_blocks(
    xp: Any,
    reduction: Callable[..., Any],
    term: Callable[..., Any],
    arrays: Sequence[Any],
    axis: tuple[int, ...] | None = None,
    keepdims: bool = False,
    whole: int = 0,
) -> Any:
    """``reduction(term(*arrays), axis=axis, keepdims=keepdims)`` for an elementwise ``term`` of broadcastable arrays.

    The reduction must also combine its own partial results, as a sum, product or maximum does. The last ``whole``
    dimensions stay in one block, for a term that works along them.
    """
    if math.prod([x.size for x in arrays]) * PROMOTE <= BLOCK:  # an upper bound of the broadcast size
        return reduction(term(*arrays), axis=axis, keepdims=keepdims)
    shape = broadcast_shapes(*[x.shape for x in arrays])
    nbytes = math.prod(shape) * max([_computed_itemsize(x.dtype) for x in arrays])
    if nbytes <= BLOCK:
        return reduction(term(*arrays), axis=axis, keepdims=keepdims)
    axis = tuple(range(len(shape))) if axis is None else axis
    arrays = [xp.broadcast_to(x, shape) for x in arrays]
    result = _reduce(xp, reduction, term, arrays, axis, len(shape) - whole, nbytes)
    return result if keepdims else xp.squeeze(result, axis)


def _computed_itemsize(dtype: Any) -> int:
    """The bytes of an element in a sum's dtype: integers and bools sum in int64, float16 and bfloat16 in float32."""
    return PROMOTE if dtype.kind in "biu" else max(dtype.itemsize, 4)


def _reduce(
    xp: Any,
    reduction: Callable[..., Any],
    term: Callable[..., Any],
    arrays: Sequence[Any],
    axis: tuple[int, ...],
    dims: int,
    nbytes: int,
) -> Any:
    """Reduce arrays of one shape, split along the first ``dims`` dimensions; reduced dimensions stay, with size 1."""
    shape = arrays[0].shape
    dim = next((d for d in range(dims) if shape[d] > 1), None)
    if nbytes <= BLOCK or dim is None:
        return reduction(term(*arrays), axis=axis, keepdims=True)
    parts = []
    for part in zip(*[blocks(x, dim, nbytes) for x in arrays], strict=True):
        share = nbytes // shape[dim] * part[0].shape[dim]
        parts.append(_reduce(xp, reduction, term, part, axis, dims, share))
    joined = xp.concatenate(parts, axis=dim)
    return reduction(joined, axis=(dim,), keepdims=True) if dim in axis else joined
