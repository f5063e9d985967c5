"""Patterns: the part of the graph that a call made once, from which later calls like it build theirs.

A registered function or a compiled function makes several nodes, and always the same ones for tensors of the same
kinds. Its pattern is a builder of a lazy graph (:mod:`.lazy_graph`), like an op.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from telegrad_engine.graph.node import Node, accumulator, next_sequence, walk
from telegrad_engine.shapes import Spec

from .lazy_graph import NodeBuilder
from .step import Step

_new = object.__new__
VARY = frozenset({"next_edges", "output_nrs", "sequence", "versions"})
"""The attributes of a node that differ from call to call."""
Edge = tuple[int, int]
"""The target of an edge: an earlier node and its output number, or a tensor (``~`` its index among the call's tensors,
and 0)."""


class NodePattern(NamedTuple):
    """A node of a pattern."""

    kind: type[Node]
    attributes: Mapping[str, Any]
    """All but those that ``VARY``."""
    edges: Sequence[Edge | None]
    versions: Sequence[tuple[int, int | list[int], int]]
    """The positions of saved tensors, each with the index of the output that has its version counter (or ``~`` that of
    the tensor, or a counter of its own), and how many versions before the end of the call it was saved."""


Result = tuple[Spec, Edge | None]
"""An output of a call, and the edge of its gradient."""


class Unrepeatable(Exception):
    """Raised with the reason why a call cannot be repeated."""


def graph_since(
    start: int, tensors: Sequence[Any], results: Sequence[Any]
) -> tuple[Sequence[NodePattern], Sequence[Result]]:
    """The nodes that a call on these tensors has made since the sequence number ``start``, and its results.

    Raises Unrepeatable if other nodes or leaves are part of the results' graph.
    """
    roots = [result._node for result in results if result._node is not None]
    if any(root.leaf is not None or root.sequence < start for root in roots):
        raise Unrepeatable("it gives back a tensor with a history from before")
    nodes = [node for node in reversed([*walk(*roots)]) if node.sequence > start]
    places = [accumulator(tensor) if tensor._node is None else tensor._node for tensor in tensors]
    edges: dict[tuple[int, int], Edge] = {
        (id(places[i]), tensor._output_nr): (~i, 0) for i, tensor in reversed([*enumerate(tensors)])
    }
    edges |= {(id(node), nr): (index, nr) for index, node in enumerate(nodes) for nr in range(node.width)}
    counters = {id(result._version_counter): i for i, result in reversed([*enumerate(results)])}
    counters |= {id(tensor._version_counter): ~i for i, tensor in reversed([*enumerate(tensors)])}

    def edge(target: Any, output_nr: int) -> Edge | None:
        if target is None:
            return None
        found = edges.get((id(target), output_nr))
        if found is None:
            raise Unrepeatable(
                "gradients flow to a tensor that is out of sight"
                if target.leaf is not None
                else "a history from before is part of what it computes"
            )
        return found

    found = [
        NodePattern(
            type(node),
            {name: value for name, value in vars(node).items() if name not in VARY},
            [*map(edge, node.next_edges, node.output_nrs or (0,) * len(node.next_edges))],
            [(i, counters.get(id(counter), counter), counter[0] - version) for i, counter, version in node.versions],
        )
        for node in nodes
    ]
    return found, [(result._data, edge(result._node, result._output_nr)) for result in results]


def pattern(nodes: Sequence[NodePattern], results: Sequence[Result]) -> NodeBuilder:
    """The builder of calls that make these nodes and results."""

    def build(tensors: Sequence[Any], outputs: Sequence[Any], _: Step | None) -> Sequence[Node]:
        made: list[Node] = []

        def target(edge: Edge | None) -> tuple[Any, int]:
            if edge is None:
                return None, 0
            index, output_nr = edge
            if index >= 0:
                return made[index], output_nr
            tensor = tensors[~index]
            return accumulator(tensor) if tensor._node is None else tensor._node, tensor._output_nr

        def counter_of(source: int | list[int]) -> list[int]:
            if isinstance(source, list):
                return source
            found: list[int] = (outputs[source] if source >= 0 else tensors[~source])._version_counter
            return found

        for kind, attributes, edges, versions in nodes:
            node: Any = _new(kind)
            node._update(attributes)
            node.sequence = next_sequence()
            targets = [*map(target, edges)]
            node.next_edges = tuple([place for place, _ in targets])
            if any(output_nr for _, output_nr in targets):
                node.output_nrs = tuple([output_nr for _, output_nr in targets])
            if versions:
                counters = [counter_of(source) for _, source, _ in versions]
                node.versions = tuple(
                    [(i, counter, counter[0] - ago) for (i, _, ago), counter in zip(versions, counters, strict=True)]
                )
            made.append(node)
        for index, (place, output_nr) in tracked:
            output = outputs[index]
            output._node, output._output_nr, output._requires_grad = made[place], output_nr, True
        return made

    tracked = [(index, edge) for index, (_, edge) in enumerate(results) if edge is not None]
    return NodeBuilder([spec for spec, _ in results], [(index, nr) for index, (_, nr) in tracked], build)
