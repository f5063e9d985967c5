"""Graphs as data: the one behind the tensors that a program takes, and the one that it leaves behind its results.

What a pass has not gone through yet is left as nodes like any others, with what they saved. Of what is spent a node
finds the nodes before it when it is asked, as hardly anybody does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from ...backends.numpy_tracer import Ref
from ...backends.symbolic import Untraceable
from ...graph import FREED, ManyNode, Node, next_sequence, skip_sequence

MOST_NODES = 2**11
"""How many nodes a graph may have that a program takes: it is read at every run."""
LEAF, MADE, TAKEN, BEYOND = "leaf", "made", "taken", "beyond"
"""Where an edge leads: to a tensor, to a node that the program makes, or to one that was there before; or, from one
that is spent, where nobody goes any more."""
Target = tuple[str, int]
FIXED = ("op", "plan", "shape", "dtype", "width", "specs", "slots")
"""What the nodes of one kind have in common."""


# Values with places in them ------------------------------------------------------------------


class At(NamedTuple):
    """Stands for a value that differs from run to run: one of these numbers, arrays, tensors or memories."""

    what: str
    number: int


class Each(NamedTuple):
    """A list, a tuple or a dict with such places in it; equal to another only if it is of the same type."""

    type: type
    items: tuple[Any, ...]


class Just(NamedTuple):
    """A value that is always the same; equal to another only if it is of the same type."""

    type: type
    value: Any


def template(value: Any, at: Callable[[Any], Any]) -> Any:
    """A value as something that can be compared, with ``at`` of a part in the part's place where that is not None.

    Raises Untraceable where that cannot be, as with an object that has no hash.
    """
    place = at(value)
    if place is not None:
        return place
    if isinstance(value, (list, tuple)):
        return Each(type(value), tuple([template(item, at) for item in value]))
    if isinstance(value, slice):
        return Each(slice, (template(value.start, at), template(value.stop, at), template(value.step, at)))
    if isinstance(value, Mapping):
        return Each(dict, tuple([(key, template(item, at)) for key, item in value.items()]))
    try:
        hash(value)
    except TypeError:
        raise Untraceable(f"a node keeps a {type(value).__name__}") from None
    return Just(type(value), value)


def filled(value: Any, places: Mapping[str, Sequence[Any]]) -> Any:
    """The value that a template is of, with what is at its places now."""
    kind = type(value)
    if kind is Just:
        return value.value
    if kind is At:
        return places[value.what][value.number]
    if value.type is dict:
        return {key: filled(item, places) for key, item in value.items}
    items = [filled(item, places) for item in value.items]
    return items if value.type is list else value.type(items) if value.type is tuple else value.type(*items)


# The graph that a program takes --------------------------------------------------------------


class NodeSignature(NamedTuple):
    """A node that was there before, as far as an executable depends on it."""

    many: bool
    fixed: tuple[Any, ...]
    """Its attributes of these names, in the order of ``FIXED``."""
    attrs: Any
    saved: Any
    versions: tuple[tuple[int, int], ...]
    """For each tensor that was saved its position, and which of the tensors has its version; negative where none."""
    next: tuple[Target | None, ...]


class GraphSignature(NamedTuple):
    """The graph behind the tensors that a program takes, as far as an executable depends on it."""

    nodes: tuple[NodeSignature, ...]
    """Oldest first."""
    roots: tuple[tuple[int, int, int], ...]
    """Of the tensors that have a history: which it is, its node, and which of that node's outputs."""
    arrays: tuple[tuple[Any, ...], ...]
    """The shapes, dtypes and strides of what the nodes saved, and whose memory each may show: a tensor's number."""


class InputGraph(NamedTuple):
    """What is behind the tensors that a program finds."""

    kind: GraphSignature
    nodes: list[Any]
    arrays: list[Any]
    numbers: list[float]


def read(tensors: Sequence[Any], place: Callable[[Any], int], owner: Callable[[Any], Any]) -> InputGraph:
    """The graph behind these tensors, whose leaves join them by ``place``. Raises Untraceable for what cannot be taken.

    ``owner`` is what has the memory of an array.
    """
    return _Reader(tensors, place, owner).read()


class _Reader:
    def __init__(self, tensors: Sequence[Any], place: Callable[[Any], int], owner: Callable[[Any], Any]) -> None:
        self._tensors, self._place, self._owner = tensors, place, owner
        self._arrays: list[Any] = []
        self._shown: list[int | None] = []
        self._floats: list[float] = []

    def read(self) -> InputGraph:
        roots = [(i, x._node, x._slot) for i, x in enumerate(self._tensors) if x._node is not None]
        if any(node.is_sink for _, node, _ in roots):
            raise Untraceable("what it takes stands in for another tensor")
        nodes = _reached([node for _, node, _ in roots])
        order = {id(node): number for number, node in enumerate(nodes)}
        targets = [tuple([self._target(target, order, node) for target in node.next]) for node in nodes]
        self._data = {id(x._data): i for i, x in enumerate(self._tensors)}
        self._cells = {id(x._cell): i for i, x in enumerate(self._tensors)}
        self._owners = {id(self._owner(x._data)): i for i, x in enumerate(self._tensors)}
        kinds = tuple(map(self._node, nodes, targets))
        places = tuple([(i, order[id(node)], slot) for i, node, slot in roots])
        specs = [(x.shape, x.dtype, x.strides, of) for x, of in zip(self._arrays, self._shown, strict=True)]
        return InputGraph(GraphSignature(kinds, places, tuple(specs)), nodes, self._arrays, self._floats)

    def _target(self, target: Any, order: Mapping[int, int], node: Any) -> Target | None:
        if target is None:
            return None
        if node.saved is FREED:
            return BEYOND, 0
        return (LEAF, self._place(target)) if target.is_sink else (TAKEN, order[id(target)])

    def _node(self, node: Any, targets: tuple[Target | None, ...]) -> NodeSignature:
        if not isinstance(node, Node) or not node.plain or node.hooks is not None or node.evaluate is not None:
            raise Untraceable("the history behind what it takes has hooks, or a user's function")
        fixed = (
            node.op,
            _Same(node.plan),
            *[getattr(node, name, None) for name in FIXED[2:5]],
            _specs(node),
            node.slots,
        )
        attrs = template(node.attrs, self._at)
        if node.saved is FREED:
            return NodeSignature(node.many, fixed, attrs, None, (), targets)
        versions = tuple([self._version(*version) for version in node.versions])
        # Of a list of tensors each has a version.
        cells = dict(versions) if len({at for at, _ in versions}) == len(versions) else {}
        saved = [template(x, partial(self._at, of=cells.get(at, -1))) for at, x in enumerate(node.saved)]
        return NodeSignature(node.many, fixed, attrs, Each(tuple, tuple(saved)), versions, targets)

    def _at(self, value: Any, of: int = -1) -> At | None:
        """What stands for a part of what a node keeps; it has the version of the tensor ``of``, if of one."""
        if type(value) is float:
            self._floats.append(value)
            return At("numbers", len(self._floats) - 1)
        if not isinstance(value, (np.ndarray, np.generic)):
            return None
        tensor = self._data.get(id(value))
        if tensor is not None:
            return At("tensors", tensor)
        self._arrays.append(value)
        # A plan may have left a copy where the eager run leaves a view: the same will do for both.
        self._shown.append(of if of >= 0 else self._owners.get(id(self._owner(value))))
        return At("arrays", len(self._arrays) - 1)

    def _version(self, position: int, cell: list[int], version: int) -> tuple[int, int]:
        if cell[0] != version:
            raise Untraceable("a tensor that the history needs was changed in place")
        return position, self._cells.setdefault(id(cell), -1 - len(self._cells))


class _Same:
    """A value that is compared by what it is, not by what is in it."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def _specs(node: Any) -> Any:
    specs = getattr(node, "specs", None)
    return None if specs is None else tuple(specs)


def _next(node: Any) -> Sequence[Any]:
    """Where a node's edges lead; nobody goes on from one that is spent."""
    return () if node.saved is FREED else node.next


def _reached(roots: Sequence[Any]) -> list[Any]:
    """All nodes behind these that a pass may still go through, oldest first."""
    order = list({id(root): root for root in roots}.values())
    seen = set(map(id, order))
    for node in order:
        for target in _next(node):
            if target is not None and not target.is_sink and id(target) not in seen:
                seen.add(id(target))
                order.append(target)
        if len(order) > MOST_NODES:
            raise Untraceable("the history behind what it takes is long")
    order.sort(key=lambda node: node.sequence)
    return order


_BEYOND: Any = [Node()]
_BEYOND[0].saved = FREED


def rebuilt(kind: GraphSignature, tensors: Sequence[Any], arrays: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
    """Nodes of the kind over these tensors, with these arrays and numbers saved, and the tensors' places set."""
    places = {"tensors": [x._data for x in tensors], "arrays": arrays, "numbers": numbers}
    cells: dict[int, list[int]] = {}
    nodes: list[Any] = []
    for each in kind.nodes:
        node: Any = object.__new__(ManyNode if each.many else Node)
        own = dict(zip(FIXED, each.fixed, strict=True))
        vars(node).update({name: value for name, value in own.items() if value is not None}, plan=own["plan"].value)
        node.attrs = filled(each.attrs, places)
        node.saved = FREED if each.saved is None else filled(each.saved, places)
        found = [(at, tensors[i]._cell if i >= 0 else cells.setdefault(i, [0])) for at, i in each.versions]
        node.versions = tuple([(at, cell, cell[0]) for at, cell in found])
        ends = {LEAF: tensors, TAKEN: nodes, BEYOND: _BEYOND}
        node.next = tuple([e and ends[e[0]][e[1]] for e in each.next])
        node.sequence = next_sequence()
        nodes.append(node)
    for tensor, number, slot in kind.roots:
        tensors[tensor]._node, tensors[tensor]._slot = nodes[number], slot
        tensors[tensor]._requires_grad = True
    return nodes


# The graph that a program leaves -------------------------------------------------------------


class NodeData(NamedTuple):
    """A node that a program leaves."""

    many: bool
    attributes: Mapping[str, Any]
    """What all its instances have in common, but for the numbers that stand in it as references."""
    varies: bool
    """Whether there are such."""
    next: tuple[Target | None, ...]
    saved: Any
    """Where a pass may still go through it, a template of what it saved, else None."""
    versions: tuple[tuple[int, int, int], ...]
    """For each tensor that was saved its position, the number of its version counter, and how far that had gone."""


class GraphData:
    """The graph that a program leaves: its nodes, oldest first, and the numbers of its leaves."""

    def __init__(self, nodes: Sequence[NodeData], leaves: Sequence[int]) -> None:
        self.nodes = nodes
        self.is_spent = all(node.saved is None for node in nodes)
        """Whether no pass will go through any of it."""
        taken = {e[1] for node in nodes for e in node.next if e is not None and e[0] is TAKEN}
        self.leaves, self.taken = [(LEAF, number) for number in leaves], [(TAKEN, number) for number in sorted(taken)]
        """Where its edges leave it: at leaves, and at nodes that were there before."""


class Surroundings(NamedTuple):
    """What the graph of one run refers to."""

    tensors: Sequence[Any]
    taken: Sequence[Any]
    """The nodes that were there before."""
    numbers: Mapping[int, Any]
    """The Python numbers that its nodes keep."""
    places: Mapping[str, Sequence[Any]]
    """The arrays that they do."""
    cells: Sequence[list[int]]


def nodes_of(graph: GraphData, around: Surroundings) -> Callable[[int], Any]:
    """What gives the nodes of one run's graph, by their numbers."""
    if graph.is_spent:
        return Spent(graph, around).node
    return _made(graph, around).__getitem__


def _made(graph: GraphData, around: Surroundings) -> list[Any]:
    """The nodes, each with what it saved."""
    cells = around.cells
    nodes: list[Any] = []
    for data in graph.nodes:
        node: Any = object.__new__(ManyNode if data.many else Node)
        vars(node).update(resolved(data.attributes, around.numbers) if data.varies else data.attributes)
        if data.saved is not None:
            saved = filled(data.saved, around.places)
            node.saved = resolved(saved, around.numbers) if data.varies else saved
            node.versions = tuple([(at, cells[c], cells[c][0] + version) for at, c, version in data.versions])
        node.next = tuple([e and end(e, nodes.__getitem__, around) for e in data.next])
        node.sequence = next_sequence()
        nodes.append(node)
    return nodes


def end(target: Target, made: Any, around: Surroundings) -> Any:
    """Where an edge leads."""
    where, number = target
    if where is LEAF:
        return around.tensors[number]
    return made(number) if where is MADE else around.taken[number]


class Spent:
    """The graph of one run that no pass will go through: its nodes, made when they are needed."""

    def __init__(self, graph: GraphData, around: Surroundings) -> None:
        self._nodes_data, self._numbers = graph.nodes, around.numbers
        # Not all of what is around: nothing but the ends of edges may be kept alive.
        self._ends: dict[Target, Any] = {leaf: around.tensors[leaf[1]] for leaf in graph.leaves}
        for taken in graph.taken:
            self._ends[taken] = around.taken[taken[1]]
        self._nodes: dict[int, ref[Any]] = {}
        """Those that were asked for; a WeakValueDictionary takes twice as long to make and fill."""
        self._sequence = next_sequence()
        skip_sequence(len(self._nodes_data))

    def node(self, number: int) -> Any:
        """The node of this number."""
        known = self._nodes.get(number)
        node = None if known is None else known()
        if node is None:
            data = self._nodes_data[number]
            node = object.__new__(_SpentMany if data.many else _Spent)
            vars(node).update(resolved(data.attributes, self._numbers) if data.varies else data.attributes)
            node.sequence = self._sequence + number
            node._graph, node._edges = self, data.next
            self._nodes[number] = ref(node)
        return node

    def before(self, edges: Sequence[Target | None]) -> tuple[Any, ...]:
        """Where edges lead."""
        return tuple([e and (self.node(e[1]) if e[0] is MADE else self._ends[e]) for e in edges])


def resolved(value: Any, numbers: Mapping[int, Any]) -> Any:
    """Nested tuples, lists and dicts with numbers in place of references to them."""
    if type(value) is Ref:
        return numbers[value.number]
    if isinstance(value, dict):
        return {key: resolved(item, numbers) for key, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)([resolved(item, numbers) for item in value])
    return value


class _Spent(Node):
    """A node that finds the nodes before it when it is asked."""

    _graph: Spent
    _edges: Sequence[Target | None]

    @cached_property
    def next(self) -> tuple[Any, ...]:  # type: ignore[override]
        return self._graph.before(self._edges)


class _SpentMany(ManyNode, _Spent):
    """Likewise, of an op with several outputs."""
