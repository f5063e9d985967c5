"""``x[…]`` and ``x[…] = v``: Python's index expressions, turned into ops.

Ints, slices, None and ellipsis select a view; tensors, lists and masks then pick by index.
"""

from __future__ import annotations

import operator
from typing import Any

from .dtypes import bool_
from .errors import IndexOutOfRange, ShapeMismatch
from .registry import CATALOGUE


def getitem(tensor: Any, index: Any) -> Any:
    """``tensor[index]``."""
    view, picks = _basic(tensor, index)
    return view._apply(CATALOGUE.get("index"), (view, picks), {}) if picks else view


def setitem(tensor: Any, index: Any, value: Any) -> None:
    """``tensor[index] = value``, recorded like any in-place op."""
    view, picks = _basic(tensor, index)
    if not hasattr(value, "_data"):
        value = _as_tensor(tensor, value)
    if not picks:
        view.copy_(_drop_leading_ones(value, view))
        return
    if value.dtype != tensor.dtype:
        value = value.to(dtype=tensor.dtype)
    view._inplace(CATALOGUE.get("index_put"), (view, picks, value), {})


def _drop_leading_ones(value: Any, view: Any) -> Any:
    """torch lets a value have more leading dimensions of size 1 than its target."""
    extra = value.dim() - view.dim()
    if extra > 0 and all(n == 1 for n in value.shape[:extra]):
        return value.reshape(tuple(value.shape[extra:]))
    if extra > 0:
        raise ShapeMismatch(
            f"shape mismatch: value tensor of shape {list(value.shape)} cannot be broadcast to indexing result of "
            f"shape {list(view.shape)}"
        )
    return value


def _as_tensor(like: Any, value: Any) -> Any:
    return like.new_tensor(value, dtype=like.dtype)


def _basic(tensor: Any, index: Any) -> tuple[Any, tuple[Any, ...]]:
    """The view that the basic part of ``index`` selects, and the index tensors to apply to it."""
    items = index if isinstance(index, tuple) else (index,)
    items = tuple(_convert(tensor, item) for item in items)
    used = sum(_width(item) for item in items)
    if used > tensor.dim():
        raise IndexOutOfRange(f"too many indices for tensor of dimension {tensor.dim()}")
    if not any(item is Ellipsis for item in items):
        items = (*items, Ellipsis)
    basic: list[Any] = []
    picks: list[Any] = []
    for item in items:
        if item is Ellipsis:
            basic.extend([("slice", None, None, None)] * (tensor.dim() - used))
            picks.extend([None] * (tensor.dim() - used))
        elif item is None:
            basic.append(None)
            picks.append(None)
        elif isinstance(item, slice):
            basic.append(_slice(item))
            picks.append(None)
        elif isinstance(item, int):
            basic.append(item)
        else:
            columns = _columns(tensor, item, len(picks))
            basic.extend([("slice", None, None, None)] * _width(item))
            picks.extend(columns)
    while picks and picks[-1] is None:
        picks.pop()
    trivial = all(item == ("slice", None, None, None) for item in basic)
    if trivial and picks:
        return tensor, tuple(picks)
    return tensor._apply(CATALOGUE.get("getitem"), (tensor,), {"index": tuple(basic)}), tuple(picks)


def _convert(tensor: Any, item: Any) -> Any:
    """Index tensors stay, lists become tensors, whatever acts as an int becomes one."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, bool):
        return tensor.new_tensor(item, dtype=bool_)
    if isinstance(item, int):
        return item
    if hasattr(item, "_data"):
        return item
    if isinstance(item, (list, range)) or hasattr(item, "__array__"):
        return tensor.new_tensor(list(item) if isinstance(item, range) else item)
    try:
        return operator.index(item)
    except TypeError:
        raise IndexOutOfRange(
            "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices "
            f"(got {type(item).__name__})"
        ) from None


def _width(item: Any) -> int:
    """How many dimensions of the tensor an item uses up."""
    if item is None or item is Ellipsis:
        return 0
    if hasattr(item, "_data") and item.dtype is bool_:
        return int(item.dim())
    return 1


def _slice(item: slice) -> tuple[Any, ...]:
    parts = [None if p is None else operator.index(p) for p in (item.start, item.stop, item.step)]
    if parts[2] is not None and parts[2] <= 0:
        raise IndexOutOfRange("step must be greater than zero")
    return ("slice", *parts)


def _columns(tensor: Any, item: Any, dim: int) -> list[Any]:
    """An index tensor as it is, a mask as the indices of its true elements."""
    if item.dtype is not bool_:
        return [item]
    expected = tuple(tensor.shape[dim : dim + item.dim()])
    if tuple(item.shape) != expected:
        axis = next(i for i, (a, b) in enumerate(zip(item.shape, expected, strict=False)) if a != b)
        raise IndexOutOfRange(
            f"The shape of the mask {list(item.shape)} at index {axis} does not match the shape of the indexed "
            f"tensor {list(tensor.shape)} at index {axis}"
        )
    return list(item.nonzero().unbind(1))
