"""Array libraries other than NumPy as devices, and the execution of ops on them.

The hot path in tensor/eager.py handles only NumPy tensors. While ``context.state.device`` is set, tensors are created
here instead. ``apply`` does the same as that of tensor/eager.py with another array library. Each device has its own
tensor class, so methods of a tensor run on its device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any

from ..arrays import Backend, make_backend, resolve
from ..arrays.base import NOWHERE
from ..context import state
from ..errors import InvalidOperation
from ..graph.node import record
from ..schema.op import NO_ATTRS, Op
from ..tensor.abstract import unwrap
from ..tensor.base import Tracked
from ..tensor.eager import compose
from ..tensor.execution import execute, finish
from .tensors import DeviceTensor, DeviceValues, ImmutableTensor


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
            elif isinstance(x, Tracked) and type(x) is not self.Tensor:
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
