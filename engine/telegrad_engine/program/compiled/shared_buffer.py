"""Memory that NumPy and JAX both see: what an executable returns is a tensor's without a copy, and its argument again.

Who writes to such a tensor with NumPy's functions writes to what JAX reads next. Of JAX's array only the memory
is ever used, and nobody else has it, so no one is left with an old value.
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
"""Bytes. Where an array does not lie on a multiple of this, JAX copies it on another thread, which takes 30 µs."""


MOST_SIZES = 1024
"""How many sizes have a class of their own at hand."""


class SharedBuffer:
    """The memory that both see: the base of NumPy's array."""

    array: Any
    """What JAX takes for it, which keeps the memory."""
    pointer: int


def showing(shape: tuple[int, ...], dtype: Any) -> Callable[[Any, int], Any]:
    """A function that shows such an array of JAX's, by the address of its memory, as one of NumPy's.

    So much is done in advance because it is called for each array that a program makes: it takes 1.6 µs, and 2.5 by an
    array interface.
    """
    memory_at = _kind(int(np.prod(shape)) * dtype.itemsize).from_address
    new = np.ndarray

    def show(array: Any, pointer: int) -> Any:
        memory = memory_at(pointer)
        memory.array, memory.pointer = array, pointer
        return new(shape, dtype, memory)

    return show


@lru_cache(MOST_SIZES)
def _kind(nbytes: int) -> Any:
    return type("SharedBuffer", (SharedBuffer, ctypes.c_char * nbytes), {})


def shared_buffer_of(array: Any) -> SharedBuffer | None:
    """The memory that this array of NumPy's shows all of; None if JAX would not take that as it is."""
    base = array.base
    return base if isinstance(base, SharedBuffer) else None


def is_exclusive(holder: Any) -> bool:
    """Whether nothing but the holder's ``_data``, which is in one list besides, shows or lends its memory."""
    references, usual = _references(holder), _alone()
    data = holder._data
    own = data.base is None or shared_buffer_of(data) is not None or references[1] <= usual[1]
    return own and references[0] <= usual[0] and data.flags.c_contiguous


def _references(holder: Any) -> tuple[int, int]:
    """How many there are to its array, and to the one whose memory that is: each view is one, and each loan."""
    return sys.getrefcount(holder._data), sys.getrefcount(holder._data.base)


@cache
def _alone() -> tuple[int, int]:
    """How many there are where nobody else has it: that differs by the version of Python."""
    holder = SimpleNamespace(_data=np.empty(2)[:])
    holder.called_with = [holder._data]
    return _references(holder)


class AlignedBuffer:
    """Memory where JAX takes an array as it is."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        nbytes = int(np.prod(shape)) * dtype.itemsize
        memory = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        self.array = memory[start : start + nbytes].view(dtype).reshape(shape)
        self.pointer = memory.ctypes.data + start


def aligned_copy(array: Any) -> Any:
    """A copy that lies where JAX takes it as it is."""
    room = AlignedBuffer(array.shape, array.dtype)
    np.copyto(room.array, array)
    return showing(array.shape, array.dtype)(room.array, room.pointer)
