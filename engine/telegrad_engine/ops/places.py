"""Checks of scattered indices, shared by the ops that scatter along a dimension."""

from __future__ import annotations

from typing import Any

from ..errors import IndexOutOfBounds


def any_outside(xp: Any, index: Any, least: int, size: int) -> bool:
    """Whether an index is less than ``least``, or not less than ``size``."""
    return bool(index.size) and xp.holds((index.min() < least) | (index.max() >= size), False)


def check_within(xp: Any, index: Any, size: int, axis: int) -> None:
    """Raise unless every index is from 0 up to, but without, ``size``."""
    if any_outside(xp, index, 0, size):
        wrong = int(index.max()) if int(index.max()) >= size else int(index.min())
        raise IndexOutOfBounds(f"index {wrong} is out of bounds for dimension {axis} with size {size}")


def check_along(xp: Any, input: Any, index: Any, *, dim: int, **_: Any) -> None:
    """Raise unless every index is within ``input`` along ``dim``."""
    axis = dim % max(len(input.shape), 1)
    check_within(xp, index, input.shape[axis] if input.shape else 1, axis)


def places(xp: Any, index: Any, axis: int) -> tuple[Any, ...]:
    """The index arrays that name where each element of ``index`` goes."""
    grids = []
    for d, n in enumerate(index.shape):
        shape = [1] * index.ndim
        shape[d] = n
        grids.append(index if d == axis else xp.reshape(xp.arange(n), tuple(shape)))
    return tuple(grids)


def source(src: Any, index: Any) -> Any:
    """The part of a source that an index, maybe smaller, takes."""
    return src[tuple(slice(0, n) for n in index.shape)]


def padded_to(F: Any, grad: Any, shape: tuple[int, ...]) -> Any:
    """Zeros for the elements of a source larger than its index."""
    if tuple(grad.shape) == shape:
        return grad
    if 0 in grad.shape:  # of an index without elements, whose dimensions need not be the source's
        return F.new_zeros(grad, shape)
    return F.getitem_scatter(grad, shape, tuple(("slice", 0, n, 1) for n in grad.shape))
