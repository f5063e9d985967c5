"""The backward pass on gradients with a leading dimension of rows, which saved values do not have.

The derivatives of pointwise ops broadcast over the rows as they are. Any other derivative sees one row, as under
``create_graph``, and the batching rules of ``vmap`` compute all rows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays import NUMPY
from ...context import state
from ...graph.backward_pass import _Pass
from ...graph.node import Node
from ...graph.node_evaluation import wants
from ...ops.batching.batched_call import BatchedCall, Lanes
from ...ops.batching.families import apply_to_batch
from ...schema.op import NO_ATTRS, Op
from ...shapes import Spec
from ...tensor import eager
from ...tensor.base import Tracked
from ...tensor.eager import Tensor
from ...tensor.gradient_values import ArrayValues
from ...tensor.namespace import Functions


class Row(Tracked):
    """One row of an array (rows, *shape), or an array that all rows share."""

    def __init__(self, array: Any, batched: bool) -> None:
        self.array, self.batched = array, batched
        self._data = Spec(array.shape[1:], array.dtype) if batched else array
        self._version_counter = [0]

    @staticmethod
    def _apply(op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any] = NO_ATTRS) -> Any:
        if (op.pointwise or op.view) and (arrays := _arrays(op, inputs)) is not None:
            batched = any(type(x) is Row and x.batched for x in inputs)
            return _mapped(lambda array: Row(np.asarray(array), batched), op.kernel(NUMPY, *arrays, **attrs))
        lanes = _mapped(_lanes, inputs)
        size = next((len(x.value._data) for x in _flat(lanes) if type(x) is Lanes), None)
        parts = op.kernel if op.composite else op.batching.parts
        if parts is not None and (op.composite or size is not None):
            return parts(functions, *inputs, **{**op.defaults, **attrs})
        if size is None:
            return _mapped(lambda result: Row(result._data, False), eager.apply(op, lanes, attrs))
        specs = op.rule(*_mapped(_data, inputs), **attrs)
        call = BatchedCall(eager.functions, size, op, lanes, attrs, specs if isinstance(specs, list) else [specs])
        return op.bundle([Row(result._data, True) for result in apply_to_batch(call)])


functions = Functions(Row._apply)


def _arrays(op: Op, inputs: tuple[Any, ...]) -> list[Any] | None:
    """Return the arrays of a call that needs no batching rule: none is batched, or they broadcast as one row's do."""
    rows = [x for x in inputs if type(x) is Row]
    ndim = max([len(x._data.shape) for x in rows]) if op.pointwise else -1
    if any(x.batched and len(x._data.shape) != ndim for x in rows):
        return None
    return [x.array if type(x) is Row else x for x in inputs]


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    return tuple([_mapped(function, v) for v in value]) if isinstance(value, (tuple, list)) else function(value)


def _flat(values: tuple[Any, ...]) -> list[Any]:
    return [x for value in values for x in (value if isinstance(value, tuple) else (value,))]


def _data(value: Any) -> Any:
    return value._data if type(value) is Row else value


def _lanes(value: Any) -> Any:
    if type(value) is not Row:
        return value
    return Lanes(Tensor(value.array)) if value.batched else Tensor(value.array)


class BatchedValues(ArrayValues):
    """Gradients as arrays with a leading batch dimension of ``rows``."""

    def __init__(self, rows: int) -> None:
        super().__init__(Tensor)
        self.rows = rows

    @property
    def Pass(self) -> type[_Pass]:
        """The class of the pass to run."""
        return BatchedPass

    def __enter__(self) -> None:
        # The batching rules apply ops to NumPy tensors, which the thread's modes must not change.
        self._modes = state.grad_enabled, state.autocast, state.device
        state.grad_enabled, state.autocast, state.device = False, None, None

    def __exit__(self, *exc: object) -> None:
        state.grad_enabled, state.autocast, state.device = self._modes

    def unbroadcast(self, grad: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        """Sum and cast each row to the shape and dtype that it was broadcast and promoted from."""
        lead = grad.ndim - 1 - len(shape)
        axes = tuple(range(1, lead + 1)) + tuple(
            i for i, n in enumerate(shape, lead + 1) if n == 1 and grad.shape[i] != 1
        )
        if axes:
            grad = grad.sum(axis=axes, keepdims=True)
        target = (self.rows, *shape)
        if grad.shape != target:
            grad = grad.reshape(target)
        return grad if grad.dtype == dtype else grad.astype(dtype)


class BatchedPass(_Pass):
    """A pass that evaluates each node once for all rows."""

    values: BatchedValues

    def _send_results(self, node: Node, grad: Any, saved: Sequence[Any]) -> None:
        if node.op.pointwise and all(save.source in ("input", "output", "attr") for save in node.plan.saves):
            super()._send_results(node, grad, saved)
            return
        row = _mapped(lambda g: None if g is None else Row(g, True), grad)
        shared = [_mapped(_shared, x) if isinstance(x, list) else _shared(x) for x in saved]
        for edges, rule, arguments, many in node.plan.steps:
            if not any(wants(self, node.next_edges[edge]) for edge in edges):
                continue
            found = rule(functions, row, *[shared[i] for i in arguments])
            for edge, result in zip(edges, found if many else (found,), strict=True):
                target = node.next_edges[edge]
                if wants(self, target):
                    self.send(target, node.output_nrs[edge] if node.output_nrs else 0, self._array(result), False)

    def _array(self, result: Row | None) -> Any:
        """All rows of a gradient."""
        if result is None:
            return None
        if result.batched:
            return result.array
        return np.broadcast_to(result.array, (self.values.rows, *result.array.shape))


def _shared(value: Any) -> Any:
    return Row(value, False) if isinstance(value, np.ndarray) else value
