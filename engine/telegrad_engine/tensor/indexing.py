"""``x[…]`` and ``x[…] = v``: conversion of Python's index expressions to ops.

Ints, slices, None and ellipsis select a view; tensors, lists and masks then index that view.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from ..dtypes import bool_, int64
from ..errors import IndexOutOfRange, InvalidArgument, InvalidValue
from ..memory_layout import memory_of
from ..schema.op import CATALOGUE, Op
from ..shapes import expanded_shape
from .conversion import as_array

PLAIN = frozenset({int, tuple, slice, type(...), type(None)})
"""The types of an index without tensors, lists or masks, except inside a tuple."""
WHOLE = ("slice", None, None, None)
"""A whole dimension, in the form that the op ``getitem`` takes."""


def getitem(tensor: Any, index: Any) -> Any:
    """Return ``tensor[index]``."""
    view, picks = _basic(tensor, index)
    return view._apply(CATALOGUE.get("index"), (view, picks), {}) if picks else view


def resolve_getitem(
    args: Sequence[Any], _kwargs: Mapping[str, Any]
) -> tuple[Op, tuple[Any, ...], dict[str, Any]] | None:
    """Return the ``getitem`` call for ``tensor[index]``; None for an index whose values would have to be read."""
    tensor, index = args
    if type(index) not in PLAIN:
        return None
    return CATALOGUE.get("getitem"), (tensor,), {"index": _parts(tensor, index)[0]}


def setitem(tensor: Any, index: Any, value: Any) -> None:
    """Perform ``tensor[index] = value``, recorded like any in-place op."""
    view, picks = _basic(tensor, index, itself=True)
    if not hasattr(value, "_data"):
        value = tensor.new_tensor(value, dtype=tensor.dtype)
    elif memory_of(value) is memory_of(tensor) and _fills(index, picks, value):
        value = value.clone()  # torch fills with the number, which it reads first
    if not picks:
        value = _drop_leading_ones(value, view)
        expanded_shape(tuple(value.shape), value._data.dtype, tuple(view.shape))
        view.copy_(value)
        return
    if value.dtype != tensor.dtype:
        value = value.to(dtype=tensor.dtype)
    first = next((i for i, n in enumerate(value.shape) if n != 1), value.dim())
    if first:  # torch drops leading dimensions of size 1
        value = value.reshape(tuple(value.shape[first:]))
    view._inplace(CATALOGUE.get("index_put"), (view, picks, value), {})


def _fills(index: Any, picks: Any, value: Any) -> bool:
    """Whether torch assigns a value of one element by filling, so that it may overlap the target."""
    if not picks:
        return not value.dim()
    items = index if isinstance(index, tuple) else (index,)
    return value.numel() == 1 and all(x.dtype is bool_ for x in items if hasattr(x, "_data"))


def _drop_leading_ones(value: Any, view: Any) -> Any:
    """Drop the leading dimensions of size 1 that a value has beyond those of its target, as torch allows."""
    extra = value.dim() - view.dim()
    if extra > 0 and all(n == 1 for n in value.shape[:extra]):
        return value.reshape(tuple(value.shape[extra:]))
    return value


def _basic(tensor: Any, index: Any, itself: bool = False) -> tuple[Any, tuple[Any, ...]]:
    """Return the view that the basic part of ``index`` selects, and the index tensors to apply to it.

    With index tensors or ``itself``, a view of the whole tensor is the tensor itself.
    """
    basic, picks = _parts(tensor, index)
    if (picks or itself) and basic.count(WHOLE) == len(basic):
        return tensor, picks
    return tensor._apply(CATALOGUE.get("getitem"), (tensor,), {"index": basic}), picks


def _parts(tensor: Any, index: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the basic part of ``index`` in the form that ``getitem`` takes, and the index tensors for its result."""
    if type(index) is int and (ndim := tensor.dim()):
        return (index, *[WHOLE] * (ndim - 1)), ()
    items = index if isinstance(index, tuple) or _lists_items(index) else (index,)
    if tensor.dim() == 0 and len(items) == 1 and type(items[0]) is int:
        raise IndexOutOfRange(
            "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ "
            "to convert a "
            "0-dim tensor to a number"
        )
    items = tuple(_convert(tensor, item) for item in items)
    used = sum(_width(item) for item in items)
    if used > tensor.dim():
        raise IndexOutOfRange(f"too many indices for tensor of dimension {tensor.dim()}")
    if not any(item is Ellipsis for item in items):
        items = (*items, Ellipsis)
    unmet = tensor.dim() - used
    dim = 0
    basic: list[Any] = []
    picks: list[Any] = []
    for item in items:
        if item is Ellipsis:
            basic.extend([WHOLE] * unmet)
            picks.extend([None] * unmet)
            dim += unmet
            unmet = 0  # only the first ellipsis expands to dimensions
        elif item is None:
            basic.append(None)
            picks.append(None)
        elif isinstance(item, slice):
            basic.append(_slice(item))
            picks.append(None)
        elif isinstance(item, int):
            basic.append(item)
        elif item.dtype is bool_ and not item.dim():
            basic.append(None)  # a single truth value keeps or drops a new dimension
            picks.append(item.reshape(1).nonzero().reshape(-1))
        else:
            columns = _columns(tensor, item, dim)
            basic.extend([WHOLE] * _width(item))
            picks.extend(columns)
        dim += _width(item)
    while picks and picks[-1] is None:
        picks.pop()
    return tuple(basic), tuple(picks)


def _lists_items(index: Any) -> bool:
    """Whether a list is treated as a tuple of index items, as torch does for ``x[[[0, 1], [1, 0]]]``."""
    return (
        isinstance(index, list)
        and len(index) < 32
        and any(i is None or i is ... or isinstance(i, (list, tuple, slice)) or hasattr(i, "_data") for i in index)
    )


def _convert(tensor: Any, item: Any) -> Any:
    """Convert an item: lists become tensors, objects with ``__index__`` become ints, index tensors are unchanged."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, bool):
        return tensor.new_tensor(item, dtype=bool_)
    if isinstance(item, int):
        return item
    if hasattr(item, "_data"):
        whole = not item.dim() and item.dtype is not bool_ and not item.is_floating_point()
        one_number = hasattr(item, "__index__") and not getattr(item, "_differs_by_sample", False)
        return operator.index(item) if whole and one_number else item
    if isinstance(item, (list, range)) or hasattr(item, "__array__"):
        items = list(item) if isinstance(item, range) else item
        array = as_array(items, int64 if isinstance(items, list) and not items else None)
        return tensor.new_tensor(array, dtype=array.dtype)
    if isinstance(item, str):
        raise InvalidArgument("new(): invalid data type 'str'")
    try:
        return operator.index(item)
    except TypeError:
        raise IndexOutOfRange(
            "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid "
            "indices "
            f"(got {type(item).__name__})"
        ) from None


def _width(item: Any) -> int:
    """Return the number of the tensor's dimensions that an item consumes."""
    if item is None or item is Ellipsis:
        return 0
    if hasattr(item, "_data") and item.dtype is bool_:
        return int(item.dim())
    return 1


def _slice(item: slice) -> tuple[Any, ...]:
    parts = [None if p is None else operator.index(p) for p in (item.start, item.stop, item.step)]
    if parts[2] is not None and parts[2] <= 0:
        raise InvalidValue("step must be greater than zero")
    return ("slice", *parts)


def _columns(tensor: Any, item: Any, dim: int) -> list[Any]:
    """Return an index tensor itself, or the indices of a mask's true elements, one tensor per dimension."""
    if item.dtype is not bool_:
        return [item]
    expected = tuple(tensor.shape[dim : dim + item.dim()])
    if tuple(item.shape) != expected:
        axis = next(i for i, (a, b) in enumerate(zip(item.shape, expected, strict=False)) if a != b)
        raise IndexOutOfRange(
            f"The shape of the mask {list(item.shape)} at index {axis} does not match the shape of the "
            "indexed "
            f"tensor {list(tensor.shape)} at index {dim + axis}"
        )
    return item._places_of_true()  # type: ignore[no-any-return]
