"""``/v1/sessions/{session}/graph``, ``…/profile``, ``…/compiled`` and ``…/events``: what a session does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from operator import itemgetter
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field
from starlette.responses import StreamingResponse

from telegrad_engine import visualization
from telegrad_engine.profiler import to_data
from telegrad_engine.program import json_codec

from ..hosting.commands import query
from ..http.representations import JSON
from ..observability.feed import Event, Feed, Listener
from ..routing.dependencies import Accepted, CurrentSession, InSession, ServerSettings
from ..routing.route import Route, route_options
from ..routing.schemas import Answer, DType, Page, Paged, TensorId

router = APIRouter(prefix="/v1/sessions/{session}", route_class=Route)
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


@router.get("/graph", tags=["graph"], summary="Draw the graph", response_model=Graph, responses=TEXTS)
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


# Profiles -----------------------------------------------------------------------------------------

Category = Literal["op", "backward", "range", "verb"]


class RangeTotals(Answer):
    """The sums over all ranges of one name. A range is an op, a derivative, a verb or a client's label."""

    name: str = Field(examples=["aten::mul", "MulBackward0"])
    category: Category
    input_shapes: str = Field(
        description="The shapes as text, if they are recorded; each combination has totals of its own.", examples=[""]
    )
    count: int = Field(description="The number of ranges.", examples=[100])
    total_ns: int = Field(
        description="Nanoseconds; a range inside another range of its name counts twice.", examples=[250_000]
    )
    self_ns: int = Field(description="Nanoseconds without the ranges inside.", examples=[250_000])
    bytes: int = Field(description="Allocated bytes, if memory is recorded.", examples=[0])
    self_bytes: int = Field(description="Allocated bytes without the ranges inside.", examples=[0])


class ProfiledRange(Answer):
    """One range."""

    id: int = Field(description="Ranges are numbered in the order of their starts.", examples=[1])
    name: str = Field(examples=["aten::mul"])
    category: Category
    input_shapes: list[Any] = Field(description="Empty if shapes are not recorded.", examples=[[]])
    parent: int | None = Field(description="The id of the range around it; null if there is none.", examples=[None])
    thread: int = Field(examples=[1])
    start_ns: int = Field(description="Nanoseconds since the start of the profile.", examples=[1_000])
    end_ns: int = Field(description="Nanoseconds since the start of the profile.", examples=[3_500])
    inner_ns: int = Field(description="Nanoseconds of the ranges inside.", examples=[0])
    bytes: int = Field(description="Allocated bytes, if memory is recorded.", examples=[0])
    inner_bytes: int = Field(description="Allocated bytes of the ranges inside.", examples=[0])


class Profile(Answer):
    """How a session spent its time while it was profiled."""

    record_shapes: bool = Field(description="Whether shapes are recorded.", examples=[False])
    profile_memory: bool = Field(description="Whether allocated memory is recorded.", examples=[False])
    totals: list[RangeTotals]
    events: list[ProfiledRange] = Field(description="The ranges that ended first; empty unless `events` is true.")
    events_dropped: int = Field(description="The number of ranges that are part of the totals only.", examples=[0])


@router.get("/profile", tags=["profile"], summary="Read a profile", response_model=Profile)
@query
def get_profile(
    session: InSession,
    events: Annotated[bool, Query(description="Whether the response has the ranges, besides their totals.")] = False,
) -> bytes:
    """The running profile, or the last one.

    The instructions `start_profile` and `stop_profile` begin and end it; `begin_range` and `end_range` label parts.
    """
    return json_codec.dumps(to_data(session.last_profile(), events))


class CompiledProgram(Answer):
    """How a recurring program ran in a session."""

    digest: str = Field(description="Its id: the SHA-256 of its canonical text.", examples=["9f86d081884c7d65"])
    instructions: int = Field(description="The number of its instructions.", examples=[12])
    runs: int = Field(description="How often it ran.", examples=[100])
    planned_runs: int = Field(description="How many of these runs were one list of NumPy calls.", examples=[98])
    reason: str | None = Field(
        description="Why its last run was not one list of NumPy calls; null if it was.",
        examples=["instruction 3, unique: it depends on values"],
    )


class CompiledPage(Page[CompiledProgram]):
    """The latest 64 programs of a session, in the order of their first runs."""


@router.get("/compiled", tags=["profile"], summary="List the recurring programs")
@query
def list_compiled(session: InSession, page: Paged) -> CompiledPage:
    """How often each recurring program ran, and how often as one list of NumPy calls, and why its last run was not one
    of these."""
    reports = [] if session.compiler is None else session.compiler.reports(session)
    found, following = page.of("compiled", enumerate(reports), itemgetter(0))
    return CompiledPage(items=[CompiledProgram(**report._asdict()) for _, report in found], next_cursor=following)


# Events -------------------------------------------------------------------------------------------

EVENT_STREAM = "text/event-stream"
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
"""Caches keep nothing, and nginx passes each event on at once."""


def encode(event: Event) -> bytes:
    """An event in the format of server-sent events. JSON has no line breaks, so one line holds the data."""
    return f"event: {event.name}\ndata: {json.dumps(event.data)}\n\n".encode()


async def listen(feed: Feed, listener: Listener, period_s: float) -> AsyncIterator[bytes]:
    """The events until the last one, with a comment in each ``period_s`` seconds without any."""
    try:
        yield b": the session's events from now on\n\n"
        while not listener.ended:
            event = await listener.next(period_s)
            yield b": still here\n\n" if event is None else encode(event)
    finally:
        feed.listeners.discard(listener)


EXAMPLE = Event("program", {
    "sequence": 7, "instructions": 12, "seconds": 0.0004, "used_bytes": 4096, "error": None, "request_id": "5f0c7d1b-7"
})  # fmt: skip


@router.get(
    "/events",
    tags=["sessions"],
    summary="Listen to a session",
    response_class=Response,
    responses={
        200: {
            "description": "Events as they happen; a comment at least every 20 seconds.",
            "content": {EVENT_STREAM: {"schema": {"type": "string"}, "example": encode(EXAMPLE).decode()}},
        }
    },
)
@route_options(writes=(EVENT_STREAM,))
async def listen_to_session(request: Request, handle: CurrentSession, settings: ServerSettings) -> Response:
    """Server-sent events, from the time of the request until the session ends or the server stops.

    `program`: a program ended, with its `sequence` number (or null), `instructions`, `seconds`, the session's
    `used_bytes`, the slug of its `error` (or null) and its `request_id`. `expiring`: within a minute, at `expires_at`.
    `ended`: the session ended, for a `reason`. `closing`: the server stops. `lost`: the client read too slowly and
    missed `count` events.

    Listening is not a use of the session, and does not keep it alive.
    """
    if "telegrad.head" in request.scope:
        return Response(headers=HEADERS, media_type=EVENT_STREAM)
    events = listen(handle.feed, handle.feed.listen(), settings.stream_ping_s)
    return StreamingResponse(events, headers=HEADERS, media_type=EVENT_STREAM)
