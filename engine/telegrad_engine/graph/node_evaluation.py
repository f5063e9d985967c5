"""Evaluates a node step by step, for hooks, packed tensors and anomaly mode.

The pass evaluates most nodes with ``_Pass._evaluate``. The slower path here runs the hooks of the outputs and the
prehooks, computes all derivatives, reduces and casts them to match their targets, runs the hooks, and only then sends
the results on. At a leaf, the gradient is accumulated in place of the derivatives. The steps are generators: a pass
that can stop (autograd/client_evaluation) waits where they yield.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from ..errors import GraphFreed
from .hooks import Hooks, NodeHooks, TensorHooks, run_around
from .node import FREED, FREED_TEXT, Node, free, modified_since

Grads = tuple[Any, ...]
Steps = Generator[Any, None, Any]
"""The steps of an evaluation. They yield the stops of a pass that can stop, and nothing in others."""
Pass = Any
"""The pass that evaluates a node, a ``backward_pass._Pass``."""
NO_HOOKS = NodeHooks()


def hooked(run: Pass, node: Node, grad: Any) -> Steps:
    """Run the hooks of a node's outputs, and evaluate the node unless the pass ends there."""
    hooks: NodeHooks = node.hooks
    # As in torch, hooks change the captured gradient only if the pass ends at this node.
    goes_on = node not in run.ends
    if run.wanted is not None and goes_on:
        run.capture(node, grad)
    grads = list(grad) if node.many else [grad]
    for output_nr, own in sorted(hooks.items()):
        grads[output_nr] = yield from _tensor_hooks(run, node, own, grads[output_nr])
    grad = grads if node.many else grads[0]
    if not goes_on:
        run.capture(node, grad)
        run._skip(node)
    elif hooks.surround:
        yield from evaluate(run, node, tuple(grads), hooks)
    else:
        run._evaluate(node, grad)
    run.may_mutate.discard(node)


def evaluate(run: Pass, node: Node, grads: Grads, hooks: NodeHooks = NO_HOOKS) -> Steps:
    """Evaluate ``node`` for the gradients of its outputs, and send the results to its next edges."""
    grads = yield from _hooks_around(run, node, hooks.before, grads)
    found: Grads = (None,) * len(node.next_edges)
    if node.evaluate is not None or any(g is not None for g in grads):
        found = yield from run.results(node, grads)
    with run.explaining(node):
        run.inspect(node, found)
    found = yield from _hooks_around(run, node, hooks.after, found, grads)
    for edge, target in enumerate(node.next_edges):
        if target is not None:
            run.send(target, output_nr_at(node, edge), found[edge], False)


def complete(run: Pass, target: Node, grad: Any) -> Steps:
    """Capture or accumulate the gradient of a leaf with hooks."""
    hooks: TensorHooks = target.leaf._hooks
    around = hooks.around or NO_HOOKS
    grad = yield from _tensor_hooks(run, target, hooks, grad)
    if run.wanted is not None:
        if (target, 0) not in run.wanted:
            return
        if not run.stores:
            run.captured[target, 0] = grad
            return
    grads = yield from _hooks_around(run, target, around.before, (grad,))
    if grads[0] is not None:
        run.accumulate(target.leaf, grads[0], False)
        if run.due is not None:
            yield from run.wait(hooks.stored, ())
        yield from _hooks_around(run, target, around.after, (), grads)


def _tensor_hooks(run: Pass, node: Node, hooks: TensorHooks, grad: Any) -> Steps:
    if run.due is not None:
        hooks, (grad,) = yield from run.wait(hooks, (grad,))
    with run.explaining(node):
        return run.values.run_hooks(hooks, grad)


def _hooks_around(run: Pass, node: Node, hooks: Hooks | None, grads: Grads, *outer: Grads) -> Steps:
    """Run a node's prehooks or hooks, as :func:`.hooks.run_around` does, with tensors for the gradients."""
    if hooks is not None and run.due is not None:
        hooks, grads = yield from run.wait(hooks, grads, *outer)
    if not len(hooks or ()):
        return grads
    with run.explaining(node), run.values.calling():
        left = run_around(hooks, *[_as_tensors(run, each) for each in (grads, *outer)])
        return tuple([None if tensor is None else run.values.from_tensor(tensor) for tensor in left])


def end(values: Any, node: Node, output_nr: int, grad: Any) -> None:
    """Run the hooks of a node where ``backward(inputs=…)`` ends. As in torch, they run without any derivatives."""
    given = [None] * node.width
    with values.calling():
        given[output_nr] = values.to_tensor(grad)
        grads = run_around(node.hooks.before, tuple(given))
        run_around(node.hooks.after, (None,) * len(node.next_edges), grads)


def wants(run: Pass, target: Any) -> bool:
    """Whether the pass needs a gradient at ``target``."""
    return target is not None and (run.needed is None or target in run.needed)


def output_nr_at(node: Node, edge: int) -> int:
    """The number of the output that the gradient at an edge is for, among those of the edge's target."""
    return node.output_nrs[edge] if node.output_nrs else 0


def _as_tensors(run: Pass, grads: Grads) -> Grads:
    return tuple([None if grad is None else run.values.to_tensor(grad) for grad in grads])


def results(run: Pass, node: Node, grads: Grads) -> Steps:
    """Return the gradient at each edge, with its target's shape and dtype; None if it is not wanted."""
    if node.evaluate is None:
        with run.explaining(node):
            found = _derivatives(run, node, grads)
    else:
        collector = Collector(run)
        with run.explaining(node):
            node.evaluate(collector, grads)
        for steps in collector.due or ():
            yield from steps
        found = collector.results
    return tuple([_fitted(run, node, edge, grad) for edge, grad in enumerate(found)])


def _fitted(run: Pass, node: Node, edge: int, grad: Any) -> Any:
    if grad is None or node.next_edges[edge] is None:
        return None
    shape, dtype = spec_at(node, edge)
    data = run.values.data(grad)
    return grad if data.shape == shape and data.dtype == dtype else run.values.unbroadcast(grad, shape, dtype)


def spec_at(node: Node, edge: int) -> tuple[Any, Any]:
    """The shape and dtype of the gradient that belongs at an edge."""
    target, output_nr = node.next_edges[edge], output_nr_at(node, edge)
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
    return value.unpack()._data if hasattr(value, "unpack") else value


class Collector:
    """A stand-in for the pass that collects the gradients sent by a node with its own ``evaluate``, in edge order."""

    def __init__(self, run: Pass) -> None:
        self.values, self.needed, self.keep_graph = run.values, run.needed, run.keep_graph
        self.results: list[Any] = []
        self.due: list[Steps] | None = None if run.due is None else []

    def send(self, target: Any, output_nr: int, grad: Any, may_mutate: bool) -> None:
        """Append the gradient of the next edge."""
        self.results.append(grad)

    def _done(self, target: Any) -> None:
        self.results.append(None)
