"""Devices: array libraries other than NumPy, tensors over their arrays, and ``on``, which selects a device.

The hot path in tensor/eager.py handles only NumPy tensors. While ``context.state.device`` is set, tensors are created
here instead. ``apply`` does the same as that of tensor/eager.py with another array library. Each device has its own
tensor class, so methods of a tensor run on its device.

Tensors over immutable arrays have torch's view semantics, too: tensors that would share memory share a
:class:`SharedArray`, which holds the current array of their base. A write replaces this array. A view stores the chain
of view ops from the base to itself, and applies it again after a write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any, ClassVar

import numpy as np

from .arrays import Backend, make_backend, resolve
from .arrays.base import NOWHERE
from .arrays.symbolic import values_within
from .context import state
from .errors import InvalidOperation
from .graph.backward_pass import Values
from .graph.node import record
from .memory_layout import overlaps
from .schema.op import CATALOGUE, NO_ATTRS, Op, ViewStep, follow_arrays
from .tensor.abstract import unwrap
from .tensor.base import TensorBase
from .tensor.eager import Tensor, compose
from .tensor.execution import execute, finish, is_view_of
from .tensor.gradient_values import ArrayValues, RawFunctions
from .tensor.memory import OVERLAPPING, follow, row_major


class DeviceTensor(Tensor):
    """A tensor over a library's arrays, which have views and can be written to, like NumPy's."""

    _on: ClassVar[Any]
    """The device."""

    @property
    def device(self) -> str:
        """The name of the tensor's device."""
        name: str = self._on.name
        return name

    def new_tensor(self, data: Any, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
        """Make a tensor from ``data`` on the device of this tensor."""
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
        if overlaps(self._data):
            raise InvalidOperation(OVERLAPPING)  # CuPy itself does not check this
        self._on.backend.copyto(self._data, self._on.backend.asarray(value), casting="unsafe")

    def _note_view(self, source: TensorBase, op: Op, attrs: Any, index: int) -> None:
        """Make this output of ``op`` a view of ``source`` if they share memory."""
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
    """``Values`` for gradients that are raw arrays of a library."""

    def __init__(self, device: Any) -> None:
        super().__init__(device.Tensor)
        self.F, self.xp = RawFunctions(device.backend), device.backend

    def wrap(self, grad: Any) -> Any:
        """A copy of a gradient as a tensor."""
        return self.cls(self.xp.array(self._row_major(grad)))

    def _row_major(self, grad: Any) -> Any:
        return grad if self.xp.is_contiguous(grad) else self.xp.ascontiguousarray(grad)

    def to_tensor(self, grad: Any) -> Any:
        """A gradient as a tensor, for hooks and for a Function's backward."""
        return self.cls(self._row_major(grad))

    def accumulate_into(self, tensor: Any, grad: Any, may_mutate: bool) -> None:
        """Add a gradient to ``tensor.grad`` in place, or set it if it is None."""
        present = tensor._grad
        if present is None:
            tensor._grad = self.wrap(grad)
        else:
            present._store(present._data + grad)
            present._version_counter[0] += 1


class SharedArray:
    """Memory that tensors share: the array after the latest write, and the number of writes."""

    __slots__ = ("array", "writes")

    def __init__(self, array: Any) -> None:
        self.array = array
        self.writes = 0


class ImmutableTensor(DeviceTensor):
    """A tensor over an immutable array, which a write replaces by a new one."""

    _memory: SharedArray
    _path: tuple[ViewStep, ...] = ()
    """The chain of view ops from the memory's array to this tensor's."""
    _shown: Any = None
    """The cached array of a view, computed after ``_shown_at`` writes."""
    _shown_at: int = 0
    _strides: Any = None
    """A NumPy array of one-byte elements with this tensor's shape and strides (tensor/memory.py); None for
    row-major."""

    @property
    def _data(self) -> Any:
        memory = self._memory
        if not self._path:
            return memory.array
        if self._shown_at != memory.writes:
            self._shown = follow_arrays(self._on.backend, memory.array, self._path)
            self._shown_at = memory.writes
        return self._shown

    @_data.setter
    def _data(self, array: Any) -> None:
        self._memory = SharedArray(array)
        self._path = ()

    @property
    def _is_contiguous(self) -> bool:
        return self._strides is None or bool(self._strides.flags.c_contiguous)

    def _strided(self) -> Any:
        return None if self._is_contiguous else self._strides

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

    def _note_view(self, source: TensorBase, op: Op, attrs: Any, index: int) -> None:
        """Make this output of ``op`` a view of ``source`` if they would share memory in torch.

        For a reshape, this depends on strides (tensor/memory.py).
        """
        assert isinstance(source, ImmutableTensor)
        before = source._stand_in()
        after = follow(before, (op, values_within(attrs), index))  # strides do not depend on where a slice starts
        if not is_view_of(after, before):
            return
        shown = self._data
        self._view_of(source, op, attrs, index)
        self._memory, self._path = source._memory, (*source._path, (op, attrs, index))
        self._shown, self._shown_at, self._strides = shown, source._memory.writes, after

    def _stand_in(self) -> Any:
        """A NumPy array with this tensor's shape and strides; its values are meaningless."""
        return row_major(tuple(self._data.shape)) if self._strides is None else self._strides

    def _show_as(self, op: Op, attrs: Any) -> None:
        (shown,), _ = execute(op, [self._data], attrs, self._on.backend)
        self._strides = follow(self._stand_in(), (op, values_within(attrs), 0))
        self._path = (*self._path, (op, attrs, 0))
        self._shown, self._shown_at = shown, self._memory.writes

    def _copy_value(self) -> Any:
        return self._data  # the array is immutable


class Device:
    """A backend, the class of the tensors over its arrays, and the ``Values`` of backward passes on it."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.name = backend.name
        base = DeviceTensor if backend.aliases else ImmutableTensor
        self.Tensor: type[DeviceTensor] = type("Tensor", (base,), {"_on": self, "_apply": staticmethod(self.apply)})
        self.Tensor._graph_class = self.Tensor
        self.values = DeviceValues(self)

    def upload(self, array: Any) -> DeviceTensor:
        """Make a tensor on this device with the values of a NumPy array."""
        return self.Tensor(self.backend.upload(array))

    def apply(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any] = NO_ATTRS) -> Any:
        """Execute ``op`` on this device, and record it if an input requires grad."""
        observer = state.observer
        if observer is None:
            return self._execute_and_record(op, inputs, attrs)
        return observer.op(self._execute_and_record, op, inputs, attrs)

    def _execute_and_record(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        self._check_together(inputs)
        if state.autocast is not None:
            op, inputs, attrs = state.autocast.cast(op, inputs, attrs)
        datas, needs = unwrap(inputs, op.differentiable)
        with self.active():
            if op.composite:
                return compose(op, inputs, attrs)
            outs, hidden = execute(op, datas, attrs, self.backend)
        outputs = [self.Tensor(out) for out in outs]
        enter = partial(record, op, attrs) if needs and op.differentiable and state.grad_enabled else None
        return finish(op, inputs, attrs, outputs, hidden, enter)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Create new tensors on this device within the block."""
        previous, state.device = state.device, self
        try:
            with self.backend.placed():
                yield
        finally:
            state.device = previous

    def _check_together(self, inputs: Sequence[Any]) -> None:
        for x in inputs:
            if isinstance(x, tuple):
                self._check_together(x)
            elif isinstance(x, TensorBase) and type(x) is not self.Tensor:
                elsewhere = getattr(x, "device", "meta")
                raise InvalidOperation(
                    "Expected all tensors to be on the same device, but found at least two devices, "
                    f"{self.name} and {elsewhere}!"
                )


_devices: dict[str, Device | None] = {"cpu": None}
_making = Lock()


def device(name: str) -> Device | None:
    """Return the device with this name; None is the CPU with NumPy.

    Raises InvalidValue for an unknown name; InvalidOperation if the backend cannot be used, or has no device of this
    index, or if the name is "gpu" and there is none.
    """
    if name in _devices:
        return _devices[name]
    name = resolve(name)
    with _making:
        if name not in _devices:
            _devices[name] = Device(make_backend(name))
        return _devices[name]


@contextmanager
def on(name: str) -> Iterator[None]:
    """Create tensors and run ops on a device within the block. Raises the errors of :func:`device`."""
    there = device(name)
    previous, state.device = state.device, there
    try:
        with NOWHERE if there is None else there.backend.placed():
            yield
    finally:
        state.device = previous
