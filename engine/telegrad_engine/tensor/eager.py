"""The engine's Tensor, which holds a NumPy array, and the execution of ops on it.

``apply`` is the hottest path: every op of every session runs through it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..arrays import NUMPY
from ..context import observers, state
from ..dtypes import FLOATING
from ..errors import InvalidOperation, InvalidValue
from ..graph.backward_pass import Values
from ..graph.node import Node, accumulator, announce, count_saved, next_sequence, record
from ..lru import LRU
from ..memory_layout import overlaps
from ..schema.op import NO_ATTRS, Op
from ..shapes import Spec, interned
from .abstract import Meta, unwrap
from .base import TensorBase
from .call_cache import NUMBERS, CallSignature, PreparedCall, Ready, bind_inputs, prepare
from .conversion import as_array
from .execution import (
    conform,
    execute,
    finish,
    has_own_memory,
    in_own_memory,
    is_view_of,
    mark_as_inference,
    run_composite,
)
from .formatting import format_tensor
from .gradient_values import ArrayValues, GraphValues
from .in_place import TensorInPlace
from .memory import OVERLAPPING
from .namespace import Functions

ndarray = np.ndarray
_new = object.__new__
calls: LRU[Any, Any] = LRU(4096)
"""The most recent calls of all threads, by what calls have in common: prepared, or known from one earlier call."""
UNKNOWN, KNOWN = "unknown", "known"
"""The state of calls that are new, and of those that were made once."""


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
    """Execute ``op`` on tensors and numbers, and record it if an input requires grad.

    A call like two earlier ones runs without checks: the kernel, the output, the node.
    """
    modes = state.__dict__
    if modes["autocast"] is not None or modes["device"] is not None or (observers and modes["ops_observed"]):
        if modes["ops_observed"] and modes["device"] is None:
            return state.observer.op(execute_and_record, op, inputs, attrs)  # type: ignore[union-attr]
        return execute_and_record(op, inputs, attrs)
    datas: Sequence[Any]
    key: Any = None
    plain, count = True, 0 if attrs else len(inputs)
    if 1 <= count <= 2 and type(x := inputs[0]) is Tensor:
        # The most common calls, which _described would describe in the same way.
        if not x._plain:
            plain = False
            if x._base is not None and op.differentiable:
                x._refresh()
        spec = x._spec or spec_of(x)
        if count == 1:
            datas, key = (x._data,), (op, modes["grad_enabled"], spec, x._requires_grad)
        elif type(y := inputs[1]) is Tensor:
            if not y._plain:
                plain = False
                if y._base is not None and op.differentiable:
                    y._refresh()
            datas = x._data, y._data
            key = op, modes["grad_enabled"], spec, x._requires_grad, y._spec or spec_of(y), y._requires_grad
        elif type(y) in NUMBERS and op.pointwise:
            datas, key = (x._data, y), (op, modes["grad_enabled"], spec, x._requires_grad, type(y))
    if key is None:
        plain, datas, key = _described(op, inputs, attrs)
        if key is None:
            return execute_and_record(op, inputs, attrs)
    try:
        call = calls[key]
    except KeyError:
        call = UNKNOWN
    except TypeError:  # an attribute that is not hashable
        return execute_and_record(op, inputs, attrs)
    if type(call) is PreparedCall:
        return _run(call, inputs, datas, plain)
    result = execute_and_record(op, inputs, attrs)
    if call is not None:
        calls[key] = KNOWN if call is UNKNOWN else prepare(op, inputs, attrs)
    return result


def _run(call: PreparedCall, inputs: Sequence[Any], datas: Sequence[Any], plain: bool) -> Any:
    """Run a prepared call: compute the output and record it. ``plain`` says that all inputs are in row-major order."""
    out = call.kernel(*datas) if call.promote is None else call.kernel(*call.promote(datas))
    if not call.single:
        return _run_to_several(call, inputs, datas, out)
    if type(out) is not ndarray or out.dtype is not call.dtype:
        out = conform(out, call.dtype, NUMPY)
    if not ((plain and call.fresh) or call.view or has_own_memory(out, datas)):
        out = in_own_memory(out, datas, NUMPY)
    output = _new(Tensor)
    output._data = out
    output._spec = call.spec
    output._version_counter = [0]
    plan = call.plan
    if plan is not None:
        node = _new(Node)
        node.op, node.plan, node.shape, node.dtype = call.op, plan, call.shape, call.dtype
        if call.attrs:
            node.attrs = call.attrs
        node.sequence = next_sequence()
        first = second = None
        if call.first:
            x = inputs[0]
            first = x._node
            if first is None:
                known = x._accumulator
                if known is None or (first := known()) is None or first.leaf is not x:
                    first = accumulator(x)
            elif x._output_nr:
                node.output_nrs = call.output_nrs(inputs)
        if call.second:
            x = inputs[1]
            second = x._node
            if second is None:
                known = x._accumulator
                if known is None or (second := known()) is None or second.leaf is not x:
                    second = accumulator(x)
            elif x._output_nr:
                node.output_nrs = call.output_nrs(inputs)
        width = call.width
        node.next_edges = (first, second) if width == 2 else (first,) if width == 1 else call.targets(inputs, node)
        only = call.only
        if only is not None:
            x = inputs[only] if only >= 0 else output
            if type(x) is Tensor:
                counter = x._version_counter
                node.saved, node.versions = (x._data,), ((0, counter, counter[0]),)
            else:
                node.saved = (x,)
        elif call.takes:
            saved, versions = [*call.constants], []
            for position, i in call.takes:
                x = inputs[i] if i >= 0 else output
                if type(x) is Tensor:
                    counter = x._version_counter
                    versions.append((position, counter, counter[0]))
                    saved[position] = x._data
                else:
                    saved[position] = x
            node.saved, node.versions = tuple(saved), tuple(versions)
        else:
            node.saved = call.constants
        output._node = node
        output._requires_grad = True
        if observers:
            announce(node, inputs, (output,))
    elif state.inference:
        mark_as_inference((output,))
    if call.view:
        x = inputs[0]
        if out.base is x._data or is_view_of(out, x._data):
            output._view_of(x, call.op, call.attrs, 0)
    return output


def spec_of(tensor: Tensor) -> Spec:
    """Return the shape and dtype of a tensor, as one object for all tensors that have them."""
    data = tensor._data
    spec = tensor._spec = interned(data.shape, data.dtype)
    return spec


def _described(op: Op, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> tuple[bool, Sequence[Any], Any]:
    """Return whether all inputs are in row-major order, their arrays, and the key of the call; None if it has none."""
    plain, datas, key = True, [], [op, state.grad_enabled]
    for x in inputs:
        kind = type(x)
        if kind is Tensor:
            if not x._plain:
                plain = False
                if x._base is not None and op.differentiable:
                    x._refresh()
            key += (x._spec or spec_of(x), x._requires_grad)
            datas.append(x._data)
        elif x is None or (op.pointwise and kind in NUMBERS):
            key.append(kind)
            datas.append(x)
        else:
            return plain, datas, None
    for name, value in attrs.items():
        key += (name, type(value), (value or repr(value)) if type(value) is float else value)  # 0.0 equals -0.0
    return plain, datas, tuple(key)


def again(call: CallSignature) -> Ready | None:
    """Return a function that repeats a call of a function or a method on other tensors."""
    order, prepared = call.order, prepare(call.op, call.inputs, call.attrs)
    if prepared is None:
        return None
    blank = [None if hasattr(x, "_data") else x for x in call.inputs]  # keep no tensor alive

    def run(tensors: list[Any]) -> Any:
        inputs = tensors if order is None else bind_inputs(blank, order, tensors)
        return _run(prepared, inputs, [x._data if type(x) is Tensor else x for x in inputs], False)

    return run


def _run_to_several(call: PreparedCall, inputs: Sequence[Any], datas: Sequence[Any], out: Any) -> Any:
    """Return the outputs of a prepared call with several results, some of which may be hidden, and record it."""
    hidden: Sequence[Any] = ()
    if call.hidden:
        hidden = out[call.hidden :]
        out = out[0] if call.hidden == 1 else out[: call.hidden]
        count_hidden(hidden)
    arrays = out if call.many else (out,)
    outputs = [_made(array, spec, call.op, datas) for array, spec in zip(arrays, call.specs, strict=True)]
    return finish(call.op, inputs, call.attrs, outputs, hidden, call.record if call.plan else None)


def _made(array: Any, spec: Spec, op: Op, datas: Sequence[Any]) -> Tensor:
    """Return a new tensor over a kernel's result."""
    if type(array) is not ndarray or array.dtype is not spec.dtype:
        array = conform(array, spec.dtype, NUMPY)
    if not op.view and not has_own_memory(array, datas):
        array = in_own_memory(array, datas, NUMPY)
    tensor = _new(Tensor)
    tensor._data = array
    tensor._spec = spec
    tensor._version_counter = [0]
    return tensor


def count_hidden(arrays: Sequence[Any]) -> None:
    """Count the memory of hidden results, which only the graph holds."""
    if (memory := state.memory) is not None:
        for array in arrays:
            if type(array) is ndarray:
                memory.count(array)


def execute_and_record(op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any] = NO_ATTRS) -> Any:
    """Check the call, execute the op and record it."""
    if state.device is not None:
        return state.device.apply(op, inputs, attrs)
    if state.autocast is not None:
        op, inputs, attrs = state.autocast.cast(op, inputs, attrs)
    datas, needs = unwrap(inputs, op.differentiable)
    if op.composite:
        return compose(op, inputs, attrs)
    outs, hidden = execute(op, datas, attrs)
    enter = partial(record, op, attrs) if needs and op.differentiable and state.grad_enabled else None
    return finish(op, inputs, attrs, wrap(outs), hidden, enter)


def wrap(arrays: Sequence[Any]) -> list[Tensor]:
    """Return new tensors over these arrays."""
    tensors = []
    for array in arrays:
        tensor = _new(Tensor)
        tensor._data = array
        tensor._version_counter = [0]
        tensors.append(tensor)
    return tensors


def compose(op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
    """Run a composite op: each op that it calls is executed and recorded separately."""
    memory = state.memory
    if memory is None or not state.grad_enabled:
        return run_composite(op, functions, inputs, attrs)
    begun = next_sequence()
    result = run_composite(op, functions, inputs, attrs)
    count_saved(memory, result if isinstance(result, (list, tuple)) else (result,), begun)
    return result


def writable(tensor: Any, shared: bool = False) -> Any:
    """Return a tensor's array, or a view of it, to write to.

    Raises torch's error if elements of a read-only array share memory, unless ``shared`` is true.
    """
    array = tensor._data
    if array.flags.writeable:
        return array
    if state.memory is not None and state.memory.unshare((tensor,)):
        return writable(tensor, shared)
    if not shared and overlaps(array):
        raise InvalidOperation(OVERLAPPING)
    view = array.view()
    view.flags.writeable = True  # part of an expanded array: read-only in NumPy, although its elements do not overlap
    return view


class Tensor(TensorBase):
    """A tensor whose value is an array. Create one with :func:`tensor` or an op."""

    _spec: Spec | None = None
    """The shape and dtype of ``_data``, from :func:`spec_of`; None if no call has needed them yet."""

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

    # Operations on the value, which TensorBase leaves to its subclasses ------------------------

    def _write(self, op: Op, inputs: tuple[Any, ...], attrs: Any) -> None:
        if observers and (observer := state.observer) is not None:
            observer.write(self._overwrite, op, inputs, attrs)
        else:
            self._overwrite(op, inputs, attrs)

    def _overwrite(self, op: Op, inputs: tuple[Any, ...], attrs: Any) -> None:
        datas, _ = unwrap(inputs, differentiable=False)
        out, _ = execute(op, datas, attrs)
        np.copyto(writable(self, not op.overlap.itself), out[0], casting="unsafe")

    def _show_as(self, op: Op, attrs: Any) -> None:
        (self._data,), _ = execute(op, [self._data], attrs)
        self._spec = None

    def _store(self, value: Any) -> None:
        """Overwrite the value with an array that broadcasts to it, outside the graph."""
        np.copyto(writable(self), value, casting="unsafe")

    def _share(self, source: Tensor) -> None:
        """Make this tensor share the memory of ``source``, outside the graph."""
        self._data, self._version_counter, self._spec = source._data, source._version_counter, None
        self._lie_as(self._strided())

    def _strided(self) -> Any:
        data = self._data
        return None if data.flags.c_contiguous else data

    def _note_view(self, source: TensorBase, op: Op, attrs: Any, index: int) -> None:
        if is_view_of(self._data, source._data):
            self._view_of(source, op, attrs, index)

    def _strided_as(self, source: TensorInPlace, op: Op, attrs: Any, index: int) -> Any:
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
        mark_as_inference((result,))
    return result.requires_grad_() if requires_grad else result
