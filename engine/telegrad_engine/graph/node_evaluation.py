"""Evaluates a node step by step, for node hooks, packed tensors and anomaly mode.

The pass evaluates most nodes with ``_Pass._evaluate``. The slower path here runs the prehooks, computes all
derivatives, reduces and casts them to match their targets, runs the hooks, and only then sends the results on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..errors import GraphFreed
from .hooks import NodeHooks, run_after, run_before
from .node import FREED, FREED_TEXT, AccumulateGrad, Node, free, modified_since

Grads = tuple[Any, ...]


class Pass(Protocol):
    """The pass that evaluates a node (``backward_pass._Pass``)."""

    values: Any
    needed: set[Any] | None
    keep_graph: bool
    accumulate: Callable[[Any, Any, bool], None]

    def send(self, target: Any, output_nr: int, grad: Any, may_mutate: bool) -> None:
        """Add a gradient to the pending gradient of ``target``."""

    def inspect(self, node: Node, results: Sequence[Any]) -> None:
        """Inspect the gradients that the derivatives of ``node`` returned."""


def evaluate(run: Pass, node: Node, grad: Any) -> None:
    """Evaluate ``node`` for the gradient or gradients of its outputs, and send the results to its next edges."""
    hooks: NodeHooks = node.hooks or NodeHooks()
    grads: Grads = tuple(grad) if node.many else (grad,)
    if hooks.before is not None:
        grads = _hooked(run, lambda given: run_before(hooks, given), grads)
    reached = any(g is not None for g in grads) or node.evaluate is not None
    found = results(run, node, grads) if reached else (None,) * len(node.next_edges)
    run.inspect(node, found)
    if hooks.after is not None:
        given = _shown(run, grads)
        found = _hooked(run, lambda found: run_after(hooks, found, given), found)
    send_on(run, node, found)


def send_on(run: Pass, node: Node, found: Sequence[Any]) -> None:
    """Send the gradients ``found``, one per edge of ``node``, to their targets."""
    for edge, target in enumerate(node.next_edges):
        if target is not None:
            run.send(target, _output_nr(node, edge), found[edge], False)


def accumulate(run: Pass, node: AccumulateGrad, grad: Any) -> None:
    """Accumulate a leaf's gradient, with the hooks of its node before and after."""
    hooks = node.hooks or NodeHooks()
    grads: Grads = (grad,)
    if hooks.before is not None:
        grads = _hooked(run, lambda given: run_before(hooks, given), grads)
    if grads[0] is None:
        return
    run.accumulate(node.leaf, grads[0], False)
    if hooks.after is not None:
        given = _shown(run, grads)
        _hooked(run, lambda results: run_after(hooks, results, given), ())


def end(values: Any, node: Node, output_nr: int, grad: Any) -> None:
    """Run the hooks of a node where ``backward(inputs=…)`` ends. As in torch, they run without any derivatives."""
    given = [None] * node.width
    with values.calling():
        given[output_nr] = values.to_tensor(grad)
        run_after(node.hooks, (None,) * len(node.next_edges), run_before(node.hooks, tuple(given)))


def wants(run: Pass, target: Any) -> bool:
    """Whether the pass needs a gradient at ``target``."""
    return target is not None and (run.needed is None or target in run.needed)


def _output_nr(node: Node, edge: int) -> int:
    return node.output_nrs[edge] if node.output_nrs else 0


def _hooked(run: Pass, call: Callable[[Grads], Grads], grads: Grads) -> Grads:
    """Return the gradients after the hooks, which take them as tensors."""
    with run.values.calling():
        replaced = call(_shown(run, grads))
    return tuple(None if tensor is None else run.values.from_tensor(tensor) for tensor in replaced)


def _shown(run: Pass, grads: Grads) -> Grads:
    return tuple(None if grad is None else run.values.to_tensor(grad) for grad in grads)


def results(run: Pass, node: Node, grads: Grads) -> Grads:
    """The gradient at each edge, with its target's shape and dtype; None if it is not wanted."""
    if node.evaluate is not None:
        collector = Collector(run)
        node.evaluate(collector, grads)
        found = collector.results
    else:
        found = _derivatives(run, node, grads)
    return fitted(run, node, found)


def fitted(run: Pass, node: Node, found: Sequence[Any]) -> Grads:
    """Sum and cast the gradient at each edge to its target's shape and dtype."""
    return tuple(_fitted(run, node, edge, grad) for edge, grad in enumerate(found))


def _fitted(run: Pass, node: Node, edge: int, grad: Any) -> Any:
    if grad is None or node.next_edges[edge] is None:
        return None
    shape, dtype = spec_at(node, edge)
    data = run.values.data(grad)
    return grad if data.shape == shape and data.dtype == dtype else run.values.unbroadcast(grad, shape, dtype)


def spec_at(node: Node, edge: int) -> tuple[Any, Any]:
    """The shape and dtype of the gradient that belongs at an edge."""
    target, output_nr = node.next_edges[edge], _output_nr(node, edge)
    if target is None:
        return (), None
    return (target.shape, target.dtype) if not output_nr else target.specs[output_nr]


def _derivatives(run: Pass, node: Node, grads: Grads) -> list[Any]:
    """Evaluate the node's derivative rules; return one gradient per edge."""
    if node.saved is FREED:
        raise GraphFreed(FREED_TEXT)
    if any(cell[0] != version for _, cell, version in node.versions):
        raise modified_since(node)
    saved = saved_values(run.values, node)
    found: list[Any] = [None] * len(node.next_edges)
    for edges, rule, arguments, many in node.plan.steps:
        if any(wants(run, node.next_edges[edge]) for edge in edges):
            result = rule(run.values.F, grads if node.many else grads[0], *[saved[i] for i in arguments])
            for edge, grad in zip(edges, result if many else (result,), strict=True):
                found[edge] = grad if wants(run, node.next_edges[edge]) else None
    if node.plan.holds_tensors and not run.keep_graph:
        free(node)
    return found


def saved_values(values: Any, node: Node) -> Any:
    """The node's saved values in the form that the rules take, unpacked if hooks packed them."""
    packed = node.saved
    if node.hooks is not None and node.hooks.packed:
        node.saved = tuple(_unpacked(value) for value in packed)
    try:
        return node.saved if values.raw else values.unpack(node)
    finally:
        node.saved = packed


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpacked(v) for v in value]
    return value.unpack() if hasattr(value, "unpack") else value


class Collector:
    """A stand-in for the pass that collects the gradients sent by a node with its own ``evaluate``, in edge order."""

    def __init__(self, run: Pass) -> None:
        self.values, self.needed, self.keep_graph = run.values, run.needed, run.keep_graph
        self.results: list[Any] = []

    def send(self, target: Any, output_nr: int, grad: Any, may_mutate: bool) -> None:
        """Append the gradient of the next edge."""
        self.results.append(grad)

    def _done(self, target: Any) -> None:
        self.results.append(None)
