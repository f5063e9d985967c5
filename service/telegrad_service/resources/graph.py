"""``GET /v1/sessions/{session}/graph``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from telegrad_engine import visualization
from telegrad_engine.program import json_codec

from ..hosting.commands import query
from ..http.media import JSON
from ..routing.dependencies import Accepted, InSession
from ..routing.route import Route, route_options
from ..routing.schemas import Answer, DType, TensorId

router = APIRouter(prefix="/v1/sessions/{session}", tags=["graph"], route_class=Route)
DOT = "text/vnd.graphviz"
MERMAID = "text/vnd.mermaid"
SVG = "image/svg+xml"
FORMATS = {"json": JSON, "dot": DOT, "mermaid": MERMAID, "svg": SVG}
TO_TEXT = {DOT: visualization.to_dot, MERMAID: visualization.to_mermaid, SVG: visualization.to_svg}
INERT = {"content-security-policy": "default-src 'none'; sandbox", "x-content-type-options": "nosniff"}
"""Headers with which a browser that opens the picture runs nothing and loads nothing."""
TEXTS: dict[int | str, Any] = {
    200: {
        "description": "The graph.",
        "content": {
            DOT: {"schema": {"type": "string"}, "example": 'digraph { n0 [label="MulBackward0"]; }'},
            MERMAID: {"schema": {"type": "string"}, "example": 'flowchart TD\n  n0["MulBackward0"]'},
            SVG: {"schema": {"type": "string"}, "example": '<svg xmlns="http://www.w3.org/2000/svg"></svg>'},
        },
    }
}


class GraphNode(Answer):
    """An operation, or a tensor that no operation made."""

    id: str = Field(description="Names the node, in this response only.", examples=["n0"])
    kind: Literal["op", "leaf", "tensor"] = Field(description="`tensor` is a root that requires no grad.")
    op: str | None = Field(description="The op's key, as in `GET /v1/ops/{op}`; null for a tensor.", examples=["mul"])
    grad_fn: str = Field(examples=["MulBackward0"])
    shape: list[int] = Field(examples=[[2]])
    dtype: DType = Field(examples=["float32"])
    tensors: list[TensorId] = Field(description="The ids of the tensors that it is, or made.", examples=[["y"]])


class GraphEdge(Answer):
    """A value that flows from `source` to `target`."""

    source: str = Field(examples=["n1"])
    target: str = Field(examples=["n0"])
    output: int = Field(description="The index among the outputs of `source`.", examples=[0])
    input: int = Field(description="The index among the inputs of `target`.", examples=[0])
    shape: list[int] = Field(examples=[[2]])
    dtype: DType = Field(examples=["float32"])


class Graph(Answer):
    """Operations, newest first, then leaves; and the values between them."""

    nodes: list[GraphNode]
    edges: list[GraphEdge]
    omitted: int = Field(description="The number of older operations that are not part of the drawing.", examples=[0])


@router.get("/graph", summary="Draw the graph", response_model=Graph, responses=TEXTS)
@route_options(writes=(JSON, DOT, MERMAID, SVG))
@query
def get_graph(
    session: InSession,
    accept: Accepted,
    root: Annotated[list[str] | None, Query(description="Ids of the tensors whose history is drawn.")] = None,
    format: Annotated[
        Literal["json", "dot", "mermaid", "svg"] | None,
        Query(
            description="JSON, Graphviz DOT, a Mermaid flowchart or an SVG picture; `Accept` decides if this is absent."
        ),
    ] = None,
) -> Response:
    """The operations that made tensors. Without `root`, the history of all tensors of the session."""
    tensors = [session.get(name) for name in root or ()]
    if not root:
        tensors = [tensor for tensor in session.tensors.values() if tensor._last_grad_fn is not None]
    found = visualization.draw(tensors, session.tensors)
    media_type = accept if format is None else FORMATS[format]
    to_text = TO_TEXT.get(media_type)
    content = json_codec.dumps(visualization.to_json(found)) if to_text is None else to_text(found)
    return Response(content, headers=INERT if media_type == SVG else None, media_type=media_type)
