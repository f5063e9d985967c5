"""Patterns: the part of the graph that a call made once, as data, from which later calls like it build theirs.

A registered function or a compiled function makes several nodes, and always the same ones for tensors of the same
kinds. Its pattern builds nodes of a lazy graph (:mod:`.lazy_graph`), like a prepared call of an op.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad_engine.graph.data import NOWHERE, NodeData, make_nodes
from telegrad_engine.graph.node import Node, accumulator, walk
from telegrad_engine.shapes import Spec

from .lazy_graph import NodeBuilder
from .step import RecordedStep

VARY = frozenset({"next_edges", "sequence", "versions"})
"""The attributes of a node that differ from call to call."""
Result = tuple[Spec, tuple[int, int] | None]
"""An output of a call, and the number of its node and of the node's output; None if it has no gradient."""


class Unrepeatable(Exception):
    """Raised with the reason why a call cannot be repeated."""


class Pattern(NodeBuilder):
    """The nodes of a call on tensors, and its results. The graph's end ``i + 1`` is the place of tensor ``i``."""

    def __init__(self, nodes: Sequence[NodeData], counters: Sequence[list[int]], results: Sequence[Result]) -> None:
        """``counters`` are the version counters that belong to neither a tensor nor a result.

        The counter of a result has its number, that of tensor ``i`` the number ``~i``; the others follow the results'.
        """
        self.nodes, self.results, self._counters = nodes, results, counters
        self.specs = [spec for spec, _ in results]
        self._roots = [(index, *root) for index, (_, root) in enumerate(results) if root is not None]
        self.tracked = [(index, output_nr) for index, _, output_nr in self._roots]

    def build(self, tensors: Sequence[Any], outputs: Sequence[Any], _: RecordedStep | None = None) -> Sequence[Node]:
        """Make the nodes of a call on these tensors with these outputs, and return them."""
        before, after = [[x._version_counter for x in each] for each in (outputs, reversed(tensors))]
        ends = [None, *map(_place, tensors)]
        made = make_nodes(self.nodes, ends, [*before, *self._counters, *after], {})[: len(self.nodes)]
        for index, number, output_nr in self._roots:
            output = outputs[index]
            output._node, output._output_nr, output._requires_grad = made[number], output_nr, True
        return made


def pattern_since(start: int, tensors: Sequence[Any], results: Sequence[Any]) -> Pattern:
    """The pattern of a call on these tensors, which began at the sequence number ``start``.

    It holds for tensors that are outputs of the same numbers. Raises Unrepeatable if other nodes or leaves are part of
    the results' graph.
    """
    roots = [result._node for result in results if result._node is not None]
    if any(root.leaf is not None or root.sequence < start for root in roots):
        raise Unrepeatable("it gives back a tensor with a history from before")
    nodes = [node for node in reversed([*walk(*roots)]) if node.sequence > start]
    order, places = {id(node): number for number, node in enumerate(nodes)}, [*map(_place, tensors)]
    ends = {(id(places[i]), tensor._output_nr): -2 - i for i, tensor in reversed([*enumerate(tensors)])}
    counters: list[list[int]] = []
    numbers = {id(result._version_counter): i for i, result in reversed([*enumerate(results)])}
    numbers |= {id(tensor._version_counter): ~i for i, tensor in reversed([*enumerate(tensors)])}

    def edge(target: Any, output_nr: int) -> int:
        if target is None:
            return NOWHERE
        found = order.get(id(target), ends.get((id(target), output_nr)))
        if found is None:
            raise Unrepeatable(
                "gradients flow to a tensor that is out of sight"
                if target.leaf is not None
                else "a history from before is part of what it computes"
            )
        return found

    def version(position: int, counter: list[int], saved: int) -> tuple[int, int, int]:
        if id(counter) not in numbers:
            numbers[id(counter)] = len(results) + len(counters)
            counters.append(counter)
        return position, numbers[id(counter)], saved - counter[0]

    found = [
        NodeData(
            type(node),
            {name: value for name, value in vars(node).items() if name not in VARY},
            (),
            tuple([version(*each) for each in node.versions]),
            tuple(map(edge, node.next_edges, node.output_nrs or (0,) * len(node.next_edges))),
        )
        for node in nodes
    ]
    made = [
        (result._data, None if result._node is None else (order[id(result._node)], result._output_nr))
        for result in results
    ]
    return Pattern(found, counters, made)


def _place(tensor: Any) -> Any:
    """The node to which edges to a tensor lead; None for one that requires no gradient."""
    return accumulator(tensor) if tensor._node is None and tensor._requires_grad else tensor._node
