"""Where a session's arrays are, as executables see it: in NumPy's memory, or on a device.

An executable takes arrays from there and gives arrays back; what differs between the places is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ...backends import NUMPY, Backend
from ...devices import Device, device
from ...devices.immutable import ImmutableTensor, Memory
from ...registry import Op
from ...tensor import Tensor

Path = Sequence[tuple[Op, Any, int]]
"""The view ops that lead from an array to what a tensor shows of it, with their attributes and which output it is."""
_ROW_MAJOR = np.empty(()).flags


class MemorySpace:
    """The memory of this process, in which NumPy's arrays are."""

    device = "cpu"
    Tensor: type[Tensor] = Tensor
    backend: Backend = NUMPY

    def flags(self, tensor: Any) -> Any:
        """NumPy's flags: whether a tensor's elements lie in order, and without gaps."""
        return tensor._data.flags

    def upload(self, array: Any) -> Any:
        """The array here, of one in a message."""
        return array

    def keep(self, uploaded: Any) -> Any:
        """What was uploaded, for a tensor to have: no part of a message, whose memory would stay as long."""
        return uploaded.copy()

    def host(self, array: Any) -> Any:
        """An array that nobody else has, as NumPy's."""
        return array

    def copy(self, tensor: Any) -> Any:
        """A tensor that is no one else's, with the same value, and nothing of its place in a graph."""
        return self.Tensor(tensor._data.copy())

    # What tensors show ---------------------------------------------------------------------

    def owners(self, tensors: Sequence[Any]) -> list[Any]:
        """What has the memory that each tensor shows: one object for all tensors that show parts of it."""
        arrays = [tensor._data for tensor in tensors]
        return [array if array.base is None else self.memory_owner(array) for array in arrays]

    def memory_owner(self, array: Any) -> Any:
        """What has the memory of an array."""
        while (base := getattr(array, "base", None)) is not None:
            array = base
        return array

    def memory(self, tensor: Any) -> Any:
        """What a tensor shows, to be shown by others."""
        return tensor._data

    def fresh(self, array: Any) -> Any:
        """What tensors are to show that are made of this array."""
        return array

    def showing(self, memory: Any, path: Path, strides: Any) -> Any:
        """A tensor that shows so much of it; ``strides`` is an array laid out as it would be, not to be read."""
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
        """What was uploaded: nobody else has it."""
        return uploaded

    def host(self, array: Any) -> Any:
        """A copy of the array in the host's memory."""
        return self.backend.download(array)

    def own(self, out: Any) -> Any:
        """What JAX returned, as an array that can be written to."""
        return self.backend.from_jax(out).copy()

    def own_copy(self, array: Any) -> Any:
        """A copy of an array from here."""
        return array.copy()


class ImmutableMemory(DeviceMemory):
    """A device whose arrays cannot be written to: tensors that share memory share what stands for it."""

    def flags(self, tensor: Any) -> Any:
        """Those of an array laid out as the tensor would be."""
        return _ROW_MAJOR if tensor._strides is None else tensor._strides.flags

    def copy(self, tensor: Any) -> Any:
        """A tensor of the same array: writing replaces it."""
        copied: Any = self.Tensor(tensor._data)
        copied._strides = tensor._strides
        return copied

    def own(self, out: Any) -> Any:
        """What JAX returned."""
        return self.backend.from_jax(out)

    def own_copy(self, array: Any) -> Any:
        """The array."""
        return array

    def memory(self, tensor: Any) -> Any:
        """What stands for memory."""
        return tensor._memory

    def owners(self, tensors: Sequence[Any]) -> list[Any]:
        """What stands for memory."""
        return [tensor._memory for tensor in tensors]

    def fresh(self, array: Any) -> Any:
        """What stands for memory with this array in it."""
        return Memory(array)

    def showing(self, memory: Any, path: Path, strides: Any) -> Any:
        """A tensor that follows the path anew whenever something was written."""
        tensor: Any = object.__new__(self.Tensor)
        tensor._memory, tensor._path, tensor._strides = memory, tuple(path), strides
        tensor._shown_at = -1
        return tensor


HOST_MEMORY = MemorySpace()


@cache
def memory_space_of(there: Device | None) -> MemorySpace:
    """The space that a device is; None is the CPU with NumPy."""
    if there is None:
        return HOST_MEMORY
    return ImmutableMemory(there) if issubclass(there.Tensor, ImmutableTensor) else DeviceMemory(there)


def memory_space_named(name: str) -> MemorySpace:
    """The space of this name. Raises as :func:`telegrad_engine.devices.device`."""
    return memory_space_of(device(name))
