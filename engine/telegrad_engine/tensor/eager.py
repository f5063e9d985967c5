"""The engine's Tensor: autograd state over a NumPy array, and how an op is executed on it.

``apply`` is the hot path of everything: every op of every session runs through it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..arrays import NUMPY
from ..context import observers, state
from ..dtypes import FLOATING
from ..errors import InvalidOperation, InvalidValue
from ..graph.backward_pass import Values
from ..graph.node import count_saved, next_sequence, record
from ..schema.op import NO_ATTRS, Op
from .base import Tracked
from .conversion import as_array
from .execution import execute, run_composite, shows
from .formatting import format_tensor
from .gradient_values import ArrayValues, GraphValues
from .in_place import OVERLAPPING, Changeable
from .inference import mark
from .namespace import Functions

ndarray = np.ndarray
_new = object.__new__
quick_functions: dict[Op, Callable[..., Any]] = {}
"""The ops that elementwise_fast_path.py has a shorter way for."""


def item(array: Any) -> Any:
    """The one element of ``array`` as a Python number, or torch's error."""
    if array.size != 1:
        raise InvalidOperation(f"a Tensor with {array.size} elements cannot be converted to Scalar")
    return array.item() if array.dtype.kind != "V" else float(array.reshape(()))


def one_number(array: Any) -> Any:
    """As :func:`item`, with the error that torch's conversions to Python numbers raise."""
    if array.size != 1:
        raise InvalidValue("only one element tensors can be converted to Python scalars")
    return item(array)


def truth(array: Any) -> bool:
    """The truth value of an array of one element, or torch's error."""
    if array.size > 1:
        raise InvalidOperation("Boolean value of Tensor with more than one value is ambiguous")
    if array.size == 0:
        raise InvalidOperation("Boolean value of Tensor with no values is ambiguous")
    return bool(array.reshape(()))


def apply(op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any] = NO_ATTRS) -> Any:
    """Execute ``op`` on tensors and numbers, and record it if a gradient will flow through it."""
    if observers and state.ops_observed and state.device is None:
        return state.observer.op(execute_and_record, op, inputs, attrs)  # type: ignore[union-attr]
    if not attrs and (function := quick_functions.get(op)) is not None:
        return function(*inputs)
    return execute_and_record(op, inputs, attrs)


def execute_and_record(op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any] = NO_ATTRS) -> Any:
    """What ``apply`` does where elementwise_fast_path.py has no shorter way."""
    if state.device is not None:
        return state.device.apply(op, inputs, attrs)
    if state.autocast is not None:
        op, inputs, attrs = state.autocast.cast(op, inputs, attrs)
    needs = False
    datas: list[Any] = []
    for x in inputs:
        if type(x) is Tensor:
            if x._base is not None:
                x._refresh()
            datas.append(x._data)
            needs = needs or x._requires_grad
        elif type(x) is tuple:
            datas.append(_unwrap(x))
            needs = needs or any(isinstance(v, Tracked) and v._requires_grad for v in x)
        elif isinstance(x, Tracked):
            x._refresh()
            datas.append(x._data)
            needs = needs or x._requires_grad
        else:
            datas.append(x)
    if op.composite:
        return compose(op, inputs, attrs)
    outs, hidden = execute(op, datas, attrs)
    outputs = []
    for out in outs:
        tensor = _new(Tensor)
        tensor._data = out
        tensor._version_counter = [0]
        outputs.append(tensor)
    if state.grad_enabled:
        if needs and op.differentiable:
            record(op, inputs, attrs, outputs, hidden)
    elif state.inference:
        mark(outputs)
    if op.view:
        source = inputs[0]
        for index, output in enumerate(outputs):
            if shows(output._data, source._data):
                output._view_of(source, op, attrs, index)
    return op.bundle(outputs)


def compose(op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
    """Run an op that is written in other ops, each of which is executed and recorded on its own."""
    memory = state.memory
    if memory is None or not state.grad_enabled:
        return run_composite(op, functions, inputs, attrs)
    begun = next_sequence()
    result = run_composite(op, functions, inputs, attrs)
    count_saved(memory, result if isinstance(result, (list, tuple)) else (result,), begun)
    return result


def _unwrap(value: Any) -> Any:
    if isinstance(value, tuple):
        for v in value:
            if isinstance(v, Tracked):
                v._refresh()
        return tuple([v._data if isinstance(v, Tracked) else v for v in value])
    return value


def writable(array: Any, alike: bool = False) -> Any:
    """An array to write into. Raises torch's error for one whose elements share memory, unless all become ``alike``."""
    if array.flags.writeable:
        return array
    if not alike and any(n > 1 and not step for n, step in zip(array.shape, array.strides, strict=True)):
        raise InvalidOperation(OVERLAPPING)
    view = array.view()
    view.flags.writeable = True  # a part of an expanded array: NumPy protects it, but its elements are apart
    return view


class Tensor(Tracked):
    """A tensor whose value is an array. Make one with :func:`tensor` or by an op."""

    def __init__(self, array: Any) -> None:
        self._data = array
        self._version_counter = [0]
        if not array.flags.c_contiguous:
            self._lie_as(array)

    @property
    def device(self) -> str:
        """Where the value lives."""
        return NUMPY.name

    def numpy(self) -> Any:
        """The value as a NumPy array, of the same memory on the CPU. Raises for tensors that require grad."""
        if self.requires_grad:
            raise InvalidOperation(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
            )
        return self._host()

    def _host(self, copy: bool = False) -> Any:
        """The value as a NumPy array, whether or not gradients are tracked."""
        return self._data.copy() if copy else self._data

    def tolist(self) -> Any:
        """The value as nested lists of Python numbers."""
        return self._data.tolist()

    def item(self) -> Any:
        """The value of a tensor of one element as a Python number."""
        return item(self._data)

    def __bool__(self) -> bool:
        return truth(self._data)

    def __float__(self) -> float:
        return float(one_number(self._data))

    def __int__(self) -> int:
        return int(one_number(self._data))

    def __index__(self) -> int:
        if self._data.size != 1 or self._data.dtype in FLOATING:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __repr__(self) -> str:
        self._refresh()
        return format_tensor(self, self._host())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def new_tensor(self, data: Any, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
        """A new tensor from ``data`` where this one is, in its dtype unless told."""
        return tensor(data, dtype=self.dtype if dtype is None else dtype, requires_grad=requires_grad)

    # What Tracked leaves to the class with the value ----------------------------------------

    def _write(self, op: Op, inputs: tuple[Any, ...], attrs: Any) -> None:
        if observers and (observer := state.observer) is not None:
            observer.write(self._overwrite, op, inputs, attrs)
        else:
            self._overwrite(op, inputs, attrs)

    def _overwrite(self, op: Op, inputs: tuple[Any, ...], attrs: Any) -> None:
        datas = [x._data if isinstance(x, Tracked) else _unwrap(x) for x in inputs]
        out, _ = execute(op, datas, attrs)
        np.copyto(writable(self._data, op.key in ("zero", "fill")), out[0], casting="unsafe")

    def _show_as(self, op: Op, attrs: Any) -> None:
        (self._data,), _ = execute(op, [self._data], attrs)

    def _store(self, value: Any) -> None:
        """Overwrite the value by an array that broadcasts to it, outside the graph."""
        np.copyto(writable(self._data), value, casting="unsafe")

    def _share(self, source: Tensor) -> None:
        """Show the memory of ``source`` from now on, outside the graph."""
        self._data, self._version_counter = source._data, source._version_counter
        self._lie_as(self._strided())

    def _strided(self) -> Any:
        data = self._data
        return None if data.flags.c_contiguous else data

    def _strided_as(self, source: Changeable, op: Op, attrs: Any, index: int) -> Any:
        return self._strided()

    @property
    def _is_contiguous(self) -> bool:
        return bool(NUMPY.is_contiguous(self._data))

    def _copy_value(self) -> Any:
        return self._data.copy()

    def _zeros_like(self) -> Tensor:
        return Tensor(np.zeros_like(self._data))

    def _ones_like(self) -> Tensor:
        return Tensor(np.ones_like(self._data))

    def _values(self, create_graph: bool) -> Values:
        if create_graph:
            return GraphValues(self._graph_class)
        values = self._array_values()
        return values if state.observer is None else state.observer.gradients(values, self)

    def _array_values(self) -> Values:
        """How a pass that records nothing handles gradients here."""
        return ARRAYS

    _apply = staticmethod(apply)


functions = Functions(apply)
Tensor._graph_class = Tensor
ARRAYS = ArrayValues(Tensor)
"""How a pass handles gradients that are NumPy arrays."""


def upload(array: Any) -> Tensor:
    """A new tensor on this thread's device over a NumPy array that nobody else uses."""
    return Tensor(array) if state.device is None else state.device.upload(array)


def tensor(data: Any, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """A new tensor with a copy of ``data``: numbers, nested sequences, an array or a tensor.

    Python floats become the default dtype (float32), ints int64. Raises InvalidValue for ragged
    data and InvalidArgument for what is not a number.
    """
    result = upload(as_array(data, dtype))
    if state.inference:
        mark((result,))
    return result.requires_grad_() if requires_grad else result
