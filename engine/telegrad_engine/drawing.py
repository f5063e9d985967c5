"""The graph behind tensors as data, as Graphviz DOT and as a Mermaid flowchart.

An edge leads the way values flow: from what an operation took to the operation, and on to the
named results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .dtypes import from_numpy
from .graph import walk


class Vertex(NamedTuple):
    """An operation or a leaf of a drawn graph."""

    id: str
    kind: str
    """``"op"``, ``"leaf"`` or ``"tensor"`` (a root outside the graph)."""
    op: str | None
    grad_fn: str
    shape: list[int]
    dtype: str
    tensors: list[str]
    """Names of the tensors that it is, or that it made."""


class Edge(NamedTuple):
    """A value that flows: this output of ``source`` is this input of ``target``."""

    source: str
    target: str
    output: int
    input: int


class Drawing(NamedTuple):
    """A graph, newest operation first, leaves last."""

    nodes: list[Vertex]
    edges: list[Edge]


def draw(roots: Sequence[Any], names: Mapping[str, Any]) -> Drawing:
    """The graph that leads to the tensors ``roots``; ``names`` maps names to tensors."""
    called = _names_by_place(names)
    ids: dict[Any, str] = {}
    vertices: list[Vertex] = []
    edges: list[Edge] = []
    for node in sorted(_nodes(roots), key=lambda node: -node.sequence):
        ids[node] = f"n{len(ids)}"
        dtype = from_numpy(node.dtype).name
        vertices.append(
            Vertex(ids[node], "op", node.op.key, node.name(), list(node.shape), dtype, called.get(node, []))
        )
    for node in [place for place in ids if not place.is_sink]:
        slots = node.slots or (0,) * len(node.next)
        for index, (target, slot) in enumerate(zip(node.next, slots, strict=True)):
            if target is None:
                continue
            if target not in ids:
                vertices.append(_leaf(ids, target, called))
            edges.append(Edge(ids[target], ids[node], slot, index))
    vertices.extend(_leaf(ids, root, called) for root in roots if root.grad_fn is None and root not in ids)
    return Drawing(vertices, edges)


def _nodes(roots: Sequence[Any]) -> Iterator[Any]:
    seen = set()
    for root in roots:
        node = root.grad_fn
        if node is None or node in seen:
            continue
        for reached in walk(node):
            if reached not in seen:
                seen.add(reached)
                yield reached


def _names_by_place(names: Mapping[str, Any]) -> dict[Any, list[str]]:
    """Names by the node that made a tensor, or by the leaf itself."""
    called: dict[Any, list[str]] = {}
    for name, tensor in names.items():
        place = tensor.grad_fn
        called.setdefault(tensor if place is None else place, []).append(name)
    return called


def _leaf(ids: dict[Any, str], tensor: Any, called: Mapping[Any, list[str]]) -> Vertex:
    ids[tensor] = f"n{len(ids)}"
    tracked = tensor.requires_grad
    return Vertex(
        ids[tensor],
        "leaf" if tracked else "tensor",
        None,
        "AccumulateGrad" if tracked else "",
        list(tensor.shape),
        tensor.dtype.name,
        called.get(tensor, []),
    )


def to_json(drawing: Drawing) -> dict[str, Any]:
    """The drawing as JSON data."""
    return {"nodes": [v._asdict() for v in drawing.nodes], "edges": [e._asdict() for e in drawing.edges]}


def to_dot(drawing: Drawing) -> str:
    """The drawing in Graphviz' language."""
    lines = ["digraph telegrad {", "  rankdir=TB;", '  node [fontname="monospace", fontsize=10];']
    for vertex in drawing.nodes:
        look = "shape=box" if vertex.kind == "op" else 'shape=ellipse, style=filled, fillcolor="lightblue"'
        label = "\\n".join(_escape_dot(line) for line in _label(vertex))
        lines.append(f'  {vertex.id} [{look}, label="{label}"];')
    lines.extend(f"  {edge.source} -> {edge.target};" for edge in drawing.edges)
    return "\n".join([*lines, "}", ""])


def to_mermaid(drawing: Drawing) -> str:
    """The drawing as a Mermaid flowchart."""
    lines = ["flowchart TB"]
    for vertex in drawing.nodes:
        opening, closing = ("[", "]") if vertex.kind == "op" else ("([", "])")
        label = "<br/>".join(_escape_mermaid(line) for line in _label(vertex))
        lines.append(f'  {vertex.id}{opening}"{label}"{closing}')
    lines.extend(f"  {edge.source} --> {edge.target}" for edge in drawing.edges)
    return "\n".join([*lines, ""])


def _label(vertex: Vertex) -> list[str]:
    first = vertex.op or vertex.grad_fn or "tensor"
    lines = [first, f"{vertex.dtype} {vertex.shape}"]
    return [", ".join(vertex.tensors), *lines] if vertex.tensors else lines


def _escape_dot(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escape_mermaid(text: str) -> str:
    """Characters that mean something in a label, as Mermaid's entity codes."""
    return "".join(c if c.isalnum() or c in " _.,-:" else f"#{ord(c)};" for c in text)
