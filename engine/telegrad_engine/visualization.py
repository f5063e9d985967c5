"""The autograd graph of tensors as data, as Graphviz DOT, as a Mermaid flowchart and as an SVG picture.

Edges point in the direction of the forward pass: from an operation's input to the operation. The same graph and
names always give the same text.

The picture is self-contained, without scripts or external resources. Leaves are at the top. An operation is one layer
below the lowest of its inputs; within a layer, boxes are near the middle of their neighbours. The picture uses the
colour of the surrounding text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from .dtypes import from_numpy
from .graph.node import walk

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


CHAR, LINE = 6.7, 14.0
"""The width of a character and the height of a line, in pixels."""
PADDING, GAP, RISE = 9.0, 18.0, 34.0
"""The padding of a label, the gap between neighbours and the distance between layers."""
SWEEPS = 4
MAX_LABEL = 40


class Box:
    """A vertex with its label and its position."""

    def __init__(self, vertex: Vertex) -> None:
        lines = [", ".join(vertex.tensors)] if vertex.tensors else []
        if vertex.op or not lines:
            lines.append(vertex.op or vertex.kind)
        lines.append(f"{vertex.dtype} {vertex.shape}")
        self.vertex = vertex
        self.lines = [line if len(line) <= MAX_LABEL else line[: MAX_LABEL - 1] + "…" for line in lines]
        self.width = CHAR * max(map(len, self.lines)) + 2 * PADDING
        self.height = LINE * len(self.lines) + PADDING
        self.x = self.y = 0.0
        """The middle of the box's upper edge."""


def to_svg(drawing: Drawing) -> str:
    """The drawing as an ``<svg>`` element; all text in it is escaped."""
    boxes = {vertex.id: Box(vertex) for vertex in drawing.nodes}
    layers = _layers(drawing, boxes)
    _arrange(drawing, boxes, layers)
    width, height = _place(layers)
    parts = [_edge(boxes[e.source], boxes[e.target], f"{e.dtype} {e.shape}") for e in drawing.edges]
    parts += map(_box, boxes.values())
    if drawing.omitted:
        parts.append(f'<text x="{PADDING:.0f}" y="{height + LINE:.0f}">{drawing.omission}</text>')
        height += 2 * LINE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="11" fill="currentColor" '
        f'role="img" aria-label="graph of {len(boxes)} nodes">{"".join(parts)}</svg>'
    )


def _layers(drawing: Drawing, boxes: dict[str, Box]) -> list[list[Box]]:
    """The layers of boxes from top to bottom: an operation below all its inputs, a leaf just above its first user."""
    level = dict.fromkeys(boxes, 0)
    incoming: dict[str, list[str]] = {name: [] for name in boxes}
    for edge in drawing.edges:
        incoming[edge.target].append(edge.source)
    for vertex in reversed(drawing.nodes):  # nodes are newest first, so inputs come before operations here
        if vertex.kind == "op":
            level[vertex.id] = 1 + max((level[source] for source in incoming[vertex.id]), default=-1)
    lowest: dict[str, int] = {}
    for edge in drawing.edges:
        if boxes[edge.source].vertex.kind != "op":
            lowest[edge.source] = min(lowest.get(edge.source, level[edge.target]), level[edge.target])
    level |= {name: max(0, below - 1) for name, below in lowest.items()}
    layers: list[list[Box]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
    for name, box in boxes.items():
        layers[level[name]].append(box)
    return [layer for layer in layers if layer]


def _arrange(drawing: Drawing, boxes: dict[str, Box], layers: list[list[Box]]) -> None:
    """Order each layer by the mean position of its neighbours, in several sweeps, to reduce edge crossings."""
    neighbours: dict[str, list[Box]] = {name: [] for name in boxes}
    for edge in drawing.edges:
        neighbours[edge.source].append(boxes[edge.target])
        neighbours[edge.target].append(boxes[edge.source])
    for layer in layers:
        _spread(layer)
    for sweep in range(SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            middles = {}
            for box in layer:
                around = neighbours[box.vertex.id]
                middles[box] = sum(other.x for other in around) / len(around) if around else box.x
            layer.sort(key=middles.__getitem__)
            _spread(layer)


def _spread(layer: list[Box]) -> float:
    """Lay out the boxes of a layer side by side, centred at 0, and return the total width."""
    width = sum(box.width for box in layer) + GAP * (len(layer) - 1)
    x = -width / 2
    for box in layer:
        box.x = x + box.width / 2
        x += box.width + GAP
    return width


def _place(layers: list[list[Box]]) -> tuple[float, float]:
    """Assign each box its final position, and return the size of the picture."""
    width = max(map(_spread, layers), default=0.0) + 2 * PADDING
    y = PADDING
    for layer in layers:
        for box in layer:
            box.x, box.y = box.x + width / 2, y
        y += max(box.height for box in layer) + RISE
    return width, max(y - RISE, 0) + PADDING


def _edge(above: Box, below: Box, what: str) -> str:
    """An edge from one box down to another, with an arrowhead."""
    x, y, to_x, to_y = above.x, above.y + above.height, below.x, below.y
    bend = max(RISE, (to_y - y) / 2) * 0.6
    path = f"M{x:.1f} {y:.1f}C{x:.1f} {y + bend:.1f} {to_x:.1f} {to_y - bend:.1f} {to_x:.1f} {to_y - 4:.1f}"
    tip = f"M{to_x - 4:.1f} {to_y - 6:.1f}L{to_x:.1f} {to_y:.1f}L{to_x + 4:.1f} {to_y - 6:.1f}z"
    line = f'<path d="{path}" fill="none" stroke="currentColor" stroke-opacity="0.5"/>'
    return f'<g><title>{escape(what)}</title>{line}<path d="{tip}" fill-opacity="0.6"/></g>'


def _box(box: Box) -> str:
    """A box with its label; the full label is the tooltip."""
    vertex = box.vertex
    left, corner = box.x - box.width / 2, 3 if vertex.kind == "op" else box.height / 2
    colour = "#808080" if vertex.kind != "leaf" else "#1f77b4"
    rectangle = (
        f'<rect x="{left:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="{corner:.1f}" '
        f'fill="{colour}" fill-opacity="0.15" stroke="{colour}"/>'
    )
    lines = [
        f'<text x="{box.x:.1f}" y="{box.y + LINE * (number + 1):.1f}" text-anchor="middle">{escape(line)}</text>'
        for number, line in enumerate(box.lines)
    ]
    title = " ".join(filter(None, [", ".join(vertex.tensors), vertex.grad_fn]))
    return f"<g><title>{escape(title)}</title>{rectangle}{''.join(lines)}</g>"
