"""Notebook output: tensors with their values and properties, and the graph as a picture.

The output is plain HTML and SVG, without scripts or external resources; all text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from telegrad_engine.context import no_grad
from telegrad_engine.dtypes import int64
from telegrad_engine.tensor.formatting import indices_shown
from telegrad_engine.visualization import Drawing, draw, to_dot, to_mermaid, to_svg

from .. import html_output

MAX_DRAWN = 200
"""The default limit of operations in a picture."""


def tensor_html(tensor: Any) -> str:
    """Return a tensor's printed values and its properties as HTML."""
    return html_output.block(
        "tensor",
        html_output.properties(type(tensor).__name__, _facts(tensor)),
        html_output.preformatted(repr(tensor)),
    )


def _facts(tensor: Any) -> Iterator[tuple[str, str]]:
    node = tensor._last_grad_fn
    yield "shape", html_output.dimensions(tensor.shape)
    yield "dtype", tensor.dtype.name
    yield "device", str(tensor.device)
    yield "requires_grad", str(tensor.requires_grad)
    if node is not None:
        yield "grad_fn", node.name()
    elif tensor.requires_grad:
        yield "grad", "none yet" if tensor.grad is None else "there"


class Graph:
    """The graph that leads to some tensors: a picture in a notebook, and text, DOT and Mermaid elsewhere."""

    def __init__(self, drawing: Drawing) -> None:
        self.drawing = drawing
        """The graph's nodes and edges as data."""

    def to_dot(self) -> str:
        """Return the graph in Graphviz's DOT language."""
        return to_dot(self.drawing)

    def to_mermaid(self) -> str:
        """Return the graph as a Mermaid flowchart."""
        return to_mermaid(self.drawing)

    def to_svg(self) -> str:
        """Return the graph as an SVG picture."""
        return to_svg(self.drawing)

    def _repr_html_(self) -> str:
        return f'<div class="telegrad-graph" style="max-height:40em;overflow:auto">{self.to_svg()}</div>'

    def __repr__(self) -> str:
        operations = sum(vertex.kind == "op" for vertex in self.drawing.nodes)
        leaves = len(self.drawing.nodes) - operations
        omitted = f", {_counted(self.drawing.omitted, 'older operation')} not drawn" if self.drawing.omitted else ""
        return f"<graph of {_counted(operations, 'operation')} and {_counted(leaves, 'leaf', 'leaves')}{omitted}>"

    def __str__(self) -> str:
        """One line per operation, newest first: its result, op and inputs."""
        called = {v.id: v.tensors[0] if v.tensors else f"{v.op or 'tensor'}_{v.id}" for v in self.drawing.nodes}
        taken: dict[str, list[str]] = {v.id: [] for v in self.drawing.nodes}
        for edge in self.drawing.edges:
            taken[edge.target].append(called[edge.source])
        return "\n".join(
            f"{called[v.id]}: {v.dtype} {v.shape}" + (f" = {v.op}({', '.join(taken[v.id])})" if v.op else "")
            for v in self.drawing.nodes
        )


def _counted(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def graph(*tensors: Any, names: Mapping[str, Any] | None = None, limit: int | None = MAX_DRAWN) -> Graph:
    """Return the graph that leads to ``tensors``; a notebook draws it if it is the last expression of a cell.

    ``names`` maps names to tensors, such as ``dict(model.named_parameters())``. At most ``limit`` operations are drawn,
    the newest ones; None draws all. Nothing is fetched from the session.

    Examples:
        >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
        >>> drawn = tg.graph((x * x).sum(), names={"x": x})
        >>> type(drawn).__name__
        'Graph'
    """
    return Graph(draw(tensors, dict(names or {}), limit))


def show_values(tensor: Any) -> Any:
    """Fetch the values to print: all of them, or only the ends of each dimension of a large tensor."""
    part = tensor
    with no_grad():
        for dim, indices in enumerate(indices_shown(tensor.shape)):
            if indices is not None:
                part = part.detach().index_select(dim, tensor.new_tensor(indices, dtype=int64))
    return part._fetch()


__all__ = ["Graph", "graph"]
