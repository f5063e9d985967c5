"""Many gradients of one graph in one pass: the rows of a Jacobian, ``grad(…, is_grads_batched=True)``.

Gradients carry the batch in a leading dimension of their own. What a node's derivative makes of it is one of:

- *as it is*: the rule of a pointwise op, and some others, treats leading dimensions it does not know alike;
- *lifted*: for ops along dimensions, a batch of calls is one call with its dimensions counted one further, and
  a rule is right for any call; so it is given the arguments of that call;
- *row by row*: any other rule is called once a row, which is always right, and still saves the rest of the pass.

The tests hold the first two against the third, for every case of every op.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import autograd
from .backward import FREED_TEXT, _Pass, free, modified_since, run
from .errors import GradRequired, GraphFreed, IndexOutOfRange, InvalidValue, ShapeMismatch
from .functions import Functions
from .graph import FREED, Node, walk
from .modes import state
from .plans import Step
from .specs import Size
from .stepwise import Collector
from .tensor import Tensor
from .values import ARRAYS, ArrayValues

Batch = Any
"""An array of gradients: (rows, *shape)."""

AS_IS = frozenset({"addmm", "bmm", "cast", "clone", "masked_fill.input", "matmul", "mm", "linear.input"})
"""Ops, or ops and an input, whose rules leave leading dimensions of the gradient alone."""

ALONG_DIMS = frozenset({
    "amax", "amin", "cat", "cumsum", "expand", "flip", "getitem", "getitem_scatter", "log_softmax", "logsumexp", "mean",
    "narrow", "permute", "prod.dim", "reshape", "select", "softmax", "squeeze", "stack", "std", "sum", "transpose",
    "unsqueeze", "var", "view",
})  # fmt: skip
"""Ops of which a batch of calls is one call, its dimensions counted one further."""

ELEMENTS = 2**18
"""Elements that a batch of the largest array in the graph may have: more leave the cache, and gain nothing."""

WHOLE = ("slice", None, None, None)


class BatchedValues(ArrayValues):
    """Gradients as arrays with a leading batch dimension of ``rows``."""

    batched = True

    def __init__(self, rows: int) -> None:
        self.rows = rows

    @property
    def Pass(self) -> type[_Pass]:
        """The kind of pass to run."""
        return BatchedPass

    def fit(self, grad: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        """The rows summed and cast to a shape and dtype that they were broadcast or promoted from."""
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

    def _evaluate(self, node: Node, grad: Any) -> None:
        if node.evaluate is not None:
            self._evaluate_rows(node, grad)
            return
        if node.saved is FREED:
            raise GraphFreed(FREED_TEXT)
        if any(cell[0] != version for _, cell, version in node.versions):
            raise modified_since(node)
        for step in node.plan.steps:
            edges = [e for e in step.edges if self._is_wanted(node.next[e])]
            if edges:
                results = self._derivative(node, step, grad)
                for edge in edges:
                    result = results[step.edges.index(edge)]
                    self.send(node.next[edge], node.slots[edge] if node.slots else 0, result, False)
        if node.plan.holds_tensors and not self.keep_graph:
            free(node)

    def _evaluate_rows(self, node: Node, grad: Any) -> None:
        """Have a Function run its backward, a row at a time: it is the user's, and knows of no rows."""
        rows = self.values.rows
        found: list[list[Any]] = []
        for row in range(rows):
            collector = Collector(self)
            collector.values, collector.keep_graph = ARRAYS, self.keep_graph or row < rows - 1
            node.evaluate(collector, _row(grad, row))
            found.append(collector.results)
        for edge, results in enumerate(zip(*found, strict=True)):
            self.send(node.next[edge], node.slots[edge] if node.slots else 0, _stacked(results), False)

    def _is_wanted(self, target: Any) -> bool:
        return target is not None and (self.needed is None or target in self.needed)

    def _derivative(self, node: Node, step: Step, grad: Any) -> Sequence[Batch | None]:
        """What the step gives each of its edges, for all rows."""
        rule: Callable[..., Any] = step.rule
        rows = self.values.rows
        saved: list[Any] | None = None
        if node.many:
            pass
        elif _takes_rows(node, step):
            saved = [node.saved[i] for i in step.arguments]
        elif node.op.key in ALONG_DIMS:
            saved = _lifted(node, step, rows)
        if saved is not None:
            result = rule(self.values.F, grad, *saved)
            return result if step.many else [result]
        saved = [node.saved[i] for i in step.arguments]
        results = [rule(self.values.F, _row(grad, i), *saved) for i in range(rows)]
        if not step.many:
            return [_stacked(results)]
        return [_stacked(of_edge) for of_edge in zip(*results, strict=True)]


def _takes_rows(node: Node, step: Step) -> bool:
    """Whether the rule treats rows alike as it stands."""
    op = node.op
    if op.pointwise:
        return all(node.plan.saves[i].source in ("input", "output", "attr") for i in step.arguments)
    if op.key == "matmul":
        return node.shape != ()  # a product of two vectors multiplies whole gradients
    parameter = op.tensor_params[step.edges[0]].name if len(step.edges) == 1 and not op.has_lists else ""
    return op.key in AS_IS or f"{op.key}.{parameter}" in AS_IS


def _lifted(node: Node, step: Step, rows: int) -> list[Any] | None:
    """The saved values as the call on a batch would have saved them; None where there is no such call."""
    ndim = _ndim(node)
    lifted = []
    for i in step.arguments:
        (source, key), value = node.plan.saves[i], node.saved[i]
        if source in ("input", "output"):
            value = np.broadcast_to(value, (rows, *value.shape)) if hasattr(value, "shape") else value
        elif source == "shape":
            value = _lifted_shape(node, value, rows)
        elif key in ("dim", "dims", "dim0", "dim1"):
            if not ndim:
                return None  # dimension 0 of a number: of the batch, it would be the rows
            value = _shifted(value, ndim)
            if node.op.key == "permute":
                value = (0, *value)
        elif key == "index" and node.op.key.startswith("getitem"):
            value = (WHOLE, *value)
        lifted.append(value)
    return lifted


def _lifted_shape(node: Node, shape: Any, rows: int) -> Any:
    if shape and isinstance(shape[0], tuple):  # of each tensor in a list
        return tuple((rows, *s) for s in shape)
    if node.op.key == "expand":  # new dimensions come between the batch's and the old ones
        return (rows, *(1,) * (len(node.shape) - len(shape)), *shape)
    return (rows, *shape)


def _ndim(node: Node) -> int:
    """Dimensions of what the op's ``dim`` counts in: its first input, or its result where that was not saved."""
    if not node.op.has_lists:
        for (source, key), value in zip(node.plan.saves, node.saved, strict=True):
            if key == 0 and source == "shape":
                return len(value)
            if key == 0 and source == "input":
                return int(value.ndim)
    return len(node.shape)


def _shifted(dim: Any, ndim: int) -> Any:
    """Dimensions of one call as those of a batch; none given means all of them."""
    if isinstance(dim, int):
        return dim % ndim + 1
    return tuple(range(1, ndim + 1)) if not dim else tuple(d % ndim + 1 for d in dim)


def _row(grad: Any, index: int) -> Any:
    if isinstance(grad, (list, tuple)):
        return tuple(None if g is None else g[index] for g in grad)
    return grad[index]


def _stacked(rows: Sequence[Any]) -> Batch | None:
    return None if rows[0] is None else np.stack(rows)


# What callers use ------------------------------------------------------------------------------------------


def grad(
    outputs: Sequence[Any],
    inputs: Sequence[Any],
    grad_outputs: Sequence[Any],
    retain_graph: bool | None,
    create_graph: bool,
    allow_unused: bool | None,
    materialize_grads: bool,
) -> tuple[Any, ...]:
    """``autograd.grad`` for gradients of the outputs with a leading dimension of rows, as are the results.

    Raises torch's errors where that dimension is missing or differs between them.
    """
    count = _check_rows(outputs, grad_outputs)
    keep = create_graph if retain_graph is None else retain_graph
    if create_graph or not _serves(outputs, inputs):
        results = _one_by_one(outputs, inputs, grad_outputs, count, keep, create_graph)
    else:
        results = _in_batches(outputs, inputs, [g._data for g in grad_outputs], count, keep)
    for index, (tensor, result) in enumerate(zip(inputs, results, strict=True)):
        if result is None and materialize_grads:
            results[index] = tensor._zeros_like().requires_grad_(create_graph)
        elif result is None and not allow_unused:
            raise autograd.unused(index)
    return tuple(results)


def rows(output: Any, inputs: Sequence[Any]) -> list[Any] | None:
    """For each input, the gradients of each element of ``output``: (elements, *input.shape), or None if unused.

    The graph is kept. None where rows must be computed one by one.
    """
    if not _serves([output], inputs):
        return None
    count = output.numel()
    seeds = np.eye(count, dtype=output._data.dtype).reshape(count, *output._data.shape)
    return _in_batches([output], inputs, [seeds], count, True)


def _serves(outputs: Sequence[Any], inputs: Sequence[Any]) -> bool:
    """Whether the batched pass gives what passes for each row would.

    It is for NumPy's arrays, and what looks into a pass (hooks, a Function's backward, anomaly mode) expects one
    row.
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


def _check_rows(outputs: Sequence[Any], grad_outputs: Sequence[Any]) -> int:
    """The number of rows that all gradients have."""
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
                f"output, but a mismatch was detected: grad_output[{index}] has a shape of {Size(gradient.shape[2:])} "
                f"and output[{index}] has a shape of {output.shape}. If you only want some tensors in `grad_output` "
                "to be considered batched, consider using vmap."
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


def _one_by_one(
    outputs: Sequence[Any], inputs: Sequence[Any], seeds: Sequence[Any], count: int, keep: bool, create_graph: bool
) -> list[Any]:
    """The rows by a pass each."""
    found = [
        autograd.grad(outputs, inputs, [s[i] for s in seeds], keep or i + 1 < count, create_graph, allow_unused=True)
        for i in range(count)
    ]
    stack = Functions(type(outputs[0])._apply).stack
    return [None if row[0] is None else stack(list(row)) for row in zip(*found, strict=True)]


def _in_batches(
    outputs: Sequence[Any], inputs: Sequence[Any], seeds: Sequence[Any], count: int, keep: bool
) -> list[Any]:
    """The rows as tensors, computed as many at a time as there is room for in the cache."""
    places = [autograd.place(t) for t in outputs]
    wanted = [autograd.place(t) for t in inputs]
    size = max(1, min(count, ELEMENTS // _largest(outputs)))
    parts: list[list[Any]] = [[] for _ in inputs]
    for start in range(0, count, size):
        some = min(size, count - start)
        values = BatchedValues(some)
        roots = [(*place, seed[start : start + some]) for place, seed in zip(places, seeds, strict=True)]
        captured = run(
            roots, values, keep_graph=keep or start + some < count, wanted=wanted, accumulate=values.accumulate
        )
        for part, place in zip(parts, wanted, strict=True):
            part.append(captured.get(place))
    return [None if part[0] is None else Tensor(_whole(part)) for part in parts]


def _largest(outputs: Sequence[Any]) -> int:
    """Elements of the largest result in the graph."""
    return max([1, *(math.prod(node.shape) for node in _nodes(outputs))])


def _whole(parts: list[Any]) -> Any:
    """The rows of all batches, in memory that nobody else writes to."""
    return np.array(parts[0]) if len(parts) == 1 else np.concatenate(parts)
