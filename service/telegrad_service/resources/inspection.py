"""``/v1/sessions/{session}/profile``, ``…/compiled`` and ``…/events``: what a session does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from operator import itemgetter
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field
from starlette.responses import StreamingResponse

from telegrad_engine.profiler import to_data
from telegrad_engine.program import json_codec

from ..hosting.commands import query
from ..observability.feed import Event, Feed, Listener
from ..routing.dependencies import CurrentSession, InSession, ServerSettings
from ..routing.route import Route, route_options
from ..routing.schemas import Answer, Page, Paged

router = APIRouter(prefix="/v1/sessions/{session}", route_class=Route)
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
    return b"event: %b\ndata: %b\n\n" % (event.name.encode(), json_codec.dumps_ascii(event.data))


async def listen(feed: Feed, listener: Listener, period_s: float) -> AsyncIterator[bytes]:
    """The events until the last one, with a comment in each ``period_s`` seconds without any."""
    try:
        yield b": the session's events from now on\n\n"
        while not listener.ended:
            events = await listener.next(period_s)
            yield b"".join(map(encode, events)) or b": still here\n\n"
    finally:
        feed.leave(listener)


EXAMPLE = Event("program", {
    "sequence": 7, "kind": "program", "instructions": 12, "queued_s": 0.00002, "seconds": 0.0004, "planned": True,
    "digest": "9f86d081884c7d65", "used_bytes": 4096, "error": None, "request_id": "5f0c7d1b-7",
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
async def listen_to_session(
    request: Request,
    handle: CurrentSession,
    settings: ServerSettings,
    observe: Annotated[
        bool, Query(description="Whether to observe steps, and to send `scalars`, `step` and `graph`.")
    ] = False,
) -> Response:
    """Server-sent events, from the time of the request until the session ends or the server stops.

    `program`: a program ended, with its `sequence` number (or null), `kind`, `instructions`, the seconds that it waited
    (`queued_s`) and ran (`seconds`), whether it ran as one list of NumPy calls (`planned`), the `digest` of its
    template (or null), the session's `used_bytes`, the slug of its `error` (or null) and its `request_id`. `expiring`:
    within a minute, at `expires_at`. `ended`: the session ended, for a `reason`. `closing`: the server stops. `lost`:
    the client read too slowly and missed `count` events.

    With `observe`, a program is observed about once a second, with at most 2 % of the session's time. `scalars`: a
    program fetched numbers, `values` with `key`, `label` and `value`. `step`: a step was observed, which
    `GET …/graph/folded?source=step` shows; `revision` and its number of `nodes`. `graph`: the graph has changed, at
    most four times a second; `revision` and the number of `nodes`.

    Listening is not a use of the session, and does not keep it alive.
    """
    if "telegrad.head" in request.scope:
        return Response(headers=HEADERS, media_type=EVENT_STREAM)
    events = listen(handle.feed, handle.feed.listen(observe), settings.stream_ping_s)
    return StreamingResponse(events, headers=HEADERS, media_type=EVENT_STREAM)
