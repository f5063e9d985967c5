"""The engine's Tensor, which holds a NumPy array, and the execution of ops on it.

``apply`` is the hottest path: every op of every session runs through it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..arrays import NUMPY
from ..context import observers, state
from ..dtypes import FLOATING
from ..errors import InvalidOperation, InvalidValue
from ..graph.backward_pass import Values
from ..graph.node import count_saved, next_sequence, record
from ..schema.op import NO_ATTRS, Op
from .abstract import Meta
from .base import Tracked
from .conversion import as_array
from .execution import execute, finish, run_composite, shows
from .formatting import format_tensor
from .gradient_values import ArrayValues, GraphValues
from .in_place import Changeable
from .inference import mark
from .memory_overlap import OVERLAPPING
from .namespace import Functions

ndarray = np.ndarray
_new = object.__new__
quick_functions: dict[Op, Callable[..., Any]] = {}
"""The elementwise fast path of each op that has one."""


def item(array: Any) -> Any:
    """Return the one element of ``array`` as a Python number. Raises torch's error for other sizes."""
    if array.size != 1:
        raise InvalidOperation(f"a Tensor with {array.size} elements cannot be converted to Scalar")
    return array.item() if array.dtype.kind != "V" else float(array.reshape(()))


def one_number(array: Any) -> Any:
    """Like :func:`item`, but raises the error of torch's conversions to Python numbers."""
    if array.size != 1:
        raise InvalidValue("only one element tensors can be converted to Python scalars")
    return item(array)


def truth(array: Any) -> bool:
    """Return the truth value of a one-element array. Raises torch's error for other sizes."""
    if array.size > 1:
        raise InvalidOperation("Boolean value of Tensor with more than one value is ambiguous")
    if array.size == 0:
        raise InvalidOperation("Boolean value of Tensor with no values is ambiguous")
    return bool(array.reshape(()))


def apply(op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any] = NO_ATTRS) -> Any:
    """Execute ``op`` on tensors and numbers, and record it if an input requires grad."""
    if observers and state.ops_observed and state.device is None:
        return state.observer.op(execute_and_record, op, inputs, attrs)  # type: ignore[union-attr]
    if not attrs and (function := quick_functions.get(op)) is not None:
        return function(*inputs)
    return execute_and_record(op, inputs, attrs)


def execute_and_record(op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any] = NO_ATTRS) -> Any:
    """Execute and record ``op`` as :func:`apply` does, without the elementwise fast path."""
    if state.device is not None:
        return state.device.apply(op, inputs, attrs)
    if state.autocast is not None:
        op, inputs, attrs = state.autocast.cast(op, inputs, attrs)
    needs = False
    datas: list[Any] = []
    for x in inputs:
        if type(x) is Tensor:
            if x._base is not None and op.differentiable:
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
    enter = partial(record, op, attrs) if needs and op.differentiable and state.grad_enabled else None
    return finish(op, inputs, attrs, wrap(outs), hidden, enter, note_views)


def wrap(arrays: Sequence[Any]) -> list[Tensor]:
    """Return new tensors over these arrays."""
    tensors = []
    for array in arrays:
        tensor = _new(Tensor)
        tensor._data = array
        tensor._version_counter = [0]
        tensors.append(tensor)
    return tensors


def note_views(source: Any, op: Op, attrs: Mapping[str, Any], outputs: Sequence[Tensor]) -> None:
    """Make the outputs of a view op views of ``source``, unless they are copies."""
    for index, output in enumerate(outputs):
        if shows(output._data, source._data):
            output._view_of(source, op, attrs, index)


def compose(op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
    """Run a composite op: each op that it calls is executed and recorded separately."""
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


def writable(tensor: Any, shared: bool = False) -> Any:
    """Return a tensor's array, or a view of it, to write to.

    Raises torch's error if elements of a read-only array share memory, unless ``shared`` is true.
    """
    array = tensor._data
    if array.flags.writeable:
        return array
    if state.memory is not None and state.memory.unshare((tensor,)):
        return writable(tensor, shared)
    if not shared and any(n > 1 and not step for n, step in zip(array.shape, array.strides, strict=True)):
        raise InvalidOperation(OVERLAPPING)
    view = array.view()
    view.flags.writeable = True  # part of an expanded array: read-only in NumPy, although its elements do not overlap
    return view


class Tensor(Tracked):
    """A tensor whose value is an array. Create one with :func:`tensor` or an op."""

    def __init__(self, array: Any) -> None:
        self._data = array
        self._version_counter = [0]
        if not array.flags.c_contiguous:
            self._lie_as(array)

    @property
    def device(self) -> str:
        """The name of the device that holds the value."""
        return NUMPY.name

    def numpy(self, *, force: bool = False) -> Any:
        """Return the value as a NumPy array that shares the memory. Raises if it requires grad, unless ``force``."""
        if self.requires_grad and not force:
            raise InvalidOperation(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
            )
        return self._host()

    def _host(self, copy: bool = False) -> Any:
        """Return the value as a NumPy array, even if the tensor requires grad."""
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
        """Return a new tensor from ``data`` on this tensor's device, in its dtype unless ``dtype`` is given."""
        return tensor(data, dtype=self.dtype if dtype is None else dtype, requires_grad=requires_grad)

    # Operations on the value, which Tracked leaves to its subclasses ------------------------

    def _write(self, op: Op, inputs: tuple[Any, ...], attrs: Any) -> None:
        if observers and (observer := state.observer) is not None:
            observer.write(self._overwrite, op, inputs, attrs)
        else:
            self._overwrite(op, inputs, attrs)

    def _overwrite(self, op: Op, inputs: tuple[Any, ...], attrs: Any) -> None:
        datas = [x._data if isinstance(x, Tracked) else _unwrap(x) for x in inputs]
        out, _ = execute(op, datas, attrs)
        np.copyto(writable(self, not op.overlap.itself), out[0], casting="unsafe")

    def _show_as(self, op: Op, attrs: Any) -> None:
        (self._data,), _ = execute(op, [self._data], attrs)

    def _store(self, value: Any) -> None:
        """Overwrite the value with an array that broadcasts to it, outside the graph."""
        np.copyto(writable(self), value, casting="unsafe")

    def _share(self, source: Tensor) -> None:
        """Make this tensor share the memory of ``source``, outside the graph."""
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

    def _without_value(self) -> Meta:
        return Meta._at(self)

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
        """Return the Values with which a pass that records nothing handles gradients."""
        return ARRAYS

    _apply = staticmethod(apply)


functions = Functions(apply)
Tensor._graph_class = Tensor
ARRAYS = ArrayValues(Tensor)
"""The Values of backward passes whose gradients are NumPy arrays."""


def upload(array: Any) -> Tensor:
    """Return a new tensor on this thread's device that takes ownership of a NumPy array."""
    return Tensor(array) if state.device is None else state.device.upload(array)


def tensor(data: Any, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Return a new tensor with a copy of ``data``: numbers, nested sequences, an array or a tensor.

    Python floats become the default dtype (float32), ints int64. Raises InvalidValue for ragged
    data and InvalidArgument for data that are not numbers.
    """
    result = upload(as_array(data, dtype))
    if state.inference:
        mark((result,))
    return result.requires_grad_() if requires_grad else result
