"""The backward pass without values: it updates the graph and raises errors as the real pass would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import GraphFreed, NotSupported
from ..shapes import Spec
from .backward_pass import _Pass
from .node import FREED, FREED_TEXT, Node, free, modified_since
from .node_evaluation import Steps


class AbstractPass(_Pass):
    """A pass that evaluates nothing: it finds where gradients arrive, raises errors and frees saved tensors."""

    def run(self) -> dict[tuple[Any, int], Any]:
        """Run the pass, in one short loop if all nodes and leaves are ordinary (see :attr:`is_ordinary`)."""
        through = self._through()
        if type(self) is not AbstractPass or not self._is_ordinary(through):
            return super().run()
        keep = self.keep_graph
        for node in through:
            if node.saved is FREED:
                raise GraphFreed(FREED_TEXT)
            for _, cell, version in node.versions:
                if cell[0] != version:
                    raise modified_since(node)
            if not keep and node.plan.holds_tensors:
                node.saved = FREED
                node.versions = ()
        leaves = [leaf for leaf in self.waiting if self.wanted is None or (leaf, 0) in self.wanted]
        if self.wanted is not None and not self.stores:
            return {(target, 0): target.leaf._data for target in leaves}
        for target in leaves:
            self.accumulate(target.leaf, target.leaf._data, False)
        return {}

    @property
    def is_ordinary(self) -> bool:
        """Whether every pass over this graph gives the same result and only frees saved tensors."""
        return self._is_ordinary(self._through())

    def _through(self) -> Sequence[Node]:
        """The nodes that the pass visits, newest first."""
        needed = self.needed
        return self.order if needed is None else [node for node in self.order if node in needed]

    def _is_ordinary(self, through: Sequence[Node]) -> bool:
        """Whether all edges carry gradients, only gradients of leaves are wanted, and there are no hooks."""
        if self.wanted is not None and any(target.leaf is None for target, _ in self.wanted):
            return False
        for node in through:
            if not node.plain or node.evaluate is not None or node.op.edges_without_gradient(node.attrs):
                return False
        return all(target.leaf._hooks is None for target in self.waiting)

    def _evaluate_hooked(self, node: Node, grad: Any) -> None:
        if node.hooks.surround and self.due is None:  # the client has the hooks at which a pass can stop
            raise NotSupported("hooks on nodes and on saved tensors need the values, which are elsewhere")
        super()._evaluate_hooked(node, grad)

    def _evaluate(self, node: Node, grad: Any) -> None:
        for edge, spec in self._derive(node).items():
            if spec is None:
                self._done(node.next_edges[edge])
            else:
                self.send(node.next_edges[edge], node.output_nrs[edge] if node.output_nrs else 0, spec, False)

    def results(self, node: Node, grads: tuple[Any, ...]) -> Steps:
        """Return the specs of the gradients at the edges."""
        yield from ()
        found = self._derive(node)
        return tuple([found.get(edge) for edge in range(len(node.next_edges))])

    def _derive(self, node: Node) -> dict[int, Any]:
        """Return the spec of the gradient at each edge, None if not wanted; free the saved tensors as usual."""
        if node.saved is FREED:
            raise GraphFreed(FREED_TEXT)
        for _, cell, version in node.versions:
            if cell[0] != version:
                raise modified_since(node)
        targets, output_nrs, needed = node.next_edges, node.output_nrs, self.needed
        none = node.op.edges_without_gradient(node.attrs)
        found: dict[int, Any] = {}
        for edge in [edge for step in node.plan.steps for edge in step.edges]:
            target = targets[edge]
            if target is None or edge in none or (needed is not None and target not in needed):
                found[edge] = None
                continue
            output_nr = output_nrs[edge] if output_nrs else 0
            spec = target if target.leaf is None else target.leaf._data
            found[edge] = spec if not output_nr else Spec(*target.specs[output_nr])
        if node.plan.holds_tensors and not self.keep_graph:
            free(node)
        return found
