"""The autograd graph of tensors as data, as Graphviz DOT and as a Mermaid flowchart.

Edges point in the direction of the forward pass: from an operation's input to the operation. The same graph and
names always give the same text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..dtypes import from_numpy
from ..graph.node import walk

MAX_VERTICES = 10_000
"""The default maximum number of operations to draw."""


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
    """The names of the leaf, or of the operation's output tensors."""


class Edge(NamedTuple):
    """An output of ``source`` that is an input of ``target``."""

    source: str
    target: str
    output: int
    input: int
    shape: list[int]
    dtype: str


class Drawing(NamedTuple):
    """A drawn graph: operations from newest to oldest, then leaves."""

    nodes: list[Vertex]
    edges: list[Edge]
    omitted: int
    """The number of older operations that were not drawn."""

    @property
    def omission(self) -> str:
        """A sentence that says how many operations were not drawn."""
        return f"{self.omitted} older operations are not drawn"


def draw(roots: Sequence[Any], names: Mapping[str, Any], limit: int | None = MAX_VERTICES) -> Drawing:
    """Draw the graph of the tensors ``roots``; ``names`` maps names to tensors.

    At most the ``limit`` newest operations are drawn, with the leaves that they use directly; None draws all.
    """
    called = _names_by_place(names)
    ids: dict[Any, str] = {}
    vertices: list[Vertex] = []
    edges: list[Edge] = []
    nodes = [*walk(*[node for root in roots if (node := root._last_grad_fn) is not None])]
    drawn = nodes if limit is None else nodes[:limit]
    for node in drawn:
        ids[node] = f"n{len(ids)}"
        spec = _output(node, 0)
        vertices.append(Vertex(ids[node], "op", node.op.key, node.name(), *spec, called.get(node, [])))
    for node in drawn:
        output_nrs = node.output_nrs or (0,) * len(node.next_edges)
        for index, (target, output_nr) in enumerate(zip(node.next_edges, output_nrs, strict=True)):
            if target is None or (target.leaf is None and target not in ids):
                continue
            source = target if target.leaf is None else target.leaf
            if source not in ids:
                vertices.append(_leaf(ids, source, called))
            edges.append(Edge(ids[source], ids[node], output_nr, index, *_output(target, output_nr)))
    vertices.extend(_leaf(ids, root, called) for root in roots if root._last_grad_fn is None and root not in ids)
    return Drawing(vertices, edges, len(nodes) - len(drawn))


def _output(node: Any, output_nr: int) -> tuple[list[int], str]:
    """The shape and dtype of a node's output, or of its leaf."""
    shape, dtype = node.specs[output_nr] if output_nr else (node.shape, node.dtype)
    return list(shape), "" if dtype is None else from_numpy(dtype).name


def _names_by_place(names: Mapping[str, Any]) -> dict[Any, list[str]]:
    """Group the names by the node that produced the tensor, or by the leaf itself."""
    called: dict[Any, list[str]] = {}
    for name, tensor in names.items():
        place = tensor._last_grad_fn
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
    return {
        "nodes": [v._asdict() for v in drawing.nodes],
        "edges": [e._asdict() for e in drawing.edges],
        "omitted": drawing.omitted,
    }


def to_dot(drawing: Drawing) -> str:
    """The drawing in Graphviz's DOT language."""
    lines = ["digraph telegrad {", "  rankdir=TB;", '  node [fontname="monospace", fontsize=10];']
    for vertex in drawing.nodes:
        look = "shape=box" if vertex.kind == "op" else 'shape=ellipse, style=filled, fillcolor="lightblue"'
        label = "\\n".join(_escape_dot(line) for line in _label(vertex))
        lines.append(f'  {vertex.id} [{look}, label="{label}"];')
    lines.extend(f'  {edge.source} -> {edge.target} [label="{_escape_dot(_flow(edge))}"];' for edge in drawing.edges)
    if drawing.omitted:
        lines.append(f'  omitted [shape=plaintext, label="{drawing.omission}"];')
    return "\n".join([*lines, "}", ""])


def to_mermaid(drawing: Drawing) -> str:
    """The drawing as a Mermaid flowchart."""
    lines = ["flowchart TB"]
    for vertex in drawing.nodes:
        opening, closing = ("[", "]") if vertex.kind == "op" else ("([", "])")
        label = "<br/>".join(_escape_mermaid(line) for line in _label(vertex))
        lines.append(f'  {vertex.id}{opening}"{label}"{closing}')
    lines.extend(f'  {edge.source} -->|"{_escape_mermaid(_flow(edge))}"| {edge.target}' for edge in drawing.edges)
    if drawing.omitted:
        lines.append(f'  omitted["{drawing.omission}"]')
    return "\n".join([*lines, ""])


def _label(vertex: Vertex) -> list[str]:
    first = vertex.op or vertex.grad_fn or "tensor"
    lines = [first, f"{vertex.dtype} {vertex.shape}"]
    return [", ".join(vertex.tensors), *lines] if vertex.tensors else lines


def _flow(edge: Edge) -> str:
    """The edge's label: dtype and shape, preceded by the output's number unless it is the first."""
    return f"{edge.output}: {edge.dtype} {edge.shape}" if edge.output else f"{edge.dtype} {edge.shape}"


def _escape_dot(text: str) -> str:
    """Escape text for a DOT string, where a backslash starts an escape and an ampersand an HTML entity."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
    return "".join(c if c.isprintable() else "\\n" if c == "\n" else " " for c in escaped)


def _escape_mermaid(text: str) -> str:
    """Escape characters that are special in a Mermaid label as Mermaid's entity codes."""
    return "".join(c if c.isalnum() or c in " _.,-:" else f"#{ord(c)};" for c in text)
