"""The graph of the tensors that a program takes, and the graph of its results, as data (:mod:`..graph.data`).

A graph that a backward pass may still visit has ordinary nodes with their saved tensors. The nodes of a freed graph are
made on first access, which is rare.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from ..arrays.symbolic import Untraceable
from ..graph.data import (
    FREED_VALUES,
    NOWHERE,
    Container,
    NodeData,
    Placeholder,
    make_nodes,
    new_node,
    node_data,
    pattern_of,
)
from ..graph.node import FREED, Node, accumulator, next_sequence, skip_sequence
from ..tensor.execution import memory_owner

MAX_NODES, MAX_UNVISITED = 2**11, 2**8
"""The maximum number of nodes in the graph of a program's inputs, which is read at every run: if the program may make a
pass over them, and if it only adds to them."""
LEAF, TAKEN = "leaf", "taken"
"""The ends of a program's graph: the leaf of a tensor, or a node from before the program, by its number."""


# The graph that a program takes --------------------------------------------------------------


class GraphSignature(NamedTuple):
    """The part of the graph of a program's inputs on which a plan depends."""

    nodes: tuple[NodeData, ...]
    """Oldest first."""
    roots: tuple[tuple[int, int, int], ...]
    """For each tensor with a history its number, its node, and which of the node's outputs it is."""
    arrays: tuple[tuple[Any, ...], ...]
    """For each saved array its shape, dtype and strides, and the number of the tensor whose memory it may share."""


class InputGraph:
    """The graph of the tensors that a program takes, to which ``place`` adds a leaf.

    Raises Untraceable if it has more than ``most`` nodes, or is one that no plan can take.
    """

    def __init__(self, tensors: Sequence[Any], place: Callable[[Any], int], most: int) -> None:
        self.arrays: list[Any] = []
        """The arrays that its nodes save and that are not a tensor's."""
        self.numbers: list[float] = []
        self._array_owners: list[int | None] = []
        roots = [(i, x._node, x._output_nr) for i, x in enumerate(tensors) if x._node is not None]
        if any(node.leaf is not None for _, node, _ in roots):
            raise Untraceable("what it takes stands in for another tensor")
        self.nodes = _reached([node for _, node, _ in roots], most)
        order = {id(node): number for number, node in enumerate(self.nodes)}
        edges = [tuple([_edge(target, order, node, place) for target in node.next_edges]) for node in self.nodes]
        self._data = {id(x._data): i for i, x in enumerate(tensors)}
        self._counters = {id(x._version_counter): i for i, x in enumerate(tensors)}
        self._owners = {id(memory_owner(x._data)): i for i, x in enumerate(tensors)}
        data = tuple(map(self._node, self.nodes, edges))
        places = tuple([(i, order[id(node)], output_nr) for i, node, output_nr in roots])
        specs = [(x.shape, x.dtype, x.strides, of) for x, of in zip(self.arrays, self._array_owners, strict=True)]
        self.signature = GraphSignature(data, places, tuple(specs))

    def _node(self, node: Any, edges: tuple[int, ...]) -> NodeData:
        if not isinstance(node, Node) or not node.plain or node.hooks is not None or node.evaluate is not None:
            raise Untraceable("the history behind what it takes has hooks, or a user's function")
        attrs = pattern_of(node.attrs, self._at)
        if node.saved is FREED:
            return node_data(node, attrs, FREED_VALUES, (), edges)
        versions = tuple([self._version(*version) for version in node.versions])
        # In a saved list of tensors, each tensor has a version.
        tensors = {at: i for at, i, _ in versions} if len({at for at, *_ in versions}) == len(versions) else {}
        saved = [pattern_of(x, partial(self._at, of=tensors.get(at, -1))) for at, x in enumerate(node.saved)]
        return node_data(node, attrs, Container(tuple, tuple(saved)), versions, edges)

    def _at(self, value: Any, of: int = -1) -> Placeholder | None:
        """Return the placeholder of a part of a node. If ``of`` is not negative, it is the tensor with its version."""
        if type(value) is float:
            self.numbers.append(value)
            return Placeholder("numbers", len(self.numbers) - 1)
        if not isinstance(value, (np.ndarray, np.generic)):
            return None
        tensor = self._data.get(id(value))
        if tensor is not None:
            return Placeholder("tensors", tensor)
        self.arrays.append(value)
        # A plan may have left a copy where the interpreter leaves a view: one signature covers both.
        self._array_owners.append(of if of >= 0 else self._owners.get(id(memory_owner(value))))
        return Placeholder("arrays", len(self.arrays) - 1)

    def _version(self, position: int, counter: list[int], version: int) -> tuple[int, int, int]:
        if counter[0] != version:
            raise Untraceable("a tensor that the history needs was changed in place")
        return position, self._counters.setdefault(id(counter), -1 - len(self._counters)), 0


def _edge(target: Any, order: Mapping[int, int], node: Any, place: Callable[[Any], int]) -> int:
    if target is None:
        return NOWHERE
    if node.saved is FREED:
        return BEFORE_FREED
    return order[id(target)] if target.leaf is None else BEFORE_FREED - 1 - place(target.leaf)


def _reached(roots: Sequence[Any], most: int) -> list[Any]:
    """Return all nodes that a pass from these may visit, oldest first. Raises Untraceable if they are too many."""
    order = list({id(root): root for root in roots}.values())
    seen = set(map(id, order))
    for node in order:
        for target in () if node.saved is FREED else node.next_edges:
            if target is not None and target.leaf is None and id(target) not in seen:
                seen.add(id(target))
                order.append(target)
        if len(order) > most:
            raise Untraceable("the history behind what it takes is long")
    order.sort(key=lambda node: node.sequence)
    return order


BEFORE_FREED = ~1
"""The edge of freed nodes, which no pass follows: to end 1 of the graph. The ends after it are the tensors' leaves."""
_FREED_NODE: Any = Node()
_FREED_NODE.saved = FREED


def rebuild(graph: GraphSignature, tensors: Sequence[Any], arrays: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
    """Make the nodes of these tensors with this signature, with these arrays and numbers saved."""
    values = {"tensors": [x._data for x in tensors], "arrays": arrays, "numbers": numbers}
    counters = defaultdict(lambda: [0], enumerate([x._version_counter for x in tensors]))
    nodes = make_nodes(graph.nodes, [None, _FREED_NODE, *map(accumulator, tensors)], counters, values)
    for tensor, number, output_nr in graph.roots:
        tensors[tensor]._node, tensors[tensor]._output_nr = nodes[number], output_nr
        tensors[tensor]._requires_grad = True
    return nodes[: len(graph.nodes)]


# The graph that a program leaves -------------------------------------------------------------


class GraphData:
    """The graph that a program leaves: its nodes, oldest first."""

    def __init__(self, nodes: Sequence[NodeData], ends: Collection[tuple[str, int]], keeps_arrays: bool) -> None:
        """``keeps_arrays`` is whether any of its nodes has saved arrays.

        After the ends of its nodes' edges, more may be added to ``ends``: those of edges from tensors.
        """
        self.nodes, self._ends, self._keeps_arrays = nodes, ends, keeps_arrays
        self._own_ends = 1 + len(ends)

    def made(
        self, tensors: Sequence[Any], taken: Sequence[Any], counters: Any, values: Mapping[str, Any]
    ) -> Callable[[int], Any]:
        """Make the nodes of one run's graph. Return a function from an edge to its node.

        ``taken`` are the nodes from before the program.
        """
        ends = [None, *[accumulator(tensors[n]) if where is LEAF else taken[n] for where, n in self._ends]]
        if self._keeps_arrays or not self.nodes:
            return make_nodes(self.nodes, ends, counters, values).__getitem__
        graph = FreedGraph(self.nodes, ends[: self._own_ends], {"numbers": values["numbers"]})
        return lambda edge: graph.node(edge) if edge >= 0 else ends[~edge]


class FreedGraph:
    """The graph of one run without saved arrays. Its nodes are made on first access."""

    def __init__(self, nodes: Sequence[NodeData], ends: Sequence[Any], values: Mapping[str, Any]) -> None:
        self._data, self._ends, self._values = nodes, ends, values
        self._nodes: dict[int, ref[Any]] = {}
        """The nodes that were accessed; a WeakValueDictionary takes twice as long to make and fill."""
        self._sequence = next_sequence()
        skip_sequence(len(nodes))

    def node(self, edge: int) -> Any:
        """Return the node that an edge leads to."""
        if edge < 0:
            return self._ends[~edge]
        known = self._nodes.get(edge)
        node = None if known is None else known()
        if node is None:
            data = self._data[edge]
            node = new_node(_FreedNode, data, self._values)
            node.many, node.sequence = data.kind.many, self._sequence + edge
            node._graph, node._edges = self, data.edges
            self._nodes[edge] = ref(node)
        return node


class _FreedNode(Node):
    """A node of a freed graph."""

    _graph: FreedGraph
    _edges: Sequence[int]

    @cached_property
    def next_edges(self) -> tuple[Any, ...]:  # type: ignore[override]
        return tuple(map(self._graph.node, self._edges))
