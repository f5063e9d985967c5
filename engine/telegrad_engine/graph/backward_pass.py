"""The backward pass.

Edges always lead from a newer node to an older one, so "newest first" is a topological order. The pass finds the
reachable nodes, sorts them by age and evaluates them, without recursion; only the edges into leaves are counted. This
is also torch's order, which hooks can observe.

Gradients are raw arrays. With ``create_graph`` they are tensors, and the same rules, applied to tensors, are recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from typing import Any

import numpy as np

from ..cancellation import check_cancelled, running
from ..context import no_grad, state
from ..errors import GraphFreed
from ..schema.memory_admission import LARGE, bytes_of, reserved
from . import node_evaluation
from .hooks import run_stored
from .node import FREED, FREED_TEXT, AccumulateGrad, Node, free, modified_since

Target = Any
"""Where a gradient goes, besides an output_nr: a Node, which for a leaf is its AccumulateGrad."""

BACKWARD = 1
"""The memory that a node's derivatives take, as a multiple of the gradient and the saved values."""
by_age = attrgetter("sequence")
ndarray, np_add = np.ndarray, np.add


class Values:
    """How the pass handles gradients: the namespace of the rules, and operations that differ for arrays and tensors."""

    F: Any
    raw: bool
    """Whether gradients are plain arrays, and rules take the saved values unchanged."""
    recording = False
    """Whether the operations of a Function's backward are recorded."""

    @property
    def Pass(self) -> type[_Pass]:
        """The class of the pass to run."""
        return _Pass

    def add(self, a: Any, b: Any, may_mutate: bool) -> Any:
        """The sum of two gradients, which may overwrite ``a`` if ``may_mutate``."""
        raise NotImplementedError

    def unbroadcast(self, grad: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        """Sum and cast a gradient to the shape and dtype from which it was broadcast or promoted."""
        raise NotImplementedError

    def unpack(self, node: Node) -> list[Any]:
        """The node's saved values in the form that the rules take."""
        return list(node.saved)

    def run_hooks(self, hooks: Any, grad: Any) -> Any:
        """Return the gradient after a tensor's hooks; ``grad`` is None if no gradient reached the output."""
        raise NotImplementedError

    def calling(self) -> AbstractContextManager[None]:
        """A context for calling hooks: their operations are recorded only under ``create_graph``."""
        return nullcontext() if self.recording else no_grad()

    def accumulate(self, tensor: Any, grad: Any, may_mutate: bool) -> None:
        """Accumulate a gradient into a leaf, unless the leaf stopped requiring grad; then call its hooks.

        ``may_mutate`` means that nothing else refers to the gradient.
        """
        if tensor._requires_grad:
            self.accumulate_into(tensor, grad, may_mutate)
        hooks = tensor._hooks
        if hooks is not None and hooks.stored is not None:
            with self.calling():
                run_stored(tensor, hooks.stored)

    def accumulate_into(self, tensor: Any, grad: Any, may_mutate: bool) -> None:
        """Add a gradient to ``tensor.grad``."""
        raise NotImplementedError

    def data(self, grad: Any) -> Any:
        """The object with the gradient's shape and dtype."""
        return grad

    def has_nan(self, grad: Any) -> bool:
        """Whether a gradient contains a NaN."""
        data = self.data(grad)
        return bool((data != data).any())

    def to_tensor(self, grad: Any) -> Any:
        """A gradient as a tensor, for hooks and for a Function's backward."""
        return grad

    def from_tensor(self, tensor: Any) -> Any:
        """A tensor returned by a hook or a Function's backward, as a gradient."""
        return tensor

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """The tensor that a Function's backward takes for an output that no gradient reached."""
        raise NotImplementedError


def run(
    roots: Sequence[tuple[Target, int, Any]],
    values: Values,
    *,
    keep_graph: bool,
    wanted: Sequence[tuple[Target, int]] | None,
    accumulate: Callable[[Any, Any, bool], None],
    stores: bool = False,
) -> dict[tuple[Target, int], Any]:
    """Push gradients from ``roots`` (target, output_nr, gradient) through the graph.

    If ``wanted`` is None, ``accumulate(leaf, gradient, may_mutate)`` is called for each leaf as soon as its gradient is
    complete. Otherwise only the paths to the wanted places are evaluated, and their gradients are returned; with
    ``stores``, those of leaves are accumulated. Saved tensors are freed as nodes are evaluated, unless ``keep_graph``.
    """
    values, accumulate = observed(values, accumulate)
    Pass = values.Pass
    if state.anomaly is not None:
        Pass = state.anomaly.watching(Pass)
    found = Pass(roots, values, keep_graph, wanted, accumulate)
    found.stores = stores
    return found.run()


def observed(values: Values, accumulate: Callable[[Any, Any, bool], None]) -> tuple[Any, Any]:
    """Return the ``Values`` and the ``accumulate`` function of a pass, as this thread's observer wants them."""
    return (values, accumulate) if state.observer is None else state.observer.backward(values, accumulate)


class _Pass:
    stores = False
    """Whether gradients of the wanted leaves are accumulated instead of captured."""
    due: Any = None
    """What is left to do before the next node, in a pass that can stop."""

    def __init__(
        self,
        roots: Sequence[tuple[Target, int, Any]],
        values: Values,
        keep_graph: bool,
        wanted: Sequence[tuple[Target, int]] | None,
        accumulate: Callable[[Any, Any, bool], None],
    ) -> None:
        self.values = values
        self.keep_graph = keep_graph
        self.accumulate = accumulate
        self.pending: dict[Any, Any] = {}
        self.may_mutate: set[Any] = set()
        self.captured: dict[tuple[Target, int], Any] = {}
        self.waiting: dict[Any, list[Any]] = {}
        """For each leaf, the number of edges that are still to bring a gradient, and its shape and dtype."""
        self.roots = roots
        self.order = self._discover([target for target, _, _ in roots])
        self.wanted = None if wanted is None else set(wanted)
        self.ends: set[Any] = set() if wanted is None else {target for target, _ in wanted if target.leaf is None}
        """The nodes whose gradients are wanted and that lead to no wanted place: their derivatives are not computed."""
        self.needed = None if wanted is None else self._needed()

    def _discover(self, targets: list[Target]) -> list[Node]:
        """Return the reachable nodes, newest first, and count the edges into each leaf in ``waiting``."""
        waiting = self.waiting
        order: list[Node] = []
        seen: set[Any] = set()
        for target in targets:
            if target.leaf is not None:
                self._wait_for(target)
            elif target not in seen:
                seen.add(target)
                order.append(target)
        for node in order:
            for target in node.next_edges:
                if target is None:
                    continue
                if target.leaf is not None:
                    if target in waiting:
                        waiting[target][0] += 1
                    else:
                        self._wait_for(target)
                elif target not in seen:
                    seen.add(target)
                    order.append(target)
        order.sort(key=by_age, reverse=True)
        return order

    def _wait_for(self, target: Target) -> None:
        """Count one more edge into a leaf."""
        data = target.leaf._data
        self.waiting.setdefault(target, [0, data.shape, data.dtype])[0] += 1

    def _needed(self) -> set[Any]:
        """The nodes and leaves on a path to a wanted place; removes from ``ends`` those that lead on."""
        assert self.wanted is not None
        needed: set[Any] = {target for target, _ in self.wanted}
        for node in reversed(self.order):
            if any(target in needed for target in node.next_edges if target is not None):
                needed.add(node)
                self.ends.discard(node)
        return needed

    def run(self) -> dict[tuple[Target, int], Any]:
        for target, output_nr, grad in self.roots:
            self.send(target, output_nr, grad, may_mutate=False)
        for node in self.order:
            check_cancelled()
            self.visit(node, self.pending.pop(node, None))
        self.finish()
        return self.captured

    def visit(self, node: Node, grad: Any) -> None:
        """Evaluate a node, or skip it if no gradient reached it or it leads to no wanted place."""
        if grad is None or (self.needed is not None and node not in self.needed):
            self._skip(node)
            return
        if node.hooks is not None:
            self._evaluate_hooked(node, grad)
            return
        if self.wanted is not None:
            self.capture(node, grad)
        if node in self.ends:
            self._skip(node)
        else:
            self._evaluate(node, grad)
        self.may_mutate.discard(node)

    def finish(self) -> None:
        """Complete the leaves that are still pending because some of their edges carried no gradient."""
        for target in [target for target in self.pending if target.leaf is not None]:
            self._complete(target)

    def _evaluate(self, node: Node, grad: Any) -> None:
        """Run the node's derivatives and send their results on."""
        if node.saved is FREED:
            raise GraphFreed(FREED_TEXT)
        for _, cell, version in node.versions:
            if cell[0] != version:
                raise modified_since(node)
        values, raw = self.values, self.values.raw
        if node.many:
            if node.evaluate is not None:
                node.evaluate(self, grad)
                return
            grad = tuple(grad)
        saved = node.saved if raw else values.unpack(node)
        if state.memory is None or not raw:
            self._send_results(node, grad, saved)
        else:
            with reserved(BACKWARD * bytes_of((grad, *node.saved))):
                self._send_results(node, grad, saved)
        if node.plan.holds_tensors and not self.keep_graph:
            free(node)

    def _send_results(self, node: Node, grad: Any, saved: Sequence[Any]) -> None:
        """Run the node's derivative rules and send their results on."""
        F, needed, targets, output_nrs = self.values.F, self.needed, node.next_edges, node.output_nrs
        for edges, rule, arguments, many in node.plan.steps:
            if many:
                if needed is None or any(targets[e] in needed for e in edges):
                    results = rule(F, grad, *[saved[i] for i in arguments])
                    for edge, result in zip(edges, results, strict=True):
                        if targets[edge] is not None:
                            self.send(targets[edge], output_nrs[edge] if output_nrs else 0, result, False)
                continue
            edge = edges[0]
            target = targets[edge]
            if needed is not None and target not in needed:
                self._done(target)
                continue
            result = rule(F, grad, *[saved[i] for i in arguments])
            self.send(target, output_nrs[edge] if output_nrs else 0, result, result is not grad)

    def send(self, target: Target, output_nr: int, grad: Any, may_mutate: bool) -> None:
        """Add a gradient to the pending one of ``target``; ``may_mutate`` if nothing else refers to the gradient."""
        if grad is None:
            self._done(target)
            return
        values, leaf = self.values, target.leaf
        spec = target if leaf is None else leaf._data  # the shape and dtype of an AccumulateGrad take longer
        shape, dtype = (spec.shape, spec.dtype) if not output_nr else target.specs[output_nr]
        data = grad if values.raw else values.data(grad)
        if data.shape != shape or data.dtype is not dtype:
            grad = values.unbroadcast(grad, shape, dtype)
        if values.raw and state.memory is not None and getattr(grad, "nbytes", 0) > LARGE:
            state.memory.count(grad)
        pending = self.pending
        if target.many:
            grads = pending.setdefault(target, [None] * target.width)
            grads[output_nr] = grad if grads[output_nr] is None else values.add(grads[output_nr], grad, False)
            return
        present = pending.get(target)
        if present is None:
            pending[target] = grad
            if may_mutate and leaf is not None:
                self.may_mutate.add(target)
        else:
            pending[target] = values.add(present, grad, target in self.may_mutate)
            self.may_mutate.add(target)
        if leaf is not None:
            self._done(target)

    def _done(self, target: Target) -> None:
        """Count off one edge into a leaf; after the last one, complete its gradient."""
        if target is None or target.leaf is None:
            return
        entry = self.waiting[target]
        entry[0] -= 1
        if not entry[0] and target in self.pending:
            self._complete(target)

    def _complete(self, target: Target) -> None:
        if target.leaf._hooks is not None:
            self._run_steps(node_evaluation.complete(self, target, self.pending.pop(target)))
            return
        grad = self.pending.pop(target)
        if self.wanted is None or (self.stores and (target, 0) in self.wanted):
            self.accumulate(target.leaf, grad, target in self.may_mutate)
        elif (target, 0) in self.wanted:
            self.captured[target, 0] = grad

    def _skip(self, node: Node) -> None:
        """Skip a node that no gradient reached, or that leads to no wanted place."""
        if node.evaluate is not None and (self.needed is None or (node in self.needed and node not in self.ends)):
            self._evaluate(node, [None] * node.width)  # as in torch, a custom backward runs nevertheless
            return
        for target in node.next_edges:
            self._done(target)

    def capture(self, node: Node, grad: Any) -> None:
        """Store the gradients of the node's outputs that are wanted."""
        assert self.wanted is not None
        for output_nr in range(node.width):
            found = grad[output_nr] if node.many else grad
            if found is not None and (node, output_nr) in self.wanted:
                self.captured[node, output_nr] = found

    def _evaluate_hooked(self, node: Node, grad: Any) -> None:
        """Run the hooks of a node and evaluate it."""
        self._run_steps(node_evaluation.hooked(self, node, grad))

    def _run_steps(self, steps: node_evaluation.Steps) -> None:
        """Run the steps of an evaluation, which do not wait in this pass."""
        for _ in steps:
            pass

    def results(self, node: Node, grads: tuple[Any, ...]) -> node_evaluation.Steps:
        """Return the gradient at each edge of a node that is evaluated step by step."""
        return node_evaluation.results(self, node, grads)

    def wait(self, hooks: Any, grads: tuple[Any, ...], outer: tuple[Any, ...] = ()) -> node_evaluation.Steps:
        """Wait for the hooks that only the client has. Return the other hooks, and the gradients after the client's."""
        raise NotImplementedError

    def explaining(self, node: Node) -> AbstractContextManager[None]:
        """A context for evaluating ``node`` outside of this pass."""
        return nullcontext()

    def inspect(self, node: Node, results: Sequence[Any]) -> None:
        """Inspect the derivatives of a ``node`` that is evaluated step by step."""


class ArrayPass(_Pass):
    """A pass over raw NumPy arrays, in one loop: for small arrays, calls take longer than the arithmetic.

    ``_Pass`` handles nodes that have hooks or a backward of their own, and the whole pass if only some gradients are
    wanted or for a subclass.
    """

    def run(self) -> dict[tuple[Target, int], Any]:
        """Run the pass; ``_Pass.run`` handles it if only some gradients are wanted."""
        if self.wanted is not None or type(self) is not ArrayPass:
            return super().run()
        for target, output_nr, grad in self.roots:
            self.send(target, output_nr, grad, may_mutate=False)
        pending, may_mutate, keep = self.pending, self.may_mutate, self.keep_graph
        F, take, token, memory = self.values.F, pending.pop, running.token, state.memory
        waiting, unbroadcast, add = self.waiting, self.values.unbroadcast, self.values.add
        for node in self.order:
            if token is not None:
                token.check()
            grad = take(node, None)
            plan = node.plan
            if grad is None or plan.direct is None or not node.plain or node.evaluate is not None:
                self.visit(node, grad)
                continue
            if node.many:
                grad = tuple(grad)
            elif memory is not None and grad.nbytes > LARGE:
                self.visit(node, grad)
                continue
            holds = plan.holds_tensors
            if holds:
                if node.saved is FREED:
                    raise GraphFreed(FREED_TEXT)
                for _, cell, version in node.versions:
                    if cell[0] != version:
                        raise modified_since(node)
            targets, saved = node.next_edges, node.saved
            for edge, rule, count, arguments in plan.direct:
                if not count:
                    result = rule(F, grad)
                elif count == 1:
                    result = rule(F, grad, saved[arguments[0]])
                elif count == 2:
                    result = rule(F, grad, saved[arguments[0]], saved[arguments[1]])
                else:
                    result = rule(F, grad, *[saved[i] for i in arguments])
                target = targets[edge]
                kind = type(target)
                if kind is Node:
                    if result.shape != target.shape or result.dtype is not target.dtype:
                        result = unbroadcast(result, target.shape, target.dtype)
                    present = pending.get(target)
                    if present is None:
                        pending[target] = result
                    elif target in may_mutate:
                        pending[target] = add(present, result, True)
                    else:
                        pending[target] = present + result
                        may_mutate.add(target)
                elif kind is AccumulateGrad:
                    entry = waiting[target]
                    left, shape, dtype = entry
                    entry[0] = left - 1
                    fresh = result is not grad
                    if result.shape != shape or result.dtype is not dtype:
                        result = unbroadcast(result, shape, dtype)
                    present = pending.get(target)
                    if present is None:
                        pending[target] = result
                        if fresh:
                            may_mutate.add(target)
                    elif target in may_mutate and type(present) is ndarray and present.base is None:
                        np_add(present, result, present)
                    else:
                        pending[target] = present + result
                        may_mutate.add(target)
                    if left == 1:
                        self._complete(target)
                else:
                    self.send(target, node.output_nrs[edge] if node.output_nrs else 0, result, result is not grad)
            if holds and not keep:
                node.saved = FREED
                node.versions = ()
        self.finish()
        return {}
