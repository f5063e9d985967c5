"""``/v1/sessions``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Request, Response

from ..http.connections import peer_of
from ..routing.dependencies import CurrentPrincipal, CurrentSession, Host, ServerSettings
from ..routing.pages import Paged
from ..routing.route import Route, needs, unqueued
from . import service
from .schemas import SessionCreate, SessionEndpoint, SessionPage, SessionStatus, SessionUpdate

router = APIRouter(prefix="/v1/sessions", tags=["sessions"], route_class=Route)
CREATE = {"example": {"summary": "A reproducible session", "value": {"name": "notebook", "seed": 0}}}
UPDATE = {"example": {"summary": "A longer time to live", "value": {"ttl_s": 7200.0}}}


def _peer(request: Request) -> str:
    return peer_of(request.client.host) if request.client else ""


@router.post("", status_code=201, operation_id="create_session", summary="Create a session")
async def create_session(
    host: Host,
    settings: ServerSettings,
    principal: CurrentPrincipal,
    request: Request,
    response: Response,
    body: Annotated[SessionCreate | None, Body(openapi_examples=CREATE)] = None,
) -> SessionStatus:
    """A session holds tensors, their graph and a random number generator. It ends after `ttl_s` without a request."""
    handle = await host.create(service.options(body or SessionCreate(), settings, principal.tenant, _peer(request)))
    response.headers["location"] = f"/v1/sessions/{handle.id}"
    return await service.status(handle)


@router.get("", operation_id="list_sessions", summary="List the sessions")
async def list_sessions(host: Host, principal: CurrentPrincipal, page: Paged) -> SessionPage:
    """The tenant's sessions, oldest first."""
    return service.page(host, principal.tenant, page)


@router.get("/{session}", operation_id="get_session", summary="Read a session")
async def get_session(handle: CurrentSession) -> SessionStatus:
    """The session and its counts. The request waits for earlier programs of the session."""
    return await service.status(handle)


@router.get("/{session}/endpoint", operation_id="get_endpoint", summary="Find a session's worker")
@needs("sessions")
@unqueued
async def get_endpoint(
    host: Host, principal: CurrentPrincipal, handle: CurrentSession, response: Response
) -> SessionEndpoint:
    """Where a client behind a gateway may open the session's stream on the worker itself, which saves a hop.

    The session may move: if the worker does not answer, the gateway knows its new place.
    """
    response.headers["cache-control"] = "no-store"
    return service.endpoint(await host.endpoint(handle, principal))


@router.patch("/{session}", operation_id="update_session", summary="Change a session's name or time to live")
async def update_session(
    host: Host,
    handle: CurrentSession,
    settings: ServerSettings,
    body: Annotated[SessionUpdate, Body(openapi_examples=UPDATE)],
) -> SessionStatus:
    """Fields that are absent stay as they are."""
    await service.update(host, handle, body, settings)
    return await service.status(handle)


@router.put("/{session}/heartbeat", status_code=204, operation_id="beat_session", summary="Send a heartbeat")
@unqueued
async def beat_session(handle: CurrentSession) -> None:
    """Keeps a session with `heartbeats` alive. It does not wait for programs, and does not count as a use."""
    handle.beat()


@router.delete("/{session}", status_code=204, operation_id="delete_session", summary="Delete a session")
@unqueued
async def delete_session(host: Host, principal: CurrentPrincipal, handle: CurrentSession) -> None:
    """Its tensors are freed; the program that runs is cancelled, and those that wait do not run."""
    await host.end(principal, handle.id)
