"""Memory layouts: strides, offsets, memory owners, and torch's layouts and memory formats.

A tensor with an array has the array's strides. A tensor without one, such as an SDK tensor whose value is in a session,
has those of its stand-in (tensor/memory.py).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .errors import InvalidArgument


class _Constant:
    """A constant that is printed and pickled by its name in this module."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"telegrad.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class layout(_Constant):
    """How elements are stored; only ``strided`` is supported.

    ``name`` is its name.

    Examples:
        >>> tg.zeros(2).layout
        telegrad.strided
    """

    __slots__ = ()


class memory_format(_Constant):
    """The order of the dimensions in memory.

    ``name`` is its name; there is one object for each, such as ``telegrad.channels_last``.

    Examples:
        >>> tg.ones(1, 3, 4, 4).contiguous(memory_format=tg.channels_last).stride()
        (48, 1, 12, 3)
    """

    __slots__ = ()


strided = layout("strided")
contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
MEMORY_FORMATS = {each.name: each for each in (contiguous_format, preserve_format, channels_last, channels_last_3d)}
ORDERS = {channels_last: (0, 2, 3, 1), channels_last_3d: (0, 2, 3, 4, 1)}
"""The dimensions of images and volumes in memory, from the outermost to the innermost."""


def check_option(value: Any, kind: type[Any]) -> None:
    """Raise TypeError unless ``value`` is None or an instance of ``kind``, ``layout`` or ``memory_format``."""
    if value is not None and not isinstance(value, kind):
        raise InvalidArgument(f"argument '{kind.__name__}' must be torch.{kind.__name__}, not {type(value).__name__}")


class Geometry(NamedTuple):
    """The sizes, strides and offset of a tensor, in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The row-major strides of a shape in elements; as in torch, a size of 0 counts as 1."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def geometry_of(tensor: Any) -> Geometry:
    """Sizes, strides and offset of a tensor."""
    data = tensor._data
    shape = tuple(data.shape)
    array = data if hasattr(data, "strides") else tensor._strided()
    if array is None or not math.prod(shape):
        return Geometry(shape, row_major(shape), 0)
    width = array.dtype.itemsize
    fixed = row_major(array.shape)
    # In NumPy, the stride of a dimension of one element is arbitrary; in torch, it is that of a contiguous tensor.
    strides = tuple([s // width if n > 1 else f for n, s, f in zip(array.shape, array.strides, fixed, strict=True)])
    return Geometry(tuple(array.shape), strides, offset_of(array) // width)


def offset_of(array: Any) -> int:
    """The offset in bytes of an array's first element in its base array."""
    base = array
    while isinstance(base.base, type(array)):
        base = base.base
    return max(address(array) - address(base), 0)


def address(array: Any) -> int:
    """The address of the first element of a NumPy or CuPy array."""
    found: int = array.__array_interface__["data"][0] if isinstance(array, np.ndarray) else array.data.ptr
    return found


def overlaps(array: Any) -> bool:
    """Whether elements of an array, or of any object with a shape and strides, share memory by a stride of 0."""
    return 0 in array.strides and any(n > 1 and not step for n, step in zip(array.shape, array.strides, strict=True))


def in_order(geometry: Geometry, order: Any) -> bool:
    """Whether a tensor with this geometry is contiguous in the memory format ``order``."""
    if not isinstance(order, memory_format):
        raise InvalidArgument(
            f"is_contiguous(): argument 'memory_format' must be torch.memory_format, not {type(order).__name__}"
        )
    shape, strides, _ = geometry
    dims = ORDERS.get(order, tuple(range(len(shape))))
    if len(dims) != len(shape):
        return False
    expected = 1
    for d in reversed(dims):
        if shape[d] != 1 and strides[d] != expected:
            return not math.prod(shape) and order not in ORDERS
        expected *= shape[d]
    return True


def memory_of(tensor: Any) -> Any:
    """The object that identifies a tensor's memory, by default the version counter of its base."""
    owner = tensor if tensor._base is None else tensor._base
    return owner._version_counter if owner._memory_owner is None else owner._memory_owner


def memory_id(tensor: Any) -> int:
    """A number that identifies a tensor's memory; adding an offset does not make it equal to another tensor's."""
    return id(memory_of(tensor)) << 32
