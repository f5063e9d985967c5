"""The backward pass.

Edges always lead from a newer node to an older one, so "newest first" is a topological order:
the pass finds what is reachable, sorts it by age and runs it, with no recursion and no counting
but for leaves. That is also torch's order, which hooks make visible.

Gradients are raw arrays, unless ``create_graph``: then they are tensors and the same rules, run on
tensors, record themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from .dtypes import from_numpy
from .errors import GraphFreed, VersionConflict
from .graph import FREED, Node
from .specs import Spec

Target = Any
"""Where a gradient goes: a Node (with a slot) or a leaf tensor."""

by_age = attrgetter("sequence")


class Values:
    """How the pass handles gradients: the namespace of the rules, and what differs between arrays and tensors."""

    F: Any
    raw: bool
    """Whether gradients are plain arrays, and saved values are taken as they are."""

    @property
    def Pass(self) -> type[_Pass]:
        """The kind of pass to run."""
        return _Pass

    def add(self, a: Any, b: Any, owned: bool) -> Any:
        """The sum of two gradients, in ``a``'s memory if the pass owns it."""
        raise NotImplementedError

    def fit(self, grad: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        """The gradient summed and cast to a shape and dtype that it was broadcast or promoted from."""
        raise NotImplementedError

    def unpack(self, node: Node) -> list[Any]:
        """What the node saved, as the rules take it."""
        return list(node.saved)

    def run_hooks(self, hooks: Any, grad: Any) -> Any:
        """The gradient after a tensor's hooks."""
        raise NotImplementedError

    def data(self, grad: Any) -> Any:
        """What has the gradient's shape and dtype."""
        return grad


def run(
    roots: Sequence[tuple[Target, int, Any]],
    values: Values,
    *,
    keep_graph: bool,
    wanted: Sequence[tuple[Target, int]] | None,
    accumulate: Callable[[Any, Any, bool], None],
) -> dict[tuple[Target, int], Any]:
    """Push gradients from ``roots`` (target, slot, gradient) through the graph.

    With ``wanted`` None every leaf's gradient goes to ``accumulate(leaf, gradient, private)`` as soon as
    it is complete. Otherwise only the paths to the wanted places run, and their gradients are returned.
    Saved tensors are freed on the way unless ``keep_graph``.
    """
    return values.Pass(roots, values, keep_graph, wanted, accumulate).run()


class _Pass:
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
        self.owned: set[Any] = set()
        self.captured: dict[tuple[Target, int], Any] = {}
        self.waiting: dict[Any, int] = {}
        self.roots = roots
        self.order = self._discover([target for target, _, _ in roots])
        self.wanted = None if wanted is None else set(wanted)
        self.needed = None if wanted is None else self._needed()

    def _discover(self, targets: list[Target]) -> list[Node]:
        """Reachable nodes, newest first; ``waiting`` counts the edges into each leaf."""
        waiting = self.waiting
        order: list[Node] = []
        seen: set[Any] = set()
        for target in targets:
            if target.is_sink:
                waiting[target] = waiting.get(target, 0) + 1
            elif target not in seen:
                seen.add(target)
                order.append(target)
        for node in order:
            for target in node.next:
                if target is None:
                    continue
                if target.is_sink:
                    waiting[target] = waiting.get(target, 0) + 1
                elif target not in seen:
                    seen.add(target)
                    order.append(target)
        order.sort(key=by_age, reverse=True)
        return order

    def _needed(self) -> set[Any]:
        """Nodes and leaves on a path to something wanted."""
        assert self.wanted is not None
        needed: set[Any] = {target for target, _ in self.wanted}
        ends = {target for target, _ in self.wanted}
        for node in reversed(self.order):
            if any(target in needed for target in node.next if target is not None) or node in ends:
                needed.add(node)
        return needed

    def run(self) -> dict[tuple[Target, int], Any]:
        for target, slot, grad in self.roots:
            self.send(target, slot, grad, private=False)
        pending, needed = self.pending, self.needed
        for node in self.order:
            grad = pending.pop(node, None)
            if grad is None or (needed is not None and node not in needed):
                self._skip(node)
                continue
            if node.hooks is not None:
                grad = self._run_hooks(node, grad)
            if self.wanted is not None:
                self._capture(node, grad)
            self._evaluate(node, grad)
            self.owned.discard(node)
        for leaf in [target for target in pending if target.is_sink]:
            self._complete(leaf)  # some of its edges brought no gradient
        return self.captured

    def _evaluate(self, node: Node, grad: Any) -> None:
        """Run the node's derivatives and pass on what they give."""
        if node.saved is FREED:
            raise GraphFreed(FREED_TEXT)
        for _, cell, version in node.versions:
            if cell[0] != version:
                raise _modified(node)
        values, needed, pending = self.values, self.needed, self.pending
        F, raw = values.F, values.raw
        saved = node.saved if raw else values.unpack(node)
        targets, slots = node.next, node.slots
        if node.many:
            grad = tuple(grad)
        for edges, rule, arguments, many in node.plan.steps:
            if many:
                if needed is None or any(targets[e] in needed for e in edges):
                    results = rule(F, grad, *[saved[i] for i in arguments])
                    for edge, result in zip(edges, results, strict=True):
                        if targets[edge] is not None:
                            self.send(targets[edge], slots[edge] if slots else 0, result, False)
                continue
            edge = edges[0]
            target = targets[edge]
            if needed is not None and target not in needed:
                self._done(target)
                continue
            # Spelled out for speed: a derivative of few values, and the first gradient to arrive at a node.
            if not arguments:
                result = rule(F, grad)
            elif len(arguments) == 1:
                result = rule(F, grad, saved[arguments[0]])
            else:
                result = rule(F, grad, *[saved[i] for i in arguments])
            if (
                target not in pending
                and not target.is_sink
                and raw
                and slots is None
                and target.width == 1
                and result.dtype is target.dtype
                and result.shape == target.shape
            ):
                pending[target] = result
            else:
                self.send(target, slots[edge] if slots else 0, result, result is not grad)
        if node.plan.holds_tensors and not self.keep_graph:
            _free(node)

    def send(self, target: Target, slot: int, grad: Any, private: bool) -> None:
        """Add a gradient to what ``target`` waits for. ``private``: the rule made it and gave it to nobody else."""
        if grad is None:
            self._done(target)
            return
        values = self.values
        spec = target._data if target.is_sink else target
        shape, dtype = (spec.shape, spec.dtype) if not slot else target.specs[slot]
        data = grad if values.raw else values.data(grad)
        if data.shape != shape or data.dtype is not dtype:
            grad = values.fit(grad, shape, dtype)
        pending = self.pending
        if not target.is_sink and target.many:
            grads = pending.setdefault(target, [None] * target.width)
            grads[slot] = grad if grads[slot] is None else values.add(grads[slot], grad, False)
            return
        present = pending.get(target)
        if present is None:
            pending[target] = grad
            if private and target.is_sink:
                self.owned.add(target)
        else:
            pending[target] = values.add(present, grad, target in self.owned)
            self.owned.add(target)
        if target.is_sink:
            self._done(target)

    def _done(self, target: Target) -> None:
        """One edge into a leaf is settled; after the last, its gradient is complete."""
        if target is None or not target.is_sink:
            return
        left = self.waiting[target] = self.waiting[target] - 1
        if not left and target in self.pending:
            self._complete(target)

    def _complete(self, target: Target) -> None:
        grad = self.pending.pop(target)
        private = target in self.owned
        if target._hooks:
            grad = self.values.run_hooks(target._hooks, grad)
            private = False
        if self.wanted is None:
            self.accumulate(target, grad, private)
        elif (target, 0) in self.wanted:
            self.captured[target, 0] = grad

    def _skip(self, node: Node) -> None:
        for target in node.next:
            self._done(target)

    def _capture(self, node: Node, grad: Any) -> None:
        assert self.wanted is not None
        for slot in range(node.width):
            if (node, slot) in self.wanted:
                self.captured[node, slot] = grad[slot] if node.many else grad

    def _run_hooks(self, node: Node, grad: Any) -> Any:
        if not node.many:
            return self.values.run_hooks(node.hooks.get(0), grad)
        return [g if g is None else self.values.run_hooks(node.hooks.get(slot), g) for slot, g in enumerate(grad)]


class ShadowPass(_Pass):
    """A pass that evaluates nothing: it finds where gradients arrive, raises what the real one would, and frees."""

    def _evaluate(self, node: Node, grad: Any) -> None:
        if node.saved is FREED:
            raise GraphFreed(FREED_TEXT)
        for _, cell, version in node.versions:
            if cell[0] != version:
                raise _modified(node)
        targets, slots, needed = node.next, node.slots, self.needed
        for edge in {edge for step in node.plan.steps for edge in step.edges}:
            target = targets[edge]
            if target is None or (needed is not None and target not in needed):
                self._done(target)
                continue
            slot = slots[edge] if slots else 0
            spec = target._data if target.is_sink else target
            self.send(target, slot, spec if not slot else Spec(*target.specs[slot]), False)
        if node.plan.holds_tensors and not self.keep_graph:
            _free(node)


def _free(node: Node) -> None:
    """Drop what the node saved; a second backward through it is an error, unless it saved no tensor."""
    node.saved = FREED
    node.versions = ()


FREED_TEXT = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they "
    "have already been freed). Saved intermediate values of the graph are freed when you call "
    ".backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the "
    "graph a second time or if you need to access saved tensors after calling backward."
)


def _modified(node: Node) -> VersionConflict:
    """The error for a saved tensor that was modified since; torch raises it when it unpacks one."""
    position, cell, version = next(entry for entry in node.versions if entry[1][0] != entry[2])
    source, key = node.plan.saves[position]
    data = node.saved[position]
    data = data[0] if isinstance(data, list) else data
    what = f"torch.{from_numpy(data.dtype).kernel_name}Tensor {list(data.shape)}"
    origin = node if source == "output" else node.next[key] if key < len(node.next) else None
    which = "" if origin is None or origin.is_sink else f", which is output 0 of {_kind(origin)},"
    return VersionConflict(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{what}]{which} is at version {cell[0]}; expected version {version} instead. Hint: enable "
        "anomaly detection to find the operation that failed to compute its gradient, with "
        "torch.autograd.set_detect_anomaly(True, check_nan=False)."
    )


def _kind(node: Node) -> str:
    """A node's name as torch's text on modified tensors has it: ``Sigmoid`` for ``SigmoidBackward0``."""
    return re.sub(r"Backward\d+$", "", node.name())
