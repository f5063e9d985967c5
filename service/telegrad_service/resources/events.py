"""``GET /v1/sessions/{session}/events``: what happens in a session, as server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from fastapi import APIRouter, Request, Response
from starlette.responses import StreamingResponse

from ..observability.feed import Event, Feed, Listener
from ..routing.dependencies import CurrentSession, ServerSettings
from ..routing.route import Route, route_options

EVENT_STREAM = "text/event-stream"
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
"""Caches keep nothing, and nginx passes each event on at once."""
router = APIRouter(prefix="/v1/sessions/{session}", tags=["sessions"], route_class=Route)


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
