"""The shadow graph of a compiled call: one node for each result, with edges to the call's inputs.

The nodes in between are not built again. The trace tells where gradients arrive, what is freed and which versions were
saved; the session has the real graph, and makes the final checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from telegrad_engine.autograd.custom_function.ctx import FunctionOp
from telegrad_engine.errors import InvalidOperation
from telegrad_engine.graph.node import FREED, Node, accumulator, next_sequence
from telegrad_engine.schema.derivative_plan import Plan, Save, Step
from telegrad_engine.shapes import Spec

from ..tensor.handle import Tensor


class CompiledOp(FunctionOp):
    """The op of a compiled node."""

    has_lists = False


OP: Any = CompiledOp("CompiledFunction")
NO_SECOND = "torch.compile with aot_autograd does not currently support double backward"
"""torch's error text. A second derivative depends on the nodes in between, which are not built."""


class Unrepeatable(Exception):
    """Raised with the reason why a trace cannot be run again."""


class CompiledNode(Node):
    """Stands for all nodes that led to a result of a compiled call."""

    def name(self) -> str:
        """The node's name in torch."""
        return "CompiledFunctionBackward"


class CompiledMultiOutputNode(CompiledNode):
    """A :class:`CompiledNode` for an operation with several results."""

    many = True


class Edge(NamedTuple):
    """The target of gradients: an input of the call, another result's node, or a result."""

    tensor: int | None
    node: int | None
    output_nr: int
    result: int | None = None
    """The index of a result that is a leaf."""


class Version(NamedTuple):
    """A saved tensor: the place of its version counter, and how many versions before the last one it was saved."""

    place: int
    behind: int
    spec: Spec


class NodeTemplate(NamedTuple):
    """The description from which each call builds a node."""

    many: bool
    specs: Sequence[Any]
    edges: Sequence[Edge]
    freed: bool
    holds_tensors: bool
    versions: Sequence[Version]


@lru_cache(256)
def _plan(edges: int, sources: tuple[int, ...], holds_tensors: bool) -> Plan:
    steps = (Step(tuple(range(edges)), _refuse, (), True),) if edges else ()
    saves = tuple([Save("shape", source) for source in sources])  # what is saved is a shape, which nothing unpacks
    return Plan(saves, steps, holds_tensors, saves_self=False, takes=None, direct=None)


def _refuse(*_: Any) -> Any:
    raise InvalidOperation(NO_SECOND)


class Condenser:
    """Condenses a trace's shadow graph into templates for the results' nodes."""

    def __init__(
        self, results: Sequence[Tensor], places: Mapping[tuple[int, int], int], cells: Sequence[list[int]], start: int
    ) -> None:
        self._places = places
        """The places of the inputs, by node (or leaf) and output_nr before the call."""
        self._cells = {id(cell): place for place, cell in reversed(list(enumerate(cells)))}
        """The places of the inputs and results, by the identity of the version counter."""
        self._start = start
        """The sequence number of the first node of the trace."""
        self._leaves = {id(result): index for index, result in enumerate(results)}
        made = {id(r._node): r._node for r in results if r._node is not None and self._is_inside(r._node)}
        self.nodes = sorted(made.values(), key=lambda node: node.sequence)
        self._index = {id(node): index for index, node in enumerate(self.nodes)}
        self.templates = [self._condensed(node) for node in self.nodes]

    def node_of(self, result: Tensor) -> int | None:
        """The index of a result's node, or None if it has none."""
        if result._node is None:
            return None
        if id(result._node) not in self._index:
            raise Unrepeatable("it gives back a tensor with a history from before")
        return self._index[id(result._node)]

    def _is_inside(self, node: Any) -> bool:
        return node.leaf is None and node.sequence >= self._start

    def _condensed(self, top: Node) -> NodeTemplate:
        reached, edges = list(self._walk(top)), dict[Edge, None]()
        versions: dict[tuple[int, int], Version] = {}
        for node in reached:
            if node.hooks is not None:
                raise Unrepeatable("it keeps the gradient of something in between, or hooks into it")
            for target, output_nr in zip(node.next_edges, node.output_nrs or (0,) * len(node.next_edges), strict=True):
                if target is not None and (target.leaf is not None or not self._passes(target)):
                    edge = self._edge(target, output_nr)
                    if edge is not None:
                        edges[edge] = None
            for position, cell, version in node.versions:
                place = self._cells.get(id(cell))
                if place is not None:
                    data = node.saved[position]
                    data = data[0] if isinstance(data, list) else data
                    versions[place, version] = Version(place, cell[0] - version, Spec(data.shape, data.dtype))
        return NodeTemplate(
            top.many,
            top.specs if top.many else [(top.shape, top.dtype)],
            tuple(edges),
            any(node.saved is FREED for node in reached),
            any(node.plan.holds_tensors for node in reached),
            tuple(versions.values()),
        )

    def _walk(self, top: Node) -> Iterator[Node]:
        """Yield the nodes that lead to a result's node, up to other results and to inputs."""
        due, seen = [top], {id(top)}
        while due:
            node = due.pop()
            yield node
            for target in node.next_edges:
                if target is not None and target.leaf is None and self._passes(target) and id(target) not in seen:
                    seen.add(id(target))
                    due.append(target)

    def _passes(self, node: Any) -> bool:
        return self._is_inside(node) and id(node) not in self._index

    def _edge(self, target: Any, output_nr: int) -> Edge | None:
        if id(target) in self._index:
            return Edge(None, self._index[id(target)], output_nr)
        end = target if target.leaf is None else target.leaf
        place = self._places.get((id(end), output_nr))
        if place is not None:
            return Edge(place, None, output_nr)
        if id(end) in self._leaves:
            return Edge(None, None, 0, self._leaves[id(end)])
        if isinstance(end, Tensor) and end._id.startswith("t"):
            raise Unrepeatable("gradients flow to a tensor that is out of sight")
        raise Unrepeatable("a history from before is part of what it computes")


def instantiate(
    templates: Sequence[NodeTemplate],
    tensors: Sequence[Tensor],
    results: Sequence[Tensor],
    cell: Callable[[int], list[int]],
) -> list[Node]:
    """Build the nodes of one call on its inputs and results; ``cell`` returns the version counter at a place."""
    nodes: list[Node] = []
    for template in templates:
        node = CompiledMultiOutputNode() if template.many else CompiledNode()
        node.op = OP
        targets: list[Any] = []
        output_nrs: list[int] = []
        for edge in template.edges:
            if edge.node is not None:
                targets.append(nodes[edge.node])
                output_nrs.append(edge.output_nr)
            else:
                tensor = results[edge.result] if edge.result is not None else tensors[edge.tensor or 0]
                targets.append(accumulator(tensor) if tensor._node is None else tensor._node)
                output_nrs.append(tensor._output_nr)
        node.next_edges, node.output_nrs = tuple(targets), tuple(output_nrs)
        sources = [_source(version.place, template.edges) for version in template.versions]
        node.plan = _plan(len(targets), tuple(sources), template.holds_tensors)
        node.sequence = next_sequence()
        node.shape, node.dtype = template.specs[0]
        if template.many:
            node.width, node.specs = len(template.specs), template.specs
        if template.freed:
            node.saved = FREED
        else:
            node.saved = tuple([version.spec for version in template.versions])
            counters = [cell(version.place) for version in template.versions]
            node.versions = tuple(
                [(i, c, c[0] - v.behind) for i, (c, v) in enumerate(zip(counters, template.versions, strict=True))]
            )
        nodes.append(node)
    return nodes


def _source(place: int, edges: Sequence[Edge]) -> int:
    """The index of the edge that leads to a saved tensor; one past the last if none does."""
    return next((i for i, edge in enumerate(edges) if edge.tensor == place), len(edges))
