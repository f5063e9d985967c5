"""Memory that NumPy and XLA share: an executable's output becomes a tensor's array without a copy, and its input again.

NumPy's writes to such a tensor are what XLA reads next. Only the memory of JAX's array is ever used, and nobody else
has that array, so nobody is left with an old value.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np

ALIGNMENT = 64
"""Bytes. JAX copies an array that does not begin at a multiple of this, on another thread."""
MAX_SIZES = 1024
"""How many classes of buffers, one per size, are kept."""


class SharedBuffer:
    """The memory, as the base of NumPy's array."""

    array: Any
    """JAX's array, which keeps the memory."""
    pointer: int


def viewer(shape: tuple[int, ...], dtype: Any) -> Callable[[Any, int], Any]:
    """A function that makes a NumPy array of JAX's array of this shape and dtype, by the address of its memory.

    It is called for every output of every run, so as much as possible is prepared.
    """
    buffer_at = _buffer_class(int(np.prod(shape)) * dtype.itemsize).from_address
    new = np.ndarray

    def view(array: Any, pointer: int) -> Any:
        buffer = buffer_at(pointer)
        buffer.array, buffer.pointer = array, pointer
        return new(shape, dtype, buffer)

    return view


@lru_cache(MAX_SIZES)
def _buffer_class(nbytes: int) -> Any:
    return type("SharedBuffer", (SharedBuffer, ctypes.c_char * nbytes), {})


def shared_buffer_of(array: Any) -> SharedBuffer | None:
    """The shared buffer that is all of a NumPy array; None if XLA would not take its memory as it is."""
    base = array.base
    return base if isinstance(base, SharedBuffer) else None


def is_exclusive(holder: Any) -> bool:
    """Whether only the holder's ``_data`` and one list refer to its memory."""
    references, usual = _references(holder), _exclusive()
    data = holder._data
    own = data.base is None or shared_buffer_of(data) is not None or references[1] <= usual[1]
    return own and references[0] <= usual[0] and data.flags.c_contiguous


def _references(holder: Any) -> tuple[int, int]:
    """How many references there are to the array and to its base: each view is one, and each loan."""
    return sys.getrefcount(holder._data), sys.getrefcount(holder._data.base)


@cache
def _exclusive() -> tuple[int, int]:
    """The number of references to an array that is not shared, which depends on the version of Python."""
    holder = SimpleNamespace(_data=np.empty(2)[:])
    holder.called_with = [holder._data]
    return _references(holder)


class AlignedBuffer:
    """Memory that XLA takes as it is."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        nbytes = int(np.prod(shape)) * dtype.itemsize
        memory = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        self.array = memory[start : start + nbytes].view(dtype).reshape(shape)
        self.pointer = memory.ctypes.data + start


def aligned_copy(array: Any) -> Any:
    """A copy in memory that XLA takes as it is."""
    buffer = AlignedBuffer(array.shape, array.dtype)
    np.copyto(buffer.array, array)
    return viewer(array.shape, array.dtype)(buffer.array, buffer.pointer)
