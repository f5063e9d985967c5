"""``GET /v1/sessions/{session}/graph``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from ..http.media import JSON, speaks
from ..routing.dependencies import Accepted, CurrentSession
from ..routing.route import Route
from . import service
from .schemas import Graph

router = APIRouter(prefix="/v1/sessions/{session}", tags=["graph"], route_class=Route)
TEXTS: dict[int | str, Any] = {
    200: {
        "description": "The graph.",
        "content": {
            service.DOT: {"schema": {"type": "string"}},
            service.MERMAID: {"schema": {"type": "string"}},
        },
    }
}


@router.get("/graph", operation_id="get_graph", summary="Draw the graph", response_model=Graph, responses=TEXTS)
@speaks(writes=(JSON, service.DOT, service.MERMAID))
async def get_graph(
    handle: CurrentSession,
    accept: Accepted,
    root: Annotated[list[str] | None, Query(description="Ids of the tensors whose history is drawn.")] = None,
    format: Annotated[
        Literal["json", "dot", "mermaid"] | None,
        Query(description="JSON, Graphviz DOT or a Mermaid flowchart; `Accept` decides if this is absent."),
    ] = None,
) -> Response:
    """The operations that made tensors. Without `root`, the history of all tensors of the session."""
    media_type = accept if format is None else service.FORMATS[format]
    return Response(await handle.call(service.drawn, root or [], media_type), media_type=media_type)
