"""The engine's Tensor: autograd state over a NumPy array, and how an op is executed on it.

``apply`` is the hot path of everything: every op of every session runs through it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .backends import NUMPY
from .backward import Values
from .convert import as_array
from .dtypes import FLOATING
from .errors import InvalidOperation, InvalidValue
from .functions import Functions
from .graph import record, record_elementwise
from .modes import generator, state
from .registry import NO_ATTRS, Op
from .specs import check_size
from .tracked import Tracked

ndarray = np.ndarray
_new = object.__new__
_NATIVE = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
"""Dtypes in which NumPy and torch agree on what an operation with a Python number gives."""
_NUMBERS = frozenset({float, int})


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
    if op.keeps_dtype and not attrs:
        out = _quick(op, inputs)
        if out is not None:
            tensor = _new(Tensor)
            tensor._data = out if type(out) is ndarray else np.asarray(out)
            tensor._cell = [0]
            if (inputs[0]._requires_grad or getattr(inputs[-1], "_requires_grad", False)) and state.grad_enabled:
                record_elementwise(op, inputs, tensor)
            return tensor
    needs = False
    datas: list[Any] = []
    for x in inputs:
        if isinstance(x, Tracked):
            if x._base is not None:
                x._refresh()
            datas.append(x._data)
            if x._requires_grad:
                needs = True
        elif type(x) is tuple:
            datas.append(_unwrap(x))
            needs = needs or any(isinstance(v, Tracked) and v._requires_grad for v in x)
        else:
            datas.append(x)
    if op.composite:
        return op.kernel(functions, *inputs, **attrs)
    outs, hidden = execute(op, datas, attrs)
    outputs = []
    for out in outs:
        tensor = _new(Tensor)
        tensor._data = out
        tensor._cell = [0]
        outputs.append(tensor)
    if needs and state.grad_enabled and op.differentiable:
        record(op, inputs, attrs, outputs, hidden)
    if op.view:
        source = inputs[0]
        for index, output in enumerate(outputs):
            if np.may_share_memory(output._data, source._data):
                output._view_of(source, op, attrs, index)
    return op.bundle(outputs)


def _quick(op: Op, inputs: tuple[Any, ...]) -> Any:
    """The result of an elementwise op that needs no checks: one floating dtype, one shape, or a number beside it.

    None where that is not so.
    """
    first = inputs[0]
    if type(first) is not Tensor or first._base is not None:
        return None
    x = first._data
    dtype = x.dtype
    if dtype not in _NATIVE:
        return None
    if len(inputs) == 1:
        return op.kernel(NUMPY, x)
    if len(inputs) > 2:
        return None
    second = inputs[1]
    if type(second) is Tensor:
        y = second._data
        if y.dtype is not dtype or y.shape != x.shape or second._base is not None:
            return None
        return op.kernel(NUMPY, x, y)
    return op.kernel(NUMPY, x, second) if type(second) in _NUMBERS else None


def _unwrap(value: Any) -> Any:
    if isinstance(value, tuple):
        for v in value:
            if isinstance(v, Tracked):
                v._refresh()
        return tuple([v._data if isinstance(v, Tracked) else v for v in value])
    return value


def execute(op: Op, datas: list[Any], attrs: Mapping[str, Any]) -> tuple[list[Any], Sequence[Any]]:
    """Check the arguments, run the kernel, and bring its results to the dtypes that the rule promises."""
    specs = op.rule(*datas, **attrs)
    for spec in specs if isinstance(specs, list) else (specs,):
        check_size(spec.shape, spec.dtype, op.view)
    if op.common is not None:
        kept = op.unpromoted
        datas = datas[:kept] + _promote(datas[kept:], op.common(tuple(datas)))
    result = op.kernel(NUMPY, generator(), *datas, **attrs) if op.random else op.kernel(NUMPY, *datas, **attrs)
    hidden: Sequence[Any] = ()
    if op.hidden:
        count = len(op.outputs)
        hidden = result[count:]
        result = result[0] if count == 1 else result[:count]
    if not isinstance(specs, list):
        specs, result = [specs], (result,)
    return [_conform(array, spec.dtype) for array, spec in zip(result, specs, strict=True)], hidden


def _conform(array: Any, dtype: np.dtype[Any]) -> Any:
    if type(array) is not ndarray:
        array = np.asarray(array)
    return array if array.dtype == dtype else array.astype(dtype)


def _promote(datas: list[Any], dtype: np.dtype[Any]) -> list[Any]:
    """Arrays cast to ``dtype``; numbers become arrays only where NumPy would not take them as weak."""
    promoted: list[Any] = []
    for x in datas:
        if isinstance(x, ndarray):
            promoted.append(x if x.dtype == dtype else x.astype(dtype))
        elif x is None or (type(x) is float and dtype.kind == "f"):
            promoted.append(x)
        else:
            promoted.append(_number_as(x, dtype))
    return promoted


def _number_as(x: Any, dtype: np.dtype[Any]) -> Any:
    # Integers wrap around as torch's do, where NumPy would raise.
    return np.asarray(np.asarray(x)).astype(dtype)


class Tensor(Tracked):
    """A tensor whose value is an array. Make one with :func:`tensor` or by an op."""

    def __init__(self, array: Any) -> None:
        self._data = array
        self._cell = [0]

    @property
    def device(self) -> str:
        """Where the value lives."""
        return NUMPY.name

    def numpy(self) -> Any:
        """The value as a NumPy array that shares memory. Raises for tensors that require grad."""
        if self.requires_grad:
            raise InvalidOperation(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
            )
        return self._data

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
        from .formatting import format_tensor

        self._refresh()
        return format_tensor(self, self._data)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def new_tensor(self, data: Any, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
        """A new tensor from ``data`` where this one is."""
        return tensor(data, dtype=dtype, requires_grad=requires_grad)

    # What Tracked leaves to the class with the value ----------------------------------------

    def _write(self, op: Op, inputs: tuple[Any, ...], attrs: Any) -> None:
        datas = [x._data if isinstance(x, Tracked) else _unwrap(x) for x in inputs]
        out, _ = execute(op, datas, attrs)
        np.copyto(self._data, out[0], casting="unsafe")

    def _copy_value(self) -> Any:
        return self._data.copy()

    def _zeros_like(self) -> Tensor:
        return Tensor(np.zeros_like(self._data))

    def _ones_like(self) -> Tensor:
        return Tensor(np.ones_like(self._data))

    def _values(self, create_graph: bool) -> Values:
        from .values import ARRAYS, GraphValues

        return GraphValues(Tensor) if create_graph else ARRAYS

    _apply = staticmethod(apply)


functions = Functions(apply)
Tensor._graph_class = Tensor


def tensor(data: Any, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """A new tensor with a copy of ``data``: numbers, nested sequences, an array or a tensor.

    Python floats become the default dtype (float32), ints int64. Raises InvalidValue for ragged
    data and InvalidArgument for what is not a number.
    """
    result = Tensor(as_array(data, dtype))
    return result.requires_grad_() if requires_grad else result
