"""A backward pass step by step, which changes nothing: it stores no gradients, frees nothing and runs no hooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from ..autograd.checkpoint import WholePassNode
from ..autograd.client_evaluation import ClientNode
from ..cancellation import check_cancelled
from ..graph import node_evaluation
from ..graph.differentiation import Derivation
from ..schema.parameters import encode_number
from .record import Names, node_id
from .statistics import Summary, merged, number_of, sample_of, summary_of

MAX_STEPS = 2000
SAMPLE = 10**5
"""The most elements of a gradient that its norm and extremes are computed from."""
NEVER_RUN = ClientNode, WholePassNode
"""Nodes that no gradient flows through here: the client has their backward, or it stores gradients."""


def trace_pass(tensors: Mapping[str, Any], tensor: Any, gradient: Any, most: int = MAX_STEPS) -> dict[str, Any]:
    """The steps of a backward pass from a tensor as JSON data, at most ``most``.

    ``gradient`` is a tensor of its shape; None for a tensor of one element. Raises the errors of ``backward``.
    """
    derivation = Derivation.of_backward([tensor], [gradient], True, False, None)
    values = derivation.values
    with values:
        found = _traced(values.Pass)(derivation.roots, values, True, None, values.accumulate)
        found.begin_trace(tensors, most)
        found.run()
    return {"steps": found.steps, "leaves": found.leaves, "truncated": found.truncated}


@cache
def _traced(kind: Any) -> Any:
    """A subclass of the pass class ``kind`` that records its steps."""

    class Traced(kind):  # type: ignore[misc]
        def begin_trace(self, tensors: Mapping[str, Any], most: int) -> None:
            self.steps: list[dict[str, Any]] = []
            self.leaves: list[dict[str, Any]] = []
            self.truncated = False
            self._targets: list[dict[str, Any]] = []
            """What the current node has sent so far."""
            self._most = most
            self._ids = _leaf_ids(self.order, Names(tensors))

        def run(self) -> None:
            for target, output_nr, grad in self.roots:
                self.send(target, output_nr, grad, may_mutate=False)
            for node in self.order:
                check_cancelled()
                if len(self.steps) >= self._most:
                    self.truncated = True
                    return
                self.visit(node, self.pending.pop(node, None))
            self.finish()

        def visit(self, node: Any, grad: Any) -> None:
            if grad is None or isinstance(node, NEVER_RUN):
                for target in node.next_edges:
                    self._done(target)
                if grad is None:
                    return
            self._targets = []
            if not isinstance(node, NEVER_RUN):
                self._evaluate_without_hooks(node, grad)
            number = None if node.many else _number(grad)
            summary = {**_summary(grad, node.many).data(), "number": number}
            self.steps.append({"node": node_id(node.sequence), "grad": summary, "targets": self._targets})

        def _evaluate_without_hooks(self, node: Any, grad: Any) -> None:
            if node.hooks is None or not node.hooks.packed:
                self._evaluate(node, grad)
                return
            results = _result_of(self.results(node, tuple(grad) if node.many else (grad,)))
            for edge, target in enumerate(node.next_edges):
                if target is not None:
                    self.send(target, node_evaluation.output_nr_at(node, edge), results[edge], False)

        def send(self, target: Any, output_nr: int, grad: Any, may_mutate: bool) -> None:
            if grad is not None and target is not None:
                shape, dtype = (target.shape, target.dtype) if not output_nr else target.specs[output_nr]
                if grad.shape != shape or grad.dtype != dtype:
                    grad = self.values.unbroadcast(grad, shape, dtype)
                self._targets.append({"node": self._id_of(target), "norm": _norm(grad), "number": _number(grad)})
            super().send(target, output_nr, grad, may_mutate)

        def _complete(self, target: Any) -> None:
            grad = self.pending.pop(target)
            self.leaves.append({"id": self._id_of(target), "norm": _norm(grad), "number": _number(grad)})

        def _id_of(self, target: Any) -> str:
            return node_id(target.sequence) if target.leaf is None else self._ids[target.leaf]

    return Traced


def _result_of(steps: Any) -> Sequence[Any]:
    """The result of the steps of an evaluation, none of which waits."""
    try:
        while True:
            next(steps)
    except StopIteration as stop:
        found: Sequence[Any] = stop.value
        return found


def _norm(grad: Any) -> float | str:
    """The norm of a gradient as JSON data."""
    return encode_number(sample_of(grad, SAMPLE).norm())  # type: ignore[no-any-return]


def _number(grad: Any) -> float | str | None:
    """A gradient of one element as JSON data; None for any other."""
    return encode_number(number_of(grad)) if grad.size == 1 else None


def _summary(grad: Any, many: bool) -> Summary:
    """The summary of the gradients of a node's outputs."""
    return merged([summary_of(sample_of(part, SAMPLE)) for part in (grad if many else [grad]) if part is not None])


def _leaf_ids(order: Sequence[Any], names: Names) -> dict[Any, str]:
    """The ids of the leaves of a graph, whose nodes are in this order, newest first."""
    ids: dict[Any, str] = {}
    for node in reversed(order):
        number = 0
        for target in node.next_edges:
            if target is None or target.leaf is None or target.leaf in ids:
                continue
            named = names.ids.get(target.leaf)
            ids[target.leaf] = f"t:{named[0]}" if named else f"l{node.sequence}_{number}"
            number += 1
    return ids
