"""Memory spaces: where the arrays of a session are, NumPy's memory or a device, as executables see it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ..arrays import NUMPY, Backend
from ..devices import Device
from ..devices.tensors import ImmutableTensor, Memory
from ..schema.op import Op
from ..tensor.eager import Tensor

Path = Sequence[tuple[Op, Any, int]]
"""The view ops that lead from an array to a tensor, with their attributes and the number of the output."""
_ROW_MAJOR = np.empty(()).flags


class MemorySpace:
    """The memory of this process, with NumPy's arrays."""

    device = "cpu"
    Tensor: type[Tensor] = Tensor
    backend: Backend = NUMPY

    def flags(self, tensor: Any) -> Any:
        """NumPy's flags, which say whether a tensor's elements are contiguous."""
        return tensor._data.flags

    def upload(self, array: Any) -> Any:
        """The array in this space, of one in a message."""
        return array

    def keep(self, uploaded: Any) -> Any:
        """An uploaded array for a tensor to keep: not in a message, whose memory would stay as long."""
        return uploaded.copy()

    def host(self, array: Any) -> Any:
        """The NumPy array of an array that is not shared."""
        return array

    def owners(self, tensors: Sequence[Any]) -> list[Any]:
        """The owner of each tensor's memory: tensors that share memory have the same."""
        arrays = [tensor._data for tensor in tensors]
        return [array if array.base is None else self.memory_owner(array) for array in arrays]

    def memory_owner(self, array: Any) -> Any:
        """The owner of an array's memory."""
        while (base := getattr(array, "base", None)) is not None:
            array = base
        return array

    def memory(self, tensor: Any) -> Any:
        """The memory of a tensor, from which views are made."""
        return tensor._data

    def fresh(self, array: Any) -> Any:
        """The memory of a new array."""
        return array

    def view(self, memory: Any, path: Path, strides: Any) -> Any:
        """The tensor at the end of the path. ``strides`` is an array with its memory layout, which is not read."""
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
        """A copy of a NumPy array on the device."""
        return self.backend.upload(array)

    def keep(self, uploaded: Any) -> Any:
        """The array itself, which is not shared."""
        return uploaded

    def host(self, array: Any) -> Any:
        """A copy of the array in the host's memory."""
        return self.backend.download(array)

    def own(self, out: Any) -> Any:
        """JAX's output as an array that can be written to."""
        return self.backend.from_jax(out).copy()

    def own_copy(self, array: Any) -> Any:
        """A copy of an array of this space."""
        return array.copy()


class ImmutableMemory(DeviceMemory):
    """A device whose arrays cannot be written to: tensors that share memory share a :class:`Memory` with the array."""

    def flags(self, tensor: Any) -> Any:
        """The flags of an array with the memory layout that the tensor would have."""
        return _ROW_MAJOR if tensor._strides is None else tensor._strides.flags

    def own(self, out: Any) -> Any:
        """JAX's output."""
        return self.backend.from_jax(out)

    def own_copy(self, array: Any) -> Any:
        """The array."""
        return array

    def owners(self, tensors: Sequence[Any]) -> list[Any]:
        """Each tensor's ``Memory``."""
        return [tensor._memory for tensor in tensors]

    def memory(self, tensor: Any) -> Any:
        """The tensor's ``Memory``."""
        return tensor._memory

    def fresh(self, array: Any) -> Any:
        """A new ``Memory`` with the array."""
        return Memory(array)

    def view(self, memory: Any, path: Path, strides: Any) -> Any:
        """A tensor that follows the path again after each write."""
        tensor: Any = object.__new__(self.Tensor)
        tensor._memory, tensor._path, tensor._strides = memory, tuple(path), strides
        tensor._shown_at = -1
        return tensor


HOST_MEMORY = MemorySpace()


@cache
def memory_space_of(there: Device | None) -> MemorySpace:
    """The memory space of a device; None is the CPU with NumPy."""
    if there is None:
        return HOST_MEMORY
    return ImmutableMemory(there) if issubclass(there.Tensor, ImmutableTensor) else DeviceMemory(there)
