"""Memory that NumPy and XLA share: an output of an executable becomes a tensor, and later an input, without a copy.

XLA's next run reads what NumPy writes to such a tensor. Only the memory of the JAX array is ever used, and nothing else
has that array, so nothing sees an outdated value.
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
"""The alignment in bytes. JAX copies an array that does not begin at a multiple of this, on another thread."""
MAX_SIZES = 1024
"""The maximum number of buffer classes, one per size, that are cached."""


class SharedBuffer:
    """The shared memory, as the base of a NumPy array."""

    array: Any
    """The JAX array, which keeps the memory alive."""
    pointer: int


def viewer(shape: tuple[int, ...], dtype: Any) -> Callable[[Any, int], Any]:
    """Return a function that makes a NumPy array from a JAX array of this shape and dtype and its memory address.

    The function is called for every output of every run, so as much as possible is prepared here.
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
    """Return the shared buffer that is the base of a NumPy array; None if XLA needs a copy of the array."""
    base = array.base
    return base if isinstance(base, SharedBuffer) else None


def is_exclusive(holder: Any) -> bool:
    """Return whether only the holder's ``_data`` and one list refer to its memory."""
    references, usual = _references(holder), _exclusive()
    data = holder._data
    own = data.base is None or shared_buffer_of(data) is not None or references[1] <= usual[1]
    return own and references[0] <= usual[0] and data.flags.c_contiguous


def _references(holder: Any) -> tuple[int, int]:
    """Return the number of references to the array and to its base: each view, and each other user, adds one."""
    return sys.getrefcount(holder._data), sys.getrefcount(holder._data.base)


@cache
def _exclusive() -> tuple[int, int]:
    """Return the numbers of references for an array that is not shared, which depend on the version of Python."""
    holder = SimpleNamespace(_data=np.empty(2)[:])
    holder.called_with = [holder._data]
    return _references(holder)


class AlignedBuffer:
    """Memory that XLA can use without a copy."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        nbytes = int(np.prod(shape)) * dtype.itemsize
        memory = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        self.array = memory[start : start + nbytes].view(dtype).reshape(shape)
        self.pointer = memory.ctypes.data + start


def aligned_copy(array: Any) -> Any:
    """Return a copy of an array in memory that XLA can use without another copy."""
    buffer = AlignedBuffer(array.shape, array.dtype)
    np.copyto(buffer.array, array)
    return viewer(array.shape, array.dtype)(buffer.array, buffer.pointer)
