"""Programs that XLA compiled, and the memory that they share with NumPy.

An output of an executable becomes a tensor, and later an input, without a copy. XLA's next run reads what NumPy writes
to such a tensor. Only the memory of the JAX array is ever used, and nothing else has that array, so nothing sees an
outdated value.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, lru_cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from .effects import Effects, Run, Source, Write, own_copy
from .input_signature import TensorSpec
from .memory_space import DeviceMemory

ALIGNMENT = 64
"""The alignment in bytes. JAX copies an array that does not begin at a multiple of this, on another thread."""
MAX_SIZES = 1024
"""The maximum number of buffer classes, one per size, that are cached."""


# Shared memory ------------------------------------------------------------------------------


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


# Executables ---------------------------------------------------------------------------------


class Compiled:
    """A program that XLA compiled for the CPU, with NumPy arrays as inputs and outputs."""

    def __init__(
        self,
        function: Callable[..., Sequence[Any]],
        effects: Effects,
        inputs: Sequence[TensorSpec],
        read: Sequence[int],
    ) -> None:
        self._function, self.effects = function, effects
        self.size = len(effects.program.steps)
        self._inputs, self._read = inputs, read
        self._spare: list[list[AlignedBuffer]] = []
        """Buffers to copy inputs to, one list for each thread that runs it at the same time."""
        self._viewers: list[Callable[[Any, int], Any]] = []
        """For each output, the function that makes a NumPy array of it."""

    def run(self, arrays: Sequence[Any], operands: Sequence[float], generator: np.random.Generator) -> Run | None:
        """See :class:`Executable`. It never draws random numbers."""
        buffers = self._spare.pop() if self._spare else [AlignedBuffer(x.shape, x.dtype) for x in self._inputs]
        given = [buffer.array for buffer in buffers]
        taken = {buffer.pointer for buffer in buffers}
        copied = []
        for i in self._read:
            shared = shared_buffer_of(arrays[i])
            if shared is None:
                np.copyto(given[i], arrays[i])
                copied.append(i)
            else:
                given[i] = shared.array
                taken.add(shared.pointer)
        outs = self._function(*given)
        holds = np.asarray(outs[-1])  # waiting for one output waits for all
        self._spare.append(buffers)
        if not holds:
            return None
        if not self._viewers:
            self._viewers = [viewer(out.shape, out.dtype) for out in outs]
        return _CompiledRun(arrays, outs, self._viewers, taken, copied)


class _CompiledRun(Run):
    """A run of XLA, whose outputs' memory may become the memory of tensors."""

    replaces = True

    def __init__(
        self,
        called_with: Sequence[Any],
        outs: Sequence[Any],
        viewers: Sequence[Callable[[Any, int], Any]],
        taken: set[int],
        copied: Sequence[int],
    ) -> None:
        self.called_with = called_with
        self._outs, self._viewers, self._copied = outs, viewers, copied
        self._taken = taken
        """The addresses of memory that is in use."""

    def array(self, source: Source) -> Any:
        if not source.is_output:
            return own_copy(self.called_with[source.position])
        own = self._own(source)
        return own_copy(np.asarray(self._outs[source.position])) if own is None else own

    def write(self, source: Source, target: Any) -> Write:
        own = self._own(source) if source.is_output and is_exclusive(target) else None
        if own is not None:
            return Write(partial(setattr, target, "_data", own), own)
        array = np.asarray(self._outs[source.position]) if source.is_output else self.array(source)
        return Write(partial(np.copyto, target._data, array))

    def relocate(self, tensors: Sequence[Any]) -> list[Any]:
        found = [tensors[i] for i in self._copied if i < len(tensors) and is_exclusive(tensors[i])]
        with suppress(MemoryError):  # without memory for a copy they stay where they are
            for tensor in found:
                tensor._data = aligned_copy(tensor._data)
        return found

    def _own(self, source: Source) -> Any:
        """Return the memory of an output as a NumPy array; None if it is in use."""
        out = self._outs[source.position]
        pointer = out.unsafe_buffer_pointer()
        if pointer in self._taken:
            return None
        self._taken.add(pointer)
        return self._viewers[source.position](out, pointer)


class CompiledForDevice:
    """A program that XLA compiled for a device, with that device's arrays as inputs and outputs."""

    def __init__(
        self, function: Callable[..., Sequence[Any]], effects: Effects, space: DeviceMemory, guarded: bool
    ) -> None:
        self._function, self.effects = function, effects
        self.size = len(effects.program.steps)
        self._space, self._guarded = space, guarded

    def run(self, arrays: Sequence[Any], operands: Sequence[float], generator: np.random.Generator) -> Run | None:
        """See :class:`Executable`. Without guards it returns while the device is still computing."""
        outs = self._function(*map(self._space.backend.to_jax, arrays))
        if self._guarded and not outs[-1]:
            return None
        self._space.backend.from_jax(outs[-1])  # later writes wait until JAX has read its inputs
        return _DeviceRun(self._space, arrays, outs)


class _DeviceRun(Run):
    replaces = True

    def __init__(self, space: DeviceMemory, called_with: Sequence[Any], outs: Sequence[Any]) -> None:
        self._space, self.called_with, self._outs = space, called_with, outs

    def array(self, source: Source) -> Any:
        own = source.is_output
        array = self._space.backend.from_jax(self._outs[source.position]) if own else self.called_with[source.position]
        return self._space.own_copy(array)

    def write(self, source: Source, target: Any) -> Write:
        return Write(partial(target._store, self.array(source)))
