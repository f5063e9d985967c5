"""Graphs as data: the graph of the tensors that a program takes, and the graph of its results.

Both consist of :class:`NodeData`, from which nodes are made again. A graph that a backward pass may still visit has
ordinary nodes with their saved tensors. The nodes of a freed graph are made on first access, which is rare.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from ..arrays.symbolic import Untraceable
from ..graph.node import FREED, MultiOutputNode, Node, accumulator, next_sequence, skip_sequence

MAX_NODES, MAX_UNVISITED = 2**11, 2**8
"""The maximum number of nodes in the graph of a program's inputs, which is read at every run: if the program may make a
pass over them, and if it only adds to them."""
LEAF, OWN, TAKEN = "leaf", "own", "taken"
"""Where an edge leads: to a leaf, to a node of the same graph, or to a node from before the program."""
Edge = tuple[str, int]
FIXED = ("op", "shape", "dtype", "width", "specs", "output_nrs")
"""The attributes of a node that contain no values."""


# Templates of values -------------------------------------------------------------------------


class Placeholder(NamedTuple):
    """A placeholder for a value that differs between runs: one of a run's numbers, arrays, tensors or memories."""

    what: str
    number: int


class Container(NamedTuple):
    """A list, tuple, dict or slice of templates; equal to another only if it is of the same type."""

    type: type
    items: tuple[Any, ...]


class Constant(NamedTuple):
    """A value that is always the same; equal to another only if it is of the same type."""

    type: type
    value: Any


class Identity:
    """A value that is always the same object, and is compared as such."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def template(value: Any, at: Callable[[Any], Any]) -> Any:
    """Return the template of a value, which can be compared; ``at`` returns the placeholder of a part, or None.

    Raises Untraceable for a value that is not hashable.
    """
    place = at(value)
    if place is not None:
        return place
    if isinstance(value, (list, tuple)):
        return Container(type(value), tuple([template(item, at) for item in value]))
    if isinstance(value, slice):
        return Container(slice, (template(value.start, at), template(value.stop, at), template(value.step, at)))
    if isinstance(value, Mapping):
        return Container(dict, tuple([(key, template(item, at)) for key, item in value.items()]))
    try:
        hash(value)
    except TypeError:
        raise Untraceable(f"a node keeps a {type(value).__name__}") from None
    return Constant(type(value), value)


def fill_template(value: Any, places: Mapping[str, Any]) -> Any:
    """Return the value of a template, with these values for its placeholders."""
    kind = type(value)
    if kind is Constant or kind is Identity:
        return value.value
    if kind is Placeholder:
        return places[value.what][value.number]
    if value.type is dict:
        return {key: fill_template(item, places) for key, item in value.items}
    items = [fill_template(item, places) for item in value.items]
    return items if value.type is list else value.type(items) if value.type is tuple else value.type(*items)


FREED_VALUES = Identity(FREED)
"""The template of the saved values of a freed node."""


# Nodes ---------------------------------------------------------------------------------------


class NodeData(NamedTuple):
    """A node of a graph."""

    many: bool
    fixed: tuple[tuple[str, Any], ...]
    """The attributes named in ``FIXED`` that it has."""
    plan: Identity
    attrs: Any
    """The template of its op's attributes."""
    saved: Any
    """The template of its saved values."""
    versions: tuple[tuple[int, int, int], ...]
    """For each saved tensor its position, the number of its version counter, and the increase of that counter."""
    next_edges: tuple[Edge | None, ...]


class GraphContext(NamedTuple):
    """The objects that the graph of one run refers to."""

    tensors: Sequence[Any]
    taken: Sequence[Any]
    """The nodes from before the program."""
    values: Mapping[str, Any]
    """The values of placeholders: the tensors, memories, arrays and numbers that nodes save."""
    version_counters: Any
    """The version counters by number."""


def node_data(node: Any, attrs: Any, saved: Any, versions: Any, next_edges: Any) -> NodeData:
    """Return the data of a node, with these templates of its values, versions and edges."""
    own = vars(node)
    fixed = tuple([(name, tuple(own[name]) if name == "specs" else own[name]) for name in FIXED if name in own])
    return NodeData(node.many, fixed, Identity(node.plan), attrs, saved, versions, next_edges)


def new_node(kind: type[Any], data: NodeData, values: Mapping[str, Any]) -> Any:
    """Make a node, with these values for its placeholders and without its edges."""
    node: Any = object.__new__(kind)
    node._update(data.fixed)
    node.plan = data.plan.value
    node.attrs, node.saved = fill_template(data.attrs, values), fill_template(data.saved, values)
    return node


def make_nodes(graph: Sequence[NodeData], context: GraphContext) -> list[Any]:
    """Make the nodes of a graph, oldest first."""
    counters = context.version_counters
    nodes: list[Any] = []
    for data in graph:
        node = new_node(MultiOutputNode if data.many else Node, data, context.values)
        node.versions = tuple([(at, counters[i], counters[i][0] + version) for at, i, version in data.versions])
        node.next_edges = tuple([e and edge_target(e, nodes.__getitem__, context) for e in data.next_edges])
        node.sequence = next_sequence()
        nodes.append(node)
    return nodes


def edge_target(target: Edge, own: Any, context: GraphContext) -> Any:
    """Return the target of an edge; ``own`` finds a node of the same graph."""
    where, number = target
    if where is LEAF:
        return accumulator(context.tensors[number])
    return own(number) if where is OWN else context.taken[number]


# The graph that a program takes --------------------------------------------------------------


class GraphSignature(NamedTuple):
    """The part of the graph of a program's inputs on which a plan depends."""

    nodes: tuple[NodeData, ...]
    """Oldest first."""
    roots: tuple[tuple[int, int, int], ...]
    """For each tensor with a history its number, its node, and which of the node's outputs it is."""
    arrays: tuple[tuple[Any, ...], ...]
    """For each saved array its shape, dtype and strides, and the number of the tensor whose memory it may share."""


class InputGraph(NamedTuple):
    """The graph of the tensors that a program takes."""

    signature: GraphSignature
    nodes: list[Any]
    arrays: list[Any]
    numbers: list[float]


class GraphReader:
    """Reads the graph of tensors, to which ``place`` adds a leaf, if it has at most this number of nodes."""

    def __init__(self, tensors: Sequence[Any], place: Callable[[Any], int], most: int) -> None:
        self._tensors, self._place, self._most = tensors, place, most
        self._arrays: list[Any] = []
        self._array_owners: list[int | None] = []
        self._floats: list[float] = []

    def read(self) -> InputGraph:
        """Return the graph. Raises Untraceable for one that no plan can take."""
        roots = [(i, x._node, x._output_nr) for i, x in enumerate(self._tensors) if x._node is not None]
        if any(node.leaf is not None for _, node, _ in roots):
            raise Untraceable("what it takes stands in for another tensor")
        nodes = _reached([node for _, node, _ in roots], self._most)
        order = {id(node): number for number, node in enumerate(nodes)}
        targets = [tuple([self._target(target, order, node) for target in node.next_edges]) for node in nodes]
        self._data = {id(x._data): i for i, x in enumerate(self._tensors)}
        self._counters = {id(x._version_counter): i for i, x in enumerate(self._tensors)}
        self._owners = {id(memory_owner(x._data)): i for i, x in enumerate(self._tensors)}
        data = tuple(map(self._node, nodes, targets))
        places = tuple([(i, order[id(node)], output_nr) for i, node, output_nr in roots])
        specs = [(x.shape, x.dtype, x.strides, of) for x, of in zip(self._arrays, self._array_owners, strict=True)]
        return InputGraph(GraphSignature(data, places, tuple(specs)), nodes, self._arrays, self._floats)

    def _target(self, target: Any, order: Mapping[int, int], node: Any) -> Edge | None:
        if target is None:
            return None
        if node.saved is FREED:
            return TAKEN, 0  # no pass follows the edges of a freed node
        return (OWN, order[id(target)]) if target.leaf is None else (LEAF, self._place(target.leaf))

    def _node(self, node: Any, targets: tuple[Edge | None, ...]) -> NodeData:
        if not isinstance(node, Node) or not node.plain or node.hooks is not None or node.evaluate is not None:
            raise Untraceable("the history behind what it takes has hooks, or a user's function")
        attrs = template(node.attrs, self._at)
        if node.saved is FREED:
            return node_data(node, attrs, FREED_VALUES, (), targets)
        versions = tuple([self._version(*version) for version in node.versions])
        # In a saved list of tensors, each tensor has a version.
        tensors = {at: i for at, i, _ in versions} if len({at for at, *_ in versions}) == len(versions) else {}
        saved = [template(x, partial(self._at, of=tensors.get(at, -1))) for at, x in enumerate(node.saved)]
        return node_data(node, attrs, Container(tuple, tuple(saved)), versions, targets)

    def _at(self, value: Any, of: int = -1) -> Placeholder | None:
        """Return the placeholder of a part of a node. If ``of`` is not negative, it is the tensor with its version."""
        if type(value) is float:
            self._floats.append(value)
            return Placeholder("numbers", len(self._floats) - 1)
        if not isinstance(value, (np.ndarray, np.generic)):
            return None
        tensor = self._data.get(id(value))
        if tensor is not None:
            return Placeholder("tensors", tensor)
        self._arrays.append(value)
        # A plan may have left a copy where the interpreter leaves a view: one signature covers both.
        self._array_owners.append(of if of >= 0 else self._owners.get(id(memory_owner(value))))
        return Placeholder("arrays", len(self._arrays) - 1)

    def _version(self, position: int, counter: list[int], version: int) -> tuple[int, int, int]:
        if counter[0] != version:
            raise Untraceable("a tensor that the history needs was changed in place")
        return position, self._counters.setdefault(id(counter), -1 - len(self._counters)), 0


def memory_owner(array: Any) -> Any:
    """Return the owner of an array's memory."""
    while (base := getattr(array, "base", None)) is not None:
        array = base
    return array


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


_FREED_NODE: Any = Node()
_FREED_NODE.saved = FREED


def rebuild(graph: GraphSignature, tensors: Sequence[Any], arrays: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
    """Make the nodes of these tensors with this signature, with these arrays and numbers saved."""
    values = {"tensors": [x._data for x in tensors], "arrays": arrays, "numbers": numbers}
    counters = defaultdict(lambda: [0], enumerate([x._version_counter for x in tensors]))
    nodes = make_nodes(graph.nodes, GraphContext(tensors, [_FREED_NODE], values, counters))
    for tensor, number, output_nr in graph.roots:
        tensors[tensor]._node, tensors[tensor]._output_nr = nodes[number], output_nr
        tensors[tensor]._requires_grad = True
    return nodes


# The graph that a program leaves -------------------------------------------------------------


class GraphData:
    """The graph that a program leaves: its nodes, oldest first."""

    def __init__(self, nodes: Sequence[NodeData], keeps_arrays: bool) -> None:
        """``keeps_arrays`` is whether any of its nodes has saved arrays."""
        self.nodes, self._keeps_arrays = nodes, keeps_arrays
        self._ends = {e for node in nodes for e in node.next_edges if e is not None and e[0] is not OWN}

    def made(self, context: GraphContext) -> Callable[[int], Any]:
        """Make the nodes of one run's graph. Return a function from a node's number to the node."""
        if self._keeps_arrays:
            return make_nodes(self.nodes, context).__getitem__
        # Only the ends of edges may be kept alive, not the whole context.
        ends = {end: edge_target(end, None, context) for end in self._ends}
        return FreedGraph(self.nodes, ends, {"numbers": context.values["numbers"]}).node


class FreedGraph:
    """The graph of one run without saved arrays. Its nodes are made on first access."""

    def __init__(self, nodes: Sequence[NodeData], ends: Mapping[Edge, Any], values: Mapping[str, Any]) -> None:
        """``ends`` has the targets of edges that leave the graph."""
        self._data, self._ends, self._values = nodes, ends, values
        self._nodes: dict[int, ref[Any]] = {}
        """The nodes that were accessed; a WeakValueDictionary takes twice as long to make and fill."""
        self._sequence = next_sequence()
        skip_sequence(len(nodes))

    def node(self, number: int) -> Any:
        """Return the node of this number."""
        known = self._nodes.get(number)
        node = None if known is None else known()
        if node is None:
            data = self._data[number]
            node = new_node(_FreedNode, data, self._values)
            node.many, node.sequence = data.many, self._sequence + number
            node._graph, node._edges = self, data.next_edges
            self._nodes[number] = ref(node)
        return node

    def before(self, edges: Sequence[Edge | None]) -> tuple[Any, ...]:
        """Return the targets of edges."""
        return tuple([e and (self.node(e[1]) if e[0] is OWN else self._ends[e]) for e in edges])


class _FreedNode(Node):
    """A node of a freed graph."""

    _graph: FreedGraph
    _edges: Sequence[Edge | None]

    @cached_property
    def next_edges(self) -> tuple[Any, ...]:  # type: ignore[override]
        return self._graph.before(self._edges)
