"""Memory spaces: where the arrays of a session are stored, host memory or a device, for the use of executables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np

from ..arrays import NUMPY, Backend
from ..devices import Device
from ..devices.tensors import ImmutableTensor, Memory
from ..schema.op import Op
from ..tensor.eager import Tensor

Path = Sequence[tuple[Op, Any, int]]
"""The view ops that lead from an array to a tensor, each with its attributes and the number of the output."""
_ROW_MAJOR = np.empty(()).flags


class MemorySpace:
    """The memory of this process, with NumPy arrays."""

    device = "cpu"
    Tensor: type[Tensor] = Tensor
    backend: Backend = NUMPY
    flags: Any = attrgetter("_data.flags")
    """Returns NumPy's flags, which say whether a tensor's elements are contiguous."""

    def upload(self, array: Any) -> Any:
        """Return an array of a message as an array in this space."""
        return array

    def keep(self, uploaded: Any) -> Any:
        """Return an uploaded array for a tensor to keep: a copy, so that the message's memory can be freed."""
        return uploaded.copy()

    def host(self, array: Any) -> Any:
        """Return an array that is not shared as a NumPy array."""
        return array

    def owners(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the owner of each tensor's memory: tensors that share memory have the same owner."""
        arrays = [tensor._data for tensor in tensors]
        return [array if array.base is None else self.memory_owner(array) for array in arrays]

    def memory_owner(self, array: Any) -> Any:
        """Return the owner of an array's memory."""
        while (base := getattr(array, "base", None)) is not None:
            array = base
        return array

    def memory(self, tensor: Any) -> Any:
        """Return the memory of a tensor, from which views are made."""
        return tensor._data

    def fresh(self, array: Any) -> Any:
        """Return the memory of a new array."""
        return array

    def view(self, memory: Any, path: Path, strides: Any) -> Any:
        """Return the tensor at the end of the path. ``strides`` is an array with its memory layout, or None."""
        for op, attrs, index in path:
            memory = op.kernel(self.backend, memory, **attrs)
            if isinstance(memory, (tuple, list)):
                memory = memory[index]
        return self.Tensor(memory)


class DeviceMemory(MemorySpace):
    """A device whose arrays can be written to."""

    def __init__(self, there: Device) -> None:
        self.device, self.backend = there.name, there.backend
        self.Tensor = there.Tensor

    def upload(self, array: Any) -> Any:
        """Copy a NumPy array to the device."""
        return self.backend.upload(array)

    def keep(self, uploaded: Any) -> Any:
        """Return the array itself, which is not shared."""
        return uploaded

    def host(self, array: Any) -> Any:
        """Copy the array to host memory."""
        return self.backend.download(array)

    def own_copy(self, array: Any) -> Any:
        """Return a copy of an array of this space."""
        return array.copy()


class ImmutableMemory(DeviceMemory):
    """A device whose arrays cannot be written to: tensors that share memory share a :class:`Memory` with the array."""

    def flags(self, tensor: Any) -> Any:
        """Return the flags of an array with the memory layout that the tensor would have."""
        return _ROW_MAJOR if tensor._strides is None else tensor._strides.flags

    def own_copy(self, array: Any) -> Any:
        """Return the array itself, which is never written to."""
        return array

    def owners(self, tensors: Sequence[Any]) -> list[Any]:
        """Return each tensor's ``Memory``."""
        return [tensor._memory for tensor in tensors]

    def memory(self, tensor: Any) -> Any:
        """Return the tensor's ``Memory``."""
        return tensor._memory

    def fresh(self, array: Any) -> Any:
        """Return a new ``Memory`` with the array."""
        return Memory(array)

    def view(self, memory: Any, path: Path, strides: Any) -> Any:
        """Return a tensor that applies the path again after each write."""
        tensor: Any = object.__new__(self.Tensor)
        tensor._memory, tensor._path, tensor._strides = memory, tuple(path), strides
        tensor._shown_at = -1
        return tensor


HOST_MEMORY = MemorySpace()


@cache
def memory_space_of(there: Device | None) -> MemorySpace:
    """Return the memory space of a device; None is the CPU with NumPy."""
    if there is None:
        return HOST_MEMORY
    return ImmutableMemory(there) if issubclass(there.Tensor, ImmutableTensor) else DeviceMemory(there)
