"""Tensors on a backend other than NumPy: how ops are executed there, and how gradients are handled.

NumPy's tensors have the hot path in tensor.py to themselves. While ``modes.state.device`` is set, what is
made is made here: ``apply`` does what tensor.py's does, with another array library, and tensors are of
the device's own class, so a method called on one always comes back to its device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, ClassVar

import numpy as np

from ..backends import Backend, make_backend
from ..backward import Values
from ..errors import InvalidOperation
from ..execution import execute
from ..graph import record
from ..in_place import OVERLAPPING
from ..inference import mark
from ..meta import unwrap
from ..modes import state
from ..registry import NO_ATTRS, Op
from ..tensor import Tensor, compose
from ..tracked import Tracked
from ..values import ArrayValues, RawFunctions


class Device:
    """A backend, the class of the tensors over its arrays, and the namespaces of derivative rules on it."""

    def __init__(self, backend: Backend) -> None:
        from .immutable import ImmutableTensor

        self.backend = backend
        self.name = backend.name
        base = DeviceTensor if backend.aliases else ImmutableTensor
        self.Tensor: type[DeviceTensor] = type("Tensor", (base,), {"_on": self, "_apply": staticmethod(self.apply)})
        self.Tensor._graph_class = self.Tensor
        self.values = DeviceValues(self)

    def upload(self, array: Any) -> DeviceTensor:
        """A tensor here with the values of a NumPy array."""
        return self.Tensor(self.backend.upload(array))

    def apply(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any] = NO_ATTRS) -> Any:
        """Execute ``op`` here and record it if a gradient will flow through it."""
        observer = state.observer
        if observer is None:
            return self._execute_and_record(op, inputs, attrs)
        return observer.op(self._execute_and_record, op, inputs, attrs)

    def _execute_and_record(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        self._check_together(inputs)
        if state.autocast is not None:
            op, inputs, attrs = state.autocast.cast(op, inputs, attrs)
        datas, needs = unwrap(inputs)
        with self.active():
            if op.composite:
                return compose(op, inputs, attrs)
            outs, hidden = execute(op, datas, attrs, self.backend)
        outputs = [self.Tensor(out) for out in outs]
        if state.inference:
            mark(outputs)
        if needs and state.grad_enabled and op.differentiable:
            record(op, inputs, attrs, outputs, hidden)
        if op.view:
            for index, output in enumerate(outputs):
                output._show(inputs[0], op, attrs, index)
        return op.bundle(outputs)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make new tensors here while the block runs."""
        previous, state.device = state.device, self
        try:
            yield
        finally:
            state.device = previous

    def _check_together(self, inputs: Sequence[Any]) -> None:
        for x in inputs:
            if isinstance(x, tuple):
                self._check_together(x)
            elif isinstance(x, Tracked) and type(x) is not self.Tensor:
                elsewhere = getattr(x, "device", "meta")
                raise InvalidOperation(
                    "Expected all tensors to be on the same device, but found at least two devices, "
                    f"{self.name} and {elsewhere}!"
                )


class DeviceTensor(Tensor):
    """A tensor over a library's arrays, which have views and can be written to, as NumPy's."""

    _on: ClassVar[Device]

    @property
    def device(self) -> str:
        """Where the value lives."""
        return self._on.name

    def new_tensor(self, data: Any, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
        """A new tensor from ``data`` where this one is."""
        with self._on.active():
            return super().new_tensor(data, dtype=dtype, requires_grad=requires_grad)

    def __init__(self, array: Any) -> None:
        self._data = array
        self._cell = [0]
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
        return self._on.values


class DeviceValues(ArrayValues):
    """Gradients as a library's raw arrays."""

    def __init__(self, device: Device) -> None:
        self.F = RawFunctions(device.backend)
        self._device = device

    def seed(self, tensor: Any, gradient: Any) -> Any:
        """The array a pass starts with: ``gradient``'s, or one."""
        data = tensor._data
        return self._device.backend.ones(data.shape, data.dtype) if gradient is None else gradient._data

    def add(self, a: Any, b: Any, owned: bool) -> Any:
        """The sum, in memory of its own."""
        return a + b

    def wrap(self, grad: Any) -> Tensor:
        """A gradient as a tensor that nobody else writes to."""
        return self._device.Tensor(self._device.backend.array(self._row_major(grad)))

    def _row_major(self, grad: Any) -> Any:
        backend = self._device.backend
        return grad if backend.is_contiguous(grad) else backend.ascontiguousarray(grad)

    def to_tensor(self, grad: Any) -> Tensor:
        """The tensor that a Function's backward is given."""
        return self._device.Tensor(self._row_major(grad))

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Tensor:
        """The tensor that a Function's backward is given where no gradient arrived."""
        return self._device.Tensor(self._device.backend.zeros(shape, dtype))

    def gather(self, tensor: Any, grad: Any, private: bool) -> None:
        """Add a gradient to ``tensor.grad``, in place if there is one."""
        present = tensor._grad
        if present is None:
            tensor._grad = self.wrap(grad)
        else:
            present._store(present._data + grad)
            present._cell[0] += 1


_devices: dict[str, Device | None] = {"cpu": None}
_making = Lock()


def device(name: str) -> Device | None:
    """The device of this name; None is the CPU with NumPy.

    Raises InvalidValue for a name that no backend has, and InvalidOperation, naming what to install, where
    the backend cannot be had.
    """
    with _making:
        if name not in _devices:
            _devices[name] = Device(make_backend(name))
        return _devices[name]


@contextmanager
def on(name: str) -> Iterator[None]:
    """Make tensors, and run ops, on a device while the block runs. Errors are those of :func:`device`."""
    previous, state.device = state.device, device(name)
    try:
        yield
    finally:
        state.device = previous
