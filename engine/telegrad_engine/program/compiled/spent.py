"""What is left of a graph that a backward pass went through, for the tensors that outlive the program.

Nobody will differentiate it again: its nodes saved nothing, or are freed. But it can be looked at, and a second
backward says so. As hardly anybody does either, a node finds the nodes before it when it is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple
from weakref import ref

from ...backends.tape import Ref
from ...graph import ManyNode, Node, next_sequence, skip_sequence


class SpentNode(NamedTuple):
    """A node as data."""

    many: bool
    attributes: Mapping[str, Any]
    """What all its instances have in common, but for the numbers that stand in it as references."""
    varies: bool
    """Whether there are such."""
    next: tuple[tuple[bool, int] | None, ...]
    """For each edge whether it leads to a leaf, and the number of the tensor or the node; None where there is none."""


class SpentGraph(NamedTuple):
    """A graph as data: its nodes, oldest first, and the numbers of its leaves."""

    nodes: Sequence[SpentNode]
    leaves: Sequence[int]


class Spent:
    """The graph of one run: its nodes, made when they are needed, and the leaves."""

    def __init__(self, graph: SpentGraph, tensors: Sequence[Any], numbers: Mapping[int, Any]) -> None:
        self._plans, self._numbers = graph.nodes, numbers
        self._leaves = {number: tensors[number] for number in graph.leaves}
        self._nodes: dict[int, ref[Any]] = {}
        """Those that were asked for; a WeakValueDictionary takes twice as long to make and fill."""
        self._sequence = next_sequence()
        skip_sequence(len(self._plans))

    def node(self, number: int) -> Any:
        """The node of this number."""
        known = self._nodes.get(number)
        node = None if known is None else known()
        if node is None:
            plan = self._plans[number]
            node = object.__new__(_SpentMany if plan.many else _Spent)
            vars(node).update(resolved(plan.attributes, self._numbers) if plan.varies else plan.attributes)
            node.sequence = self._sequence + number
            node._graph, node._edges = self, plan.next
            self._nodes[number] = ref(node)
        return node

    def before(self, edges: Sequence[tuple[bool, int] | None]) -> tuple[Any, ...]:
        """Where edges lead."""
        return tuple([e and (self._leaves[e[1]] if e[0] else self.node(e[1])) for e in edges])


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
    _edges: Sequence[tuple[bool, int] | None]

    @cached_property
    def next(self) -> tuple[Any, ...]:  # type: ignore[override]
        return self._graph.before(self._edges)


class _SpentMany(ManyNode, _Spent):
    """Likewise, of an op with several outputs."""
