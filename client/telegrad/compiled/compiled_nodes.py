"""The shadow graph of a compiled call: one node for each result, with edges to the call's inputs.

The nodes in between are not built again. The trace tells where gradients arrive, what is freed and which versions were
saved; the session has the real graph, and makes the final checks. A call's nodes are built if they are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from telegrad_engine.autograd.custom_function.ctx import FunctionOp
from telegrad_engine.errors import InvalidOperation
from telegrad_engine.graph.node import FREED, Node
from telegrad_engine.schema.derivative_plan import Plan, Save, Step
from telegrad_engine.shapes import Spec

from ..tape.graph_pattern import Edge, NodePattern, pattern
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


def _plan(edges: int, sources: tuple[int, ...], holds_tensors: bool) -> Plan:
    steps = (Step(tuple(range(edges)), _refuse, (), True),) if edges else ()
    saves = tuple([Save("shape", source) for source in sources])  # what is saved is a shape, which nothing unpacks
    return Plan(saves, steps, holds_tensors, saves_self=False, takes=None, direct=None)


def _refuse(*_: Any) -> Any:
    raise InvalidOperation(NO_SECOND)


class CompiledGraph:
    """The graph of a trace, condensed into a pattern of the results' nodes (:mod:`..tape.graph_pattern`)."""

    def __init__(
        self,
        results: Sequence[Tensor],
        inputs: Mapping[tuple[int, int], int],
        counters: Sequence[list[int]],
        start: int,
    ) -> None:
        """``inputs`` has the places of the inputs, by node (or leaf) and output_nr before the call.

        ``counters`` has the version counters of the inputs and the results, in the order of their places, and ``start``
        is the sequence number of the first node of the trace.
        """
        first = len(counters) - len(results)
        leaves = {(id(result), 0): first + index for index, result in enumerate(results) if result._node is None}
        self._places = {**leaves, **inputs}
        self._counters = {id(counter): place for place, counter in reversed(list(enumerate(counters)))}
        self._start = start
        made = {id(result._node): result._node for result in results if result._node is not None}
        if not all(map(self._is_inside, made.values())):
            raise Unrepeatable("it gives back a tensor with a history from before")
        tops = sorted(made.values(), key=lambda node: node.sequence)
        self._index = {id(node): index for index, node in enumerate(tops)}
        self.taken: list[int] = []
        """The places of the tensors that the pattern takes."""
        found = [self._condensed(top) for top in tops]
        saved = {place for _, versions in found for place, _ in versions}
        self.made = [index for index, r in enumerate(results) if r._node is not None or first + index in saved]
        """The indices of the results that are the pattern's outputs."""
        outputs = {first + index: output for output, index in enumerate(self.made)}
        nodes = [
            node._replace(
                versions=[
                    (i, outputs[p] if p in outputs else self._tensor(p), ago) for i, (p, ago) in enumerate(versions)
                ]
            )
            for node, versions in found
        ]
        ends = [(r._data, None if r._node is None else (self._index[id(r._node)], r._output_nr)) for r in results]
        self.entry = pattern(nodes, [ends[index] for index in self.made])

    def _is_inside(self, node: Any) -> bool:
        return not node.is_leaf_target and node.sequence >= self._start

    def _tensor(self, place: int) -> int:
        """``~`` the index of the tensor at this place among those that the pattern takes."""
        if place not in self.taken:
            self.taken.append(place)
        return ~self.taken.index(place)

    def _condensed(self, top: Node) -> tuple[NodePattern, Sequence[tuple[int, int]]]:
        """The node of a result. Its saved tensors come separately: their places, and how many versions ago that was."""
        reached, found = list(self._walk(top)), dict[Edge, None]()
        saved: dict[tuple[int, int], Spec] = {}
        for node in reached:
            if node.hooks is not None:
                raise Unrepeatable("it keeps the gradient of something in between, or hooks into it")
            for target, output_nr in zip(node.next_edges, node.output_nrs or (0,) * len(node.next_edges), strict=True):
                if target is not None and (target.is_leaf_target or not self._passes(target)):
                    found[self._edge(target, output_nr)] = None
            for position, counter, version in node.versions:
                place = self._counters.get(id(counter))
                if place is not None:
                    data = node.saved[position]
                    data = data[0] if isinstance(data, list) else data
                    saved[place, counter[0] - version] = Spec(data.shape, data.dtype)
        edges = [*found]
        if any(node.saved is FREED for node in reached):
            versions, attributes = [], {"saved": FREED}
        else:
            versions, attributes = [*saved], {"saved": tuple(saved.values())}
        ends = [self.taken[~index] if index < 0 else None for index, _ in edges]
        sources = [ends.index(place) if place in ends else len(ends) for place, _ in saved]
        attributes |= {
            "op": OP,
            "plan": _plan(len(edges), tuple(sources), any(node.plan.holds_tensors for node in reached)),
            "shape": top.shape,
            "dtype": top.dtype,
        }
        if top.many:
            attributes |= {"width": len(top.specs), "specs": top.specs}
        return NodePattern(CompiledMultiOutputNode if top.many else CompiledNode, attributes, edges, ()), versions

    def _walk(self, top: Node) -> Iterator[Node]:
        """Yield the nodes that lead to a result's node, up to other results and to inputs."""
        due, seen = [top], {id(top)}
        while due:
            node = due.pop()
            yield node
            for target in node.next_edges:
                if target is not None and not target.is_leaf_target and self._passes(target) and id(target) not in seen:
                    seen.add(id(target))
                    due.append(target)

    def _passes(self, node: Any) -> bool:
        return self._is_inside(node) and id(node) not in self._index

    def _edge(self, target: Any, output_nr: int) -> Edge:
        if id(target) in self._index:
            return self._index[id(target)], output_nr
        place = self._places.get((id(target), output_nr))
        if place is not None:
            return self._tensor(place), 0
        if target.is_leaf_target and isinstance(target, Tensor) and target._id.startswith("t"):
            raise Unrepeatable("gradients flow to a tensor that is out of sight")
        raise Unrepeatable("a history from before is part of what it computes")
