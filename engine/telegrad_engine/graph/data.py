"""A graph as data: its nodes without the objects that they refer to, from which nodes are made again.

Plans, the patterns of calls in the SDK, snapshots and forks make nodes here. Tensors, version counters, and nodes
outside of the graph have numbers in the data; whoever makes the nodes says what these are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..arrays.symbolic import Untraceable
from .node import FREED, MultiOutputNode, Node, next_sequence

# Templates of values -------------------------------------------------------------------------


class Placeholder(NamedTuple):
    """A placeholder for a value that differs between graphs: an array or a number, by kind and number."""

    what: str
    number: int


class Container(NamedTuple):
    """A list, tuple, dict or slice of patterns; equal to another only if it is of the same type."""

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


FREED_VALUES = Identity(FREED)
"""The pattern of the saved values of a freed node."""


def pattern_of(value: Any, at: Callable[[Any], Any]) -> Any:
    """Return the pattern of a value, which can be compared; ``at`` returns the placeholder of a part, or None.

    Raises Untraceable for a value that is not hashable.
    """
    place = at(value)
    if place is not None:
        return place
    if isinstance(value, (list, tuple)):
        return Container(type(value), tuple([pattern_of(item, at) for item in value]))
    if isinstance(value, slice):
        return Container(slice, (pattern_of(value.start, at), pattern_of(value.stop, at), pattern_of(value.step, at)))
    if isinstance(value, Mapping):
        return Container(dict, tuple([(key, pattern_of(item, at)) for key, item in value.items()]))
    try:
        hash(value)
    except TypeError:
        raise Untraceable(f"a node keeps a {type(value).__name__}") from None
    return Constant(type(value), value)


def fill_pattern(value: Any, places: Mapping[str, Any]) -> Any:
    """Return the value of a pattern, with these values for its placeholders."""
    kind = type(value)
    if kind is Constant or kind is Identity:
        return value.value
    if kind is Placeholder:
        return places[value.what][value.number]
    if value.type is dict:
        return {key: fill_pattern(item, places) for key, item in value.items}
    items = [fill_pattern(item, places) for item in value.items]
    return items if value.type is list else value.type(items) if value.type is tuple else value.type(*items)


# Nodes ---------------------------------------------------------------------------------------

FIXED = ("op", "shape", "dtype", "width", "specs", "output_nrs")
"""The attributes of a node that contain no values."""
NOWHERE = -1
"""An edge that leads nowhere: to end 0 of every graph, which is None."""


class NodeData(NamedTuple):
    """A node of a graph."""

    kind: type[Any]
    fixed: Mapping[str, Any] | tuple[tuple[str, Any], ...]
    """Attributes that are the same in every graph that is made."""
    values: tuple[tuple[str, Any], ...]
    """Attributes with their patterns."""
    versions: tuple[tuple[int, int, int], ...]
    """For each saved tensor its position, the number of its version counter, and its version minus that counter's."""
    edges: tuple[int, ...]
    """The numbers of earlier nodes of the graph; ``~n`` for the graph's end ``n``, a node outside of it."""


def node_data(node: Any, attrs: Any, saved: Any, versions: Any, edges: Any) -> NodeData:
    """Return the data of a node, with these patterns of its values, versions and edges. It can be compared."""
    own = vars(node)
    fixed = tuple([(name, tuple(own[name]) if name == "specs" else own[name]) for name in FIXED if name in own])
    values = ("plan", Identity(node.plan)), ("attrs", attrs), ("saved", saved)
    return NodeData(MultiOutputNode if node.many else Node, fixed, values, versions, edges)


def folded(data: NodeData) -> NodeData:
    """Return the same data with constants among the fixed attributes: quicker to make, but not to be compared."""
    constants = {name: value.value for name, value in data.values if type(value) is Constant or type(value) is Identity}
    values = tuple([(name, value) for name, value in data.values if name not in constants])
    return data._replace(fixed={**dict(data.fixed), **constants}, values=values)


def new_node(kind: type[Any], data: NodeData, values: Mapping[str, Any]) -> Any:
    """Make a node, with these values for its placeholders, and without versions, edges and age."""
    node: Any = object.__new__(kind)
    node._update(data.fixed)
    for name, value in data.values:
        setattr(node, name, fill_pattern(value, values))
    return node


def make_nodes(graph: Sequence[NodeData], ends: Sequence[Any], counters: Any, values: Mapping[str, Any]) -> list[Any]:
    """Make the nodes of a graph, in which edges lead to earlier nodes. Return a list from which edges take their nodes.

    ``ends`` are the nodes outside of it, of which the first is None; ``counters`` are version counters by number, and
    ``values`` those of placeholders.
    """
    nodes: list[Any] = [None] * len(graph)
    nodes.extend(reversed(ends))  # so ~n is the index of end n
    for number, data in enumerate(graph):
        node = nodes[number] = new_node(data.kind, data, values)
        if data.versions:
            node.versions = tuple([(at, counters[i], counters[i][0] + version) for at, i, version in data.versions])
        node.next_edges = tuple([nodes[edge] for edge in data.edges])
        node.sequence = next_sequence()
    return nodes


class Numbering(list[Any]):
    """Objects in the order in which they are first seen. The number of one is its index."""

    def __init__(self, objects: Iterable[Any] = ()) -> None:
        super().__init__(objects)
        self.by_id = {id(x): i for i, x in enumerate(self)}

    def of(self, x: Any) -> int:
        """Return the number of an object."""
        number = self.by_id.setdefault(id(x), len(self))
        if number == len(self):
            self.append(x)
        return number
