"""The two forms of gradients in a backward pass: raw arrays, or tensors whose ops are recorded."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..arrays import NUMPY
from ..context import state
from ..dtypes import FLOATING
from ..graph.backward_pass import ArrayPass, Values, _Pass
from ..graph.hooks import run_hooks
from ..graph.node import Node
from ..schema.memory_admission import bytes_of, reserved, scratch_of
from ..schema.op import CATALOGUE, Op
from ..shapes import broadcast_axes
from .namespace import Functions

ndarray = np.ndarray
COUNTED = 2**16
"""The size in bytes above which a new ``grad`` is counted at once, before it has a name."""
_new = object.__new__


class RawFunctions:
    """The functions for derivative rules on raw arrays: bare kernels, with no checks and no recording."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp

    def __getattr__(self, name: str) -> Any:
        op = CATALOGUE.identified(name)
        if op is None:
            raise AttributeError(name)
        function = _bare(op, self)
        setattr(self, name, function)
        return function


def _bare(op: Op, functions: RawFunctions) -> Any:
    if op.composite:
        return partial(op.kernel, functions)
    handed = getattr(functions.xp, op.calls) if op.calls and not op.attr_params else None
    if handed is None and callable(op.scratch) and not op.view and functions.xp is NUMPY:
        return partial(_admitted, op)
    return handed or partial(op.raw, functions.xp)


def _admitted(op: Op, *args: Any, **kwargs: Any) -> Any:
    """Reserve memory for an op whose scratch is a function of its arguments, and run its bare kernel."""
    if state.memory is None:
        return op.raw(NUMPY, *args, **kwargs)
    given = {p.name: value for p, value in zip(op.params, args, strict=False)} | kwargs
    inputs = [given.get(p.name, p.default) for p in op.tensor_params]
    attrs = {p.name: given[p.name] for p in op.attr_params if p.name in given}
    specs = op.rule(*inputs, **attrs)
    results = bytes_of(specs if isinstance(specs, list) else [specs])
    with reserved(results + scratch_of(op, inputs, attrs, results)):
        return op.raw(NUMPY, *args, **kwargs)


RAW = RawFunctions(NUMPY)


class ArrayValues(Values):
    """Gradients as raw arrays, for passes that record nothing."""

    F = RAW
    xp: Any = NUMPY
    """The array library."""
    raw = True

    def __init__(self, cls: type[Any]) -> None:
        self.cls = cls
        """The class of tensors that hold such arrays."""

    @property
    def Pass(self) -> type[_Pass]:
        """The class of the fastest pass on arrays."""
        return ArrayPass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass

    def seed(self, tensor: Any, gradient: Any) -> Any:
        """Return the array that a pass starts with: that of ``gradient``, or ones if it is None."""
        if gradient is None:
            return self.xp.ones(tensor._data.shape, tensor._data.dtype)
        return gradient._data

    def add(self, a: Any, b: Any, may_mutate: bool) -> Any:
        # A view may share its memory with another gradient.
        if may_mutate and type(a) is ndarray and a.base is None:
            return np.add(a, b, out=a)
        return a + b

    def unbroadcast(self, grad: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        if grad.shape != shape:
            grad = _sum_to(grad, shape)
        return grad if grad.dtype == dtype else grad.astype(dtype)

    def run_hooks(self, hooks: Any, grad: Any) -> Any:
        if hooks is None:
            return grad
        with self.calling():
            tensor = run_hooks(hooks, None if grad is None else self.wrap(grad))
        return None if tensor is None else tensor._data

    def wrap(self, grad: Any) -> Any:
        """Return a gradient as a tensor with memory of its own."""
        array = np.asarray(grad)
        flags = array.flags
        return self.cls(array if flags.owndata and flags.writeable and flags.c_contiguous else array.copy())

    def to_tensor(self, grad: Any) -> Any:
        return self.cls(np.asarray(grad, order="C"))

    def from_tensor(self, tensor: Any) -> Any:
        return tensor._data

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self.cls(self.xp.zeros(shape, dtype))

    def accumulate_into(self, tensor: Any, grad: Any, may_mutate: bool) -> None:
        """Add a gradient to ``tensor.grad`` in place, or set it, without a copy if ``may_mutate`` allows that.

        As in torch, an existing ``grad`` is changed in place even if it has a history.
        """
        present = tensor._grad
        if present is not None:
            if not present._data.flags.writeable and state.memory is not None:
                state.memory.unshare((present,))
            np.add(present._data, grad, out=present._data, casting="unsafe")
            present._version_counter[0] += 1
        else:
            steal = may_mutate and type(grad) is ndarray and grad.flags.owndata and grad.flags.c_contiguous
            tensor._grad = self.cls(grad if steal else np.array(grad, order="C"))
            if grad.nbytes > COUNTED and state.memory is not None:
                state.memory.count(tensor._grad._data)


def _sum_to(grad: Any, shape: tuple[int, ...]) -> Any:
    """Undo broadcasting: sum ``grad`` over the dimensions that were broadcast from ``shape``."""
    axes = broadcast_axes(shape, grad.shape)
    if type(grad) is ndarray:  # ndarray.sum would call the same in Python
        return np.add.reduce(grad, axes, keepdims=True).reshape(shape)
    return grad.sum(axis=axes, keepdims=True).reshape(shape)


class GraphValues(Values):
    """Gradients as tensors whose ops are recorded, for ``create_graph``."""

    raw = False

    def __init__(self, cls: type[Any], recording: bool = True) -> None:
        self.cls = cls
        self.recording = recording
        self.F = Functions(cls._apply)

    def __enter__(self) -> None:
        self._enabled, state.grad_enabled = state.grad_enabled, self.recording

    def __exit__(self, *exc: object) -> None:
        state.grad_enabled = self._enabled

    def seed(self, tensor: Any, gradient: Any) -> Any:
        """Return the tensor that a pass starts with: ``gradient`` with its history, or ones if it is None."""
        if gradient is not None:
            return gradient
        return tensor._ones_like()

    def data(self, grad: Any) -> Any:
        return grad._data

    def add(self, a: Any, b: Any, may_mutate: bool) -> Any:
        return a + b

    def unbroadcast(self, grad: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        if grad._data.shape != shape:
            grad = self.F.reshape(self.F.sum(grad, broadcast_axes(shape, grad._data.shape), True), shape)
        return grad if grad._data.dtype == dtype else grad.to(dtype=dtype)

    def unpack(self, node: Node) -> list[Any]:
        """Return the node's saved values, with tensors at their original places in the graph for rules to record."""
        cells = {position: cell for position, cell, _ in node.versions}
        starts = _edge_of_input(node)
        unpacked: list[Any] = []
        for position, ((source, key), value) in enumerate(zip(node.plan.saves, node.saved, strict=True)):
            if source == "output":
                unpacked.append(self._restore(value, cells[position], node, key))
            elif source == "input" and isinstance(value, list):
                edges = range(starts[key], starts[key] + len(value))
                unpacked.append([self._input(v, [0], node, e) for v, e in zip(value, edges, strict=True)])
            elif source == "input":
                unpacked.append(self._input(value, cells.get(position), node, starts[key]))
            elif source == "hidden" and value is not None:
                unpacked.append(self._restore(value, [0], None, 0))
            else:
                unpacked.append(value)
        if state.observer is not None:
            state.observer.unpacked(node, unpacked)
        return unpacked

    def _input(self, data: Any, cell: Any, node: Node, edge: int) -> Any:
        if not hasattr(data, "shape"):
            return data
        return self._restore(data, cell, node.next_edges[edge], node.output_nrs[edge] if node.output_nrs else 0)

    def _restore(self, data: Any, cell: list[int], place: Any, output_nr: int) -> Any:
        tensor = _new(self.cls)
        tensor._data, tensor._version_counter = data, cell
        if type(data) is ndarray and not data.flags.c_contiguous:
            tensor._lie_as(data)
        if place is not None and data.dtype in FLOATING:
            tensor._node, tensor._output_nr, tensor._requires_grad = place, output_nr, True
        return tensor

    def run_hooks(self, hooks: Any, grad: Any) -> Any:
        return grad if hooks is None else run_hooks(hooks, grad)

    def wrap(self, grad: Any) -> Any:
        """Return the gradient itself, which is a tensor."""
        return grad

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self.F.zeros(shape, dtype=dtype)

    def accumulate_into(self, tensor: Any, grad: Any, may_mutate: bool) -> None:
        """Add a gradient to ``tensor.grad`` out of place, so that the sum has a history."""
        tensor._grad = grad if tensor._grad is None else tensor._grad + grad


def _edge_of_input(node: Node) -> list[int]:
    """Return the first edge of each tensor parameter; a list of tensors has several edges."""
    if not node.op.has_lists:
        return list(range(len(node.next_edges)))
    starts, position = [], 0
    lists = len(node.next_edges) - (len(node.op.tensor_params) - 1)
    for param in node.op.tensor_params:
        starts.append(position)
        position += lists if param.is_list else 1
    return starts
