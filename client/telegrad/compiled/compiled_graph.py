"""The shadow graph of a compiled call: one node for each result, with edges to the call's inputs.

The nodes in between are not built again. The trace tells where gradients arrive, what is freed and which versions were
saved; the session has the real graph, and makes the final checks. A call's nodes are built if they are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad_engine.autograd.custom_function.ctx import FunctionOp
from telegrad_engine.errors import InvalidOperation
from telegrad_engine.graph.data import NOWHERE, NodeData
from telegrad_engine.graph.node import FREED, Node
from telegrad_engine.schema.derivative_plan import DerivativeStep, Plan, Save
from telegrad_engine.shapes import Spec

from ..tape.graph_pattern import Pattern, Unrepeatable, pattern_since
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
    steps = (DerivativeStep(tuple(range(edges)), _refuse, (), True),) if edges else ()
    saves = tuple([Save("shape", source) for source in sources])  # what is saved is a shape, which nothing unpacks
    return Plan(saves, steps, holds_tensors, saves_self=False, direct=None)


def _refuse(*_: Any) -> Any:
    raise InvalidOperation(NO_SECOND)


class CompiledGraph:
    """The graph of a trace, condensed into a pattern of the results' nodes. Raises Unrepeatable if that is not all."""

    def __init__(self, start: int, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        """``start`` is the sequence number of the first node of the trace."""
        leaves = [index for index, result in enumerate(results) if result._node is None]
        traced = pattern_since(start, [*inputs, *[results[index] for index in leaves]], results)
        if any("hooks" in node.fixed for node in traced.nodes):
            raise Unrepeatable("it keeps the gradient of something in between, or hooks into it")
        tops = sorted({root[0] for _, root in traced.results if root is not None})
        nodes = [_condensed(traced.nodes, top, tops, len(results)) for top in tops]
        counters = {counter for node in nodes for _, counter, _ in node.versions}
        ends = {edge for node in nodes for edge in node.edges if edge < NOWHERE}
        taken = sorted({-2 - edge for edge in ends} | {~counter for counter in counters if counter < 0})
        self.taken = [place if place < len(inputs) else len(inputs) + leaves[place - len(inputs)] for place in taken]
        """The places of the tensors that the pattern takes, among the inputs followed by the results."""
        self.made = [index for index, (_, root) in enumerate(traced.results) if root is not None or index in counters]
        """The indices of the results that are the pattern's outputs."""
        edges = {top: index for index, top in enumerate(tops)} | {-2 - place: -2 - i for i, place in enumerate(taken)}
        numbers = {made: i for i, made in enumerate(self.made)} | {~place: ~i for i, place in enumerate(taken)}
        self.builder = Pattern(
            [
                node._replace(
                    edges=tuple([edges[edge] for edge in node.edges]),
                    versions=tuple([(i, numbers[counter], version) for i, counter, version in node.versions]),
                )
                for node in nodes
            ],
            (),
            [(spec, root and (edges[root[0]], root[1])) for spec, root in map(traced.results.__getitem__, self.made)],
        )


def _condensed(nodes: Sequence[Any], top: int, tops: Sequence[int], results: int) -> NodeData:
    """The node of a result, which stands for all nodes that lead to it, up to those of ``results`` and to inputs."""
    due, reached = [top], {top}
    edges, saved = dict[tuple[int, int], None](), dict[tuple[int, int], Spec]()
    for number in due:
        node = nodes[number]
        for edge, output_nr in zip(node.edges, node.fixed.get("output_nrs") or (0,) * len(node.edges), strict=True):
            if edge < NOWHERE or edge in tops:
                edges[edge, output_nr] = None
            elif edge != NOWHERE and edge not in reached:
                reached.add(edge)
                due.append(edge)
        for position, counter, version in node.versions:
            if counter < results:
                data = node.fixed["saved"][position]
                data = data[0] if isinstance(data, list) else data
                saved[counter, version] = Spec(data.shape, data.dtype)
    inner, own = [nodes[number].fixed for number in due], nodes[top]
    freed, ends = any(node.get("saved") is FREED for node in inner), [edge for edge, _ in edges]
    # An edge to tensor i leads to end i + 1, and its counter is ~i.
    sources = tuple([ends.index(c - 1) if c < 0 and c - 1 in ends else len(ends) for c, _ in saved])
    fixed = {name: own.fixed[name] for name in ("shape", "dtype", "width", "specs") if name in own.fixed}
    fixed["op"], fixed["plan"] = OP, _plan(len(ends), sources, any(node["plan"].holds_tensors for node in inner))
    fixed["saved"] = FREED if freed else tuple(saved.values())
    if any(output_nr for _, output_nr in edges):
        fixed["output_nrs"] = tuple([output_nr for _, output_nr in edges])
    versions = () if freed else tuple([(i, counter, version) for i, (counter, version) in enumerate(saved)])
    return NodeData(CompiledMultiOutputNode if own.kind.many else CompiledNode, fixed, (), versions, tuple(ends))
