"""The edges, the leaves and the memory of a recorded graph, which tests look at.

Internals: nodes are walked as the backward pass does, and the arrays that they saved are measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from telegrad_engine.graph.node import Node, walk


class Edge(NamedTuple):
    """An edge of the graph, from ``input`` of ``node`` to output ``output_nr`` of ``target``."""

    node: Node
    input: int
    target: Any
    output_nr: int


def edges(root: Node) -> Iterator[Edge]:
    """Yield all edges that gradients from ``root`` follow, those of newer nodes first."""
    for node in walk(root):
        output_nrs = node.output_nrs or (0,) * len(node.next_edges)
        for index, (target, output_nr) in enumerate(zip(node.next_edges, output_nrs, strict=True)):
            if target is not None:
                yield Edge(node, index, target, output_nr)


def leaves(root: Node) -> list[Any]:
    """Return the leaf tensors that gradients from ``root`` reach, each once."""
    return list(dict.fromkeys(edge.target.leaf for edge in edges(root) if edge.target.leaf is not None))


def saved_bytes(root: Node) -> int:
    """Return the bytes of the arrays that ``root`` and the nodes reachable from it save for their derivatives.

    Memory that several nodes or views share counts once. Saved parameters count too, although they would exist
    without the graph.
    """
    buffers: dict[int, int] = {}
    for node in walk(root):
        for array in _saved_arrays(node):
            owner = _owner(array)
            buffers[id(owner)] = owner.nbytes
    return sum(buffers.values())


def _saved_arrays(node: Any) -> Iterator[Any]:
    if node.evaluate is None:
        values = [x for value in node.saved for x in (value if isinstance(value, list) else [value])]
    else:  # a custom Function keeps tensors in its ctx
        values = [saved.tensor._data for saved in node.ctx._saved if hasattr(saved, "tensor")]
    return (value for value in values if hasattr(value, "nbytes"))


def _owner(array: Any) -> Any:
    """Return the array that owns the memory of ``array``."""
    while hasattr(getattr(array, "base", None), "nbytes"):
        array = array.base
    return array
