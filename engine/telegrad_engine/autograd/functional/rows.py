"""The backward pass on gradients with a leading dimension of rows, which saved values do not have.

A node's derivative handles the rows in one of three ways:

- *as it is*: the rules of pointwise ops and some others accept additional leading dimensions;
- *lifted*: for ops along dimensions, a batch of calls is one call with dimension numbers shifted by one, so the rule
  gets the arguments of that call;
- *row by row*: any other rule is called once for each row, which is always correct and still shares the rest of the
  pass.

The tests compare the first two with the third for every case of every op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import GraphFreed
from ...graph.backward_pass import _Pass
from ...graph.node import FREED, FREED_TEXT, Node, free, modified_since
from ...graph.node_evaluation import Collector
from ...schema.derivative_plan import Step
from ...tensor.eager import ARRAYS, Tensor
from ...tensor.gradient_values import ArrayValues

Batch = Any
"""An array of gradients: (rows, *shape)."""

AS_IS = frozenset({"addmm", "bmm", "cast", "clone", "masked_fill.input", "matmul", "mm", "linear.input"})
"""Ops, or inputs of ops, whose rules accept additional leading dimensions of the gradient."""

ALONG_DIMS = frozenset({
    "amax", "amin", "cat", "cumsum", "expand", "flip", "getitem", "getitem_scatter", "log_softmax", "logsumexp", "mean",
    "narrow", "permute", "prod.dim", "reshape", "select", "softmax", "squeeze", "stack", "std", "sum", "transpose",
    "unsqueeze", "var", "view",
})  # fmt: skip
"""Ops for which a batch of calls is one call with dimension numbers shifted by one."""

WHOLE = ("slice", None, None, None)


class BatchedValues(ArrayValues):
    """Gradients as arrays with a leading batch dimension of ``rows``."""

    batched = True

    def __init__(self, rows: int) -> None:
        super().__init__(Tensor)
        self.rows = rows

    @property
    def Pass(self) -> type[_Pass]:
        """The class of the pass to run."""
        return BatchedPass

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

    def _evaluate(self, node: Node, grad: Any) -> None:
        if node.evaluate is not None:
            self._evaluate_rows(node, grad)
            return
        if node.saved is FREED:
            raise GraphFreed(FREED_TEXT)
        if any(cell[0] != version for _, cell, version in node.versions):
            raise modified_since(node)
        for step in node.plan.steps:
            edges = [e for e in step.edges if self._is_wanted(node.next_edges[e])]
            if edges:
                results = self._derivative(node, step, grad)
                for edge in edges:
                    result = results[step.edges.index(edge)]
                    self.send(node.next_edges[edge], node.output_nrs[edge] if node.output_nrs else 0, result, False)
        if node.plan.holds_tensors and not self.keep_graph:
            free(node)

    def _evaluate_rows(self, node: Node, grad: Any) -> None:
        """Run a Function's backward once for each row, because the user's code expects gradients of a single row."""
        rows = self.values.rows
        found: list[list[Any]] = []
        for row in range(rows):
            collector = Collector(self)
            collector.values, collector.keep_graph = ARRAYS, self.keep_graph or row < rows - 1
            node.evaluate(collector, _row(grad, row))
            found.append(collector.results)
        for edge, results in enumerate(zip(*found, strict=True)):
            self.send(node.next_edges[edge], node.output_nrs[edge] if node.output_nrs else 0, _stacked(results), False)

    def _is_wanted(self, target: Any) -> bool:
        return target is not None and (self.needed is None or target in self.needed)

    def _derivative(self, node: Node, step: Step, grad: Any) -> Sequence[Batch | None]:
        """Return the step's gradient for each of its edges, for all rows."""
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
    """Whether the rule accepts the leading dimension of rows as it is."""
    op = node.op
    if op.pointwise:
        return all(node.plan.saves[i].source in ("input", "output", "attr") for i in step.arguments)
    if op.key == "matmul":
        return node.shape != ()  # a product of two vectors multiplies whole gradients
    parameter = op.tensor_params[step.edges[0]].name if len(step.edges) == 1 and not op.has_lists else ""
    return op.key in AS_IS or f"{op.key}.{parameter}" in AS_IS


def _lifted(node: Node, step: Step, rows: int) -> list[Any] | None:
    """Return the values that a call on the batch would have saved; None if there is no such call."""
    ndim = _ndim(node)
    lifted = []
    for i in step.arguments:
        (source, key), value = node.plan.saves[i], node.saved[i]
        if source in ("input", "output"):
            value = np.broadcast_to(value, (rows, *value.shape)) if hasattr(value, "shape") else value
        elif source == "shape":
            if (0,) in value:
                return None  # cat skips an empty vector, but would not skip a batch of them
            value = _lifted_shape(node, value, rows)
        elif key in ("dim", "dims", "dim0", "dim1"):
            if not ndim:
                return None  # dimension 0 of a 0-dim tensor would be the batch
            value = _shifted(value, ndim)
            if node.op.key == "permute":
                value = (0, *value)
        elif key == "index" and node.op.key.startswith("getitem"):
            value = (WHOLE, *value)
        lifted.append(value)
    return lifted


def _lifted_shape(node: Node, shape: Any, rows: int) -> Any:
    if shape and isinstance(shape[0], tuple):  # the shapes of a list of tensors
        return tuple((rows, *s) for s in shape)
    if node.op.key == "expand":  # new dimensions come between the batch's and the old ones
        return (rows, *(1,) * (len(node.shape) - len(shape)), *shape)
    return (rows, *shape)


def _ndim(node: Node) -> int:
    """Return the number of dimensions to which ``dim`` refers: the first input's, or else the result's."""
    if not node.op.has_lists:
        for (source, key), value in zip(node.plan.saves, node.saved, strict=True):
            if key == 0 and source == "shape":
                return len(value)
            if key == 0 and source == "input":
                return int(value.ndim)
    return len(node.shape)


def _shifted(dim: Any, ndim: int) -> Any:
    """Convert dimension numbers of one call to those of a batch; an empty list means all of them."""
    if isinstance(dim, int):
        return dim % ndim + 1
    return tuple(range(1, ndim + 1)) if not dim else tuple(d % ndim + 1 for d in dim)


def _row(grad: Any, index: int) -> Any:
    if isinstance(grad, (list, tuple)):
        return tuple(None if g is None else g[index] for g in grad)
    return grad[index]


def _stacked(rows: Sequence[Any]) -> Batch | None:
    return None if rows[0] is None else np.stack(rows)
