"""The shadow graph of a compiled call: one node for each result, with edges to the call's inputs.

The nodes in between are not built again. The trace tells where gradients arrive, what is freed and which versions were
saved; the session has the real graph, and makes the final checks. A call's nodes are built if they are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad_engine.autograd.custom_function.ctx import FunctionOp
from telegrad_engine.errors import InvalidOperation
from telegrad_engine.graph.node import FREED, Node
from telegrad_engine.schema.derivative_plan import Plan, Save, Step
from telegrad_engine.shapes import Spec

from ..tape.graph_pattern import Edge, NodePattern, Unrepeatable, graph_since, pattern
from ..tensor.handle import Tensor


class CompiledOp(FunctionOp):
    """The op of a compiled node."""

    has_lists = False


OP: Any = CompiledOp("CompiledFunction")
NO_SECOND = "torch.compile with aot_autograd does not currently support double backward"
"""torch's error text. A second derivative depends on the nodes in between, which are not built."""


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
    return Plan(saves, steps, holds_tensors, saves_self=False, direct=None)


def _refuse(*_: Any) -> Any:
    raise InvalidOperation(NO_SECOND)


class CompiledGraph:
    """The graph of a trace, condensed into a pattern of the results' nodes. Raises Unrepeatable if that is not all."""

    def __init__(self, start: int, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        """``start`` is the sequence number of the first node of the trace."""
        leaves = [index for index, result in enumerate(results) if result._node is None]
        self._nodes, ends = graph_since(start, [*inputs, *[results[index] for index in leaves]], results)
        if any("hooks" in node.attributes for node in self._nodes):
            raise Unrepeatable("it keeps the gradient of something in between, or hooks into it")
        self._tops = sorted({edge[0] for _, edge in ends if edge is not None})
        nodes = [self._condensed(top) for top in self._tops]
        sources = {source for node in nodes for _, source, _ in node.versions if isinstance(source, int)}
        targets = {index for node in nodes for index, _ in filter(None, node.edges)}
        taken = sorted({~index for index in sources | targets if index < 0})
        self.taken = [place if place < len(inputs) else len(inputs) + leaves[place - len(inputs)] for place in taken]
        """The places of the tensors that the pattern takes, among the inputs followed by the results."""
        self.made = [index for index, (_, edge) in enumerate(ends) if edge is not None or index in sources]
        """The indices of the results that are the pattern's outputs."""
        new_node = {top: index for index, top in enumerate(self._tops)} | {~p: ~i for i, p in enumerate(taken)}
        new_source: Any = {result: i for i, result in enumerate(self.made)} | {~p: ~i for i, p in enumerate(taken)}
        self.builder = pattern(
            [
                node._replace(
                    edges=[edge and (new_node[edge[0]], edge[1]) for edge in node.edges],
                    versions=[(i, new_source[source], ago) for i, source, ago in node.versions],
                )
                for node in nodes
            ],
            [(spec, edge and (new_node[edge[0]], edge[1])) for spec, edge in map(ends.__getitem__, self.made)],
        )

    def _condensed(self, top: int) -> NodePattern:
        """The node of a result, which stands for all nodes that lead to it, up to other results and to inputs."""
        due, reached = [top], {top}
        edges, saved = dict[Edge, None](), dict[tuple[int, int], Spec]()
        while due:
            node = self._nodes[due.pop()]
            for edge in filter(None, node.edges):
                if edge[0] < 0 or edge[0] in self._tops:
                    edges[edge] = None
                elif edge[0] not in reached:
                    reached.add(edge[0])
                    due.append(edge[0])
            for position, source, ago in node.versions:
                if isinstance(source, int):
                    data = node.attributes["saved"][position]
                    data = data[0] if isinstance(data, list) else data
                    saved[source, ago] = Spec(data.shape, data.dtype)
        nodes, own = [self._nodes[index].attributes for index in reached], self._nodes[top]
        freed = any(node.get("saved") is FREED for node in nodes)
        ends = [index for index, _ in edges]
        sources = [ends.index(source) if source in ends and source < 0 else len(ends) for source, _ in saved]
        attributes = {
            name: own.attributes[name] for name in ("shape", "dtype", "width", "specs") if name in own.attributes
        }
        attributes["op"] = OP
        attributes["plan"] = _plan(len(ends), tuple(sources), any(node["plan"].holds_tensors for node in nodes))
        attributes["saved"] = FREED if freed else tuple(saved.values())
        versions = [] if freed else [(i, source, ago) for i, (source, ago) in enumerate(saved)]
        return NodePattern(CompiledMultiOutputNode if own.kind.many else CompiledNode, attributes, [*edges], versions)
