"""Many gradients of one graph in one pass: the rows of a Jacobian, ``grad(…, is_grads_batched=True)``.

Gradients have a leading dimension of rows, which saved values do not have. The derivatives of pointwise ops broadcast
over the rows as they are. Any other derivative sees one row, as under ``create_graph``, and the batching rules of
``vmap`` compute all rows at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from ..arrays import NUMPY
from ..context import state
from ..errors import GradRequired, IndexOutOfRange, InvalidValue, ShapeMismatch
from ..graph import differentiation
from ..graph.backward_pass import _Pass, run
from ..graph.node import Node, walk
from ..ops.batching.math_rules import matmul
from ..ops.batching.rules import BatchedCall, BatchedValue, apply_to_batch
from ..schema.op import NO_ATTRS, Op
from ..schema.signature import flattened, mapped
from ..shapes import Spec, torch_size
from ..tensor import eager
from ..tensor.base import TensorBase
from ..tensor.eager import ARRAYS, Tensor
from ..tensor.gradient_values import ArrayValues
from ..tensor.namespace import Functions

ELEMENTS = 2**18
"""The largest number of elements in a batch of the graph's largest array, so that batches fit into the CPU cache."""


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
    is_grads_batched: bool = False,
) -> tuple[Any, ...]:
    """Return the gradients of ``outputs`` with respect to ``inputs``, without changing ``.grad``.

    The result has one tensor per input, of its shape and dtype. For an unused input it is None with ``allow_unused``,
    or zeros with ``materialize_grads``. With ``is_grads_batched``, the ``grad_outputs`` and the results have a leading
    dimension of rows, and torch's errors are raised if it is missing or differs between them.
    """
    if not is_grads_batched:
        return differentiation.grad(
            outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads
        )
    outputs, inputs, grad_outputs, _ = differentiation.check_grad(
        outputs, inputs, grad_outputs, False, allow_unused, materialize_grads
    )
    count = check_rows(outputs, grad_outputs)
    keep = create_graph if retain_graph is None else retain_graph
    if create_graph or not _serves(outputs, inputs):
        results = one_by_one(outputs, inputs, grad_outputs, count, keep, create_graph, allow_unused=True)
    else:
        results = _in_batches(outputs, inputs, [g._data for g in grad_outputs], count, keep)
    return differentiation.completed(inputs, results, create_graph, allow_unused, materialize_grads)


def tracked_gradients(
    outputs: Sequence[Any], inputs: Sequence[Any], seeds: Sequence[Any], **options: Any
) -> Sequence[Any]:
    """Return the gradients of the outputs that have a history; None for an input that none of them depends on.

    There is a seed for each output, which may be None; so may an output.
    """
    tracked = [(o, s) for o, s in zip(outputs, seeds, strict=True) if o is not None and o.requires_grad]
    if not tracked:
        return [None] * len(inputs)
    roots, grads = zip(*tracked, strict=True)
    found: Sequence[Any] = type(roots[0])._autograd().grad(roots, inputs, grads, allow_unused=True, **options)
    return found


def basis_rows(
    output: Any,
    inputs: Sequence[Any],
    create_graph: bool,
    chunk_size: int | None = None,
    levels: int = 0,
) -> list[Any]:
    """Return, for each input, the gradients of each element of ``output``: (elements, *input.shape), or None if unused.

    The graph is kept. At most ``chunk_size`` rows are computed together. The
    first ``levels`` dimensions of ``output`` are batches of ``vmap``: each row has a gradient for every sample.
    """
    F, shape = _functions_of(type(output)._apply), tuple(output.shape)[levels:]
    grad = type(output)._autograd().grad
    count = math.prod(shape)
    options = {"retain_graph": True, "create_graph": create_graph, "allow_unused": True}
    if count == 1:
        found = grad((output,), inputs, (F.ones_like(output),), **options)
        return [None if row is None else row.unsqueeze(0) for row in found]
    basis, parts = F.eye(count, dtype=output.dtype), []
    for start in range(0, count, chunk_size or count):
        size = min(chunk_size or count, count - start)
        seeds = basis if size == count else basis.narrow(0, start, size)
        seeds = seeds.reshape((size, *(1,) * levels, *shape))
        seeds = seeds.expand((size, *output.shape)) if levels else seeds
        parts.append(grad((output,), inputs, (seeds,), is_grads_batched=True, **options))
    return [
        None if part[0] is None else part[0] if len(part) == 1 else F.cat(list(part))
        for part in zip(*parts, strict=True)
    ]


_functions_of = cache(Functions)


def _serves(outputs: Sequence[Any], inputs: Sequence[Any]) -> bool:
    """Whether the batched pass gives the same results as a pass for each row.

    It works on NumPy arrays only. Hooks, a Function's backward and anomaly mode expect gradients of a single row.
    """
    return (
        outputs[0]._values(False) is ARRAYS
        and state.anomaly is None
        and not any(tensor._hooks for tensor in inputs)
        and not any(node.hooks is not None or node.evaluate is not None for node in _nodes(outputs))
    )


def _nodes(outputs: Sequence[Any]) -> set[Node]:
    roots = [output.grad_fn for output in outputs]
    return {node for root in roots if root is not None for node in walk(root)}


def check_rows(outputs: Sequence[Any], grad_outputs: Sequence[Any]) -> int:
    """Return the number of rows of the gradients. Raises unless all have the same number and the outputs' shapes."""
    sizes = []
    for index, (output, gradient) in enumerate(zip(outputs, grad_outputs, strict=True)):
        if gradient is None:
            raise GradRequired("grad can be implicitly created only for scalar outputs")
        if not gradient.shape:
            raise IndexOutOfRange(
                "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to "
                "convert a 0-dim tensor to a number"
            )
        if gradient.shape[1:] != output.shape:
            raise ShapeMismatch(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch "
                "dimension. The sizes of the remaining dimensions are expected to match the shape of corresponding "
                f"output, but a mismatch was detected: grad_output[{index}] has a shape of "
                f"{torch_size(gradient.shape[2:])} and output[{index}] has a shape of {torch_size(output.shape)}. If "
                "you only want some tensors in `grad_output` to be considered batched, consider using vmap."
            )
        sizes.append(gradient.shape[0])
    if len(set(sizes)) > 1:
        raise InvalidValue(
            f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the "
            "mapped dimension"
        )
    if not sizes[0]:
        raise IndexOutOfRange("index 0 is out of bounds for dimension 0 with size 0")
    return int(sizes[0])


def one_by_one(
    outputs: Sequence[Any],
    inputs: Sequence[Any],
    seeds: Sequence[Any],
    count: int,
    keep: bool,
    create_graph: bool,
    **options: Any,
) -> list[Any]:
    """Compute each row in a pass of its own, by ``grad`` with these options."""
    grad = type(outputs[0])._autograd().grad
    found = [
        grad(outputs, inputs, [s[i] for s in seeds], keep or i + 1 < count, create_graph, **options)
        for i in range(count)
    ]
    stack = _functions_of(type(outputs[0])._apply).stack
    return [None if row[0] is None else stack(list(row)) for row in zip(*found, strict=True)]


def _in_batches(
    outputs: Sequence[Any], inputs: Sequence[Any], seeds: Sequence[Any], count: int, keep: bool
) -> list[Any]:
    """Compute the rows in batches of at most ``ELEMENTS`` elements of the largest array."""
    places = [differentiation.place(t) for t in outputs]
    wanted = [differentiation.place(t) for t in inputs]
    size = max(1, min(count, ELEMENTS // _largest(outputs)))
    parts: list[list[Any]] = [[] for _ in inputs]
    for start in range(0, count, size):
        some = min(size, count - start)
        values = BatchedValues(some)
        roots = [(*place, seed[start : start + some]) for place, seed in zip(places, seeds, strict=True)]
        with values:
            captured = run(
                roots, values, keep_graph=keep or start + some < count, wanted=wanted, accumulate=values.accumulate
            )
        for part, place in zip(parts, wanted, strict=True):
            part.append(captured.get(place))
    return [None if part[0] is None else Tensor(_whole(part)) for part in parts]


def _largest(outputs: Sequence[Any]) -> int:
    """Return the number of elements of the largest result in the graph."""
    return max([1, *(math.prod(node.shape) for node in _nodes(outputs))])


def _whole(parts: list[Any]) -> Any:
    """Return the rows of all batches in one new array."""
    return np.array(parts[0]) if len(parts) == 1 else np.concatenate(parts)


# The pass on rows ------------------------------------------------------------------------------------


class Row(TensorBase):
    """One row of an array (rows, *shape), or an array that all rows share."""

    def __init__(self, array: Any, batched: bool) -> None:
        self.array, self.batched = array, batched
        self._data = Spec(array.shape[1:], array.dtype) if batched else array
        self._version_counter = [0]

    @staticmethod
    def _apply(op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any] = NO_ATTRS) -> Any:
        if (op.pointwise or op.view or op.batching is matmul) and (arrays := _arrays(op, inputs)) is not None:
            batched = any(type(x) is Row and x.batched for x in inputs)
            return mapped(lambda array: Row(np.asarray(array), batched), op.kernel(NUMPY, *arrays, **attrs))
        lanes = mapped(_lanes, inputs)
        size = next((len(x.value._data) for x in flattened(lanes) if type(x) is BatchedValue), None)
        parts = op.kernel if op.composite else op.batching.parts
        if parts is not None and (op.composite or size is not None):
            return parts(functions, *inputs, **{**op.defaults, **attrs})
        if size is None:
            return mapped(lambda result: Row(result._data, False), eager.apply(op, lanes, attrs))
        specs = op.rule(*mapped(_data, inputs), **attrs)
        call = BatchedCall(eager.functions, size, op, lanes, attrs, specs if isinstance(specs, list) else [specs])
        return op.bundle([Row(result._data, True) for result in apply_to_batch(call)])


functions = Functions(Row._apply)


def _arrays(op: Op, inputs: tuple[Any, ...]) -> list[Any] | None:
    """Return the arrays of a call that needs no batching rule: none is batched, or they broadcast as one row's do."""
    rows = [x for x in inputs if type(x) is Row]
    ndims = [len(x._data.shape) for x in rows if x.batched]
    if ndims and op.batching is matmul:
        shared = [len(x._data.shape) for x in rows if not x.batched]
        if shared != [2] if shared else ndims[0] != ndims[1]:
            return None
        return None if rows[1].batched and ndims[-1] < 2 else [x.array for x in rows]
    ndim = max([len(x._data.shape) for x in rows]) if op.pointwise else -1
    if any(n != ndim for n in ndims):
        return None
    return [x.array if type(x) is Row else x for x in inputs]


def _data(value: Any) -> Any:
    return value._data if type(value) is Row else value


def _lanes(value: Any) -> Any:
    if type(value) is not Row:
        return value
    return BatchedValue(Tensor(value.array)) if value.batched else Tensor(value.array)


class BatchedValues(ArrayValues):
    """Gradients as arrays with a leading batch dimension of ``rows``."""

    F: Any = ArrayValues.F

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
        rows = mapped(lambda g: None if g is None else Row(g, True), grad)
        shared = [mapped(_shared, x) if isinstance(x, list) else _shared(x) for x in saved]
        self.values.F = functions
        try:
            super()._send_results(node, rows, shared)
        finally:
            del self.values.F

    def send(self, target: Any, output_nr: int, grad: Any, may_mutate: bool) -> None:
        """Add all rows of a gradient to the pending one of ``target``."""
        if type(grad) is Row:
            array, may_mutate = grad.array, False
            grad = array if grad.batched else np.broadcast_to(array, (self.values.rows, *array.shape))
        super().send(target, output_nr, grad, may_mutate)


def _shared(value: Any) -> Any:
    return Row(value, False) if isinstance(value, np.ndarray) else value
