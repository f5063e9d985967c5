"""Tensors over the arrays of other libraries, and how a backward pass handles their gradients.

Where arrays cannot be written to and their views are copies, tensors have torch's semantics all the same: those that
would share memory share a :class:`Memory`, the present array of the tensor that all of them show, whole or in part.
Writing replaces that array; a view knows the chain of ops that leads from it to what it shows, and follows it anew when
something was written.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..arrays.symbolic import values_within
from ..errors import InvalidOperation
from ..graph.backward_pass import Values
from ..schema.op import CATALOGUE, Op
from ..tensor.abstract import unwrap
from ..tensor.abstract_layout import follow, row_major
from ..tensor.base import Tracked
from ..tensor.eager import Tensor
from ..tensor.execution import execute, shows
from ..tensor.gradient_values import ArrayValues, RawFunctions
from ..tensor.in_place import OVERLAPPING


class DeviceTensor(Tensor):
    """A tensor over a library's arrays, which have views and can be written to, as NumPy's."""

    _on: ClassVar[Any]
    """The device."""

    @property
    def device(self) -> str:
        """Where the value lives."""
        name: str = self._on.name
        return name

    def new_tensor(self, data: Any, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
        """A new tensor from ``data`` where this one is."""
        with self._on.active():
            return super().new_tensor(data, dtype=dtype, requires_grad=requires_grad)

    def __init__(self, array: Any) -> None:
        self._data = array
        self._version_counter = [0]
        self._lie_as(self._strided())

    def _strided(self) -> Any:
        if self._is_contiguous:
            return None
        steps = [step // self._data.itemsize for step in self._data.strides]
        return np.lib.stride_tricks.as_strided(np.empty(1, np.int8), self._data.shape, steps)

    def _host(self, copy: bool = False) -> Any:
        array = self._on.backend.download(self._data)
        return array.copy() if copy else array

    def _overwrite(self, op: Op, inputs: tuple[Any, ...], attrs: Any) -> None:
        self._on._check_together(inputs)
        datas, _ = unwrap(inputs)
        with self._on.active():
            out, _ = execute(op, datas, attrs, self._on.backend)
        self._store(out[0])

    def _show_as(self, op: Op, attrs: Any) -> None:
        (self._data,), _ = execute(op, [self._data], attrs, self._on.backend)

    def _store(self, value: Any) -> None:
        if any(n > 1 and not step for n, step in zip(self._data.shape, self._data.strides, strict=True)):
            raise InvalidOperation(OVERLAPPING)  # which CuPy would write to
        self._on.backend.copyto(self._data, self._on.backend.asarray(value), casting="unsafe")

    def _show(self, source: Tracked, op: Op, attrs: Any, index: int) -> None:
        """Become a view of ``source``, if this output of ``op`` shows its memory."""
        if self._on.backend.may_share_memory(self._data, source._data):
            self._view_of(source, op, attrs, index)

    def _zeros_like(self) -> Tensor:
        return type(self)(self._on.backend.zeros(self._data.shape, self._data.dtype))

    def _ones_like(self) -> Tensor:
        return type(self)(self._on.backend.ones(self._data.shape, self._data.dtype))

    def _array_values(self) -> Values:
        values: Values = self._on.values
        return values


class DeviceValues(ArrayValues):
    """Gradients as a library's raw arrays."""

    def __init__(self, device: Any) -> None:
        super().__init__(device.Tensor)
        self.F = RawFunctions(device.backend)
        self._backend = device.backend

    def seed(self, tensor: Any, gradient: Any) -> Any:
        """The array a pass starts with: ``gradient``'s, or one."""
        data = tensor._data
        return self._backend.ones(data.shape, data.dtype) if gradient is None else gradient._data

    def add(self, a: Any, b: Any, may_mutate: bool) -> Any:
        """The sum, in memory of its own."""
        return a + b

    def wrap(self, grad: Any) -> Any:
        """A gradient as a tensor with memory of its own."""
        return self.cls(self._backend.array(self._row_major(grad)))

    def _row_major(self, grad: Any) -> Any:
        backend = self._backend
        return grad if backend.is_contiguous(grad) else backend.ascontiguousarray(grad)

    def to_tensor(self, grad: Any) -> Any:
        """The tensor that a Function's backward is given."""
        return self.cls(self._row_major(grad))

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """The tensor that a Function's backward is given where no gradient arrived."""
        return self.cls(self._backend.zeros(shape, dtype))

    def accumulate_into(self, tensor: Any, grad: Any, may_mutate: bool) -> None:
        """Add a gradient to ``tensor.grad``, in place if there is one."""
        present = tensor._grad
        if present is None:
            tensor._grad = self.wrap(grad)
        else:
            present._store(present._data + grad)
            present._version_counter[0] += 1


class Memory:
    """What stands for memory: the array as of the latest write, and how many writes there were."""

    __slots__ = ("array", "writes")

    def __init__(self, array: Any) -> None:
        self.array = array
        self.writes = 0


class ImmutableTensor(DeviceTensor):
    """A tensor whose array is replaced where another's would be written to."""

    _memory: Memory
    _path: tuple[tuple[Op, Any, int], ...] = ()
    """The view ops that lead from the memory's array to this tensor's."""
    _shown: Any = None
    """A view's own array, as of ``_shown_at`` writes."""
    _shown_at: int = 0
    _strides: Any = None
    """A NumPy array that lies as this tensor would (tensor/abstract_layout.py), with an element a byte; None is
    row-major."""

    @property
    def _data(self) -> Any:
        memory = self._memory
        if not self._path:
            return memory.array
        if self._shown_at != memory.writes:
            self._shown, self._shown_at = self._follow(memory.array), memory.writes
        return self._shown

    @_data.setter
    def _data(self, array: Any) -> None:
        self._memory = Memory(array)
        self._path = ()

    @property
    def _is_contiguous(self) -> bool:
        return self._strides is None or bool(self._strides.flags.c_contiguous)

    def _strided(self) -> Any:
        return None if self._is_contiguous else self._strides

    def _follow(self, array: Any) -> Any:
        for op, attrs, index in self._path:
            array = op.kernel(self._on.backend, array, **attrs)
            if isinstance(array, (tuple, list)):
                array = array[index]
        return array

    def _store(self, value: Any) -> None:
        xp, present = self._on.backend, self._data
        if self._strides is not None and not self._strides.flags.writeable:
            raise InvalidOperation(OVERLAPPING)
        value = xp.broadcast_to(xp.asarray(value), present.shape).astype(present.dtype)
        memory = self._memory
        if self._path:
            value = CATALOGUE.get("view_scatter").kernel(xp, memory.array, value, chain=self._path)
        memory.array = value
        memory.writes += 1

    def _share(self, source: Tensor) -> None:
        assert isinstance(source, ImmutableTensor)
        for name in ("_memory", "_path", "_shown", "_shown_at", "_strides", "_version_counter"):
            setattr(self, name, getattr(source, name))

    def _show(self, source: Tracked, op: Op, attrs: Any, index: int) -> None:
        """Become a view of ``source``, if this output of ``op`` would show its memory.

        Whether a reshape does depends on strides (tensor/abstract_layout.py).
        """
        assert isinstance(source, ImmutableTensor)
        before = source._stand_in()
        after = follow(before, op, values_within(attrs), index)  # strides do not depend on where a slice starts
        if not shows(after, before):
            return
        shown = self._data
        self._view_of(source, op, attrs, index)
        self._memory, self._path = source._memory, (*source._path, (op, attrs, index))
        self._shown, self._shown_at, self._strides = shown, source._memory.writes, after

    def _stand_in(self) -> Any:
        """A NumPy array of this tensor's shape and strides, not to be read."""
        return row_major(tuple(self._data.shape)) if self._strides is None else self._strides

    def _show_as(self, op: Op, attrs: Any) -> None:
        (shown,), _ = execute(op, [self._data], attrs, self._on.backend)
        self._strides = follow(self._stand_in(), op, values_within(attrs), 0)
        self._path = (*self._path, (op, attrs, 0))
        self._shown, self._shown_at = shown, self._memory.writes

    def _copy_value(self) -> Any:
        return self._data  # nobody can change it
