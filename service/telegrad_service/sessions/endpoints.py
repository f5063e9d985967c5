"""``/v1/sessions``."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..routing.dependencies import CurrentPrincipal, CurrentSession, Host, Peer, ServerSettings
from ..routing.pages import Paged
from ..routing.route import Route, route_options
from . import service
from .schemas import SessionCreate, SessionEndpoint, SessionPage, SessionStatus, SessionUpdate

router = APIRouter(prefix="/v1/sessions", tags=["sessions"], route_class=Route)


@router.post("", status_code=201, summary="Create a session")
async def create_session(
    host: Host,
    settings: ServerSettings,
    principal: CurrentPrincipal,
    peer: Peer,
    response: Response,
    body: SessionCreate | None = None,
) -> SessionStatus:
    """A session holds tensors, their graph and a random number generator. It ends after `ttl_s` without a request."""
    handle = await host.create(service.options(body or SessionCreate(), settings, principal.tenant, peer))
    response.headers["location"] = f"/v1/sessions/{handle.id}"
    return await service.status(handle)


@router.get("", summary="List the sessions")
async def list_sessions(host: Host, principal: CurrentPrincipal, page: Paged) -> SessionPage:
    """The tenant's sessions, oldest first."""
    return service.page(host, principal.tenant, page)


@router.get("/{session}", summary="Read a session")
async def get_session(handle: CurrentSession) -> SessionStatus:
    """The session and its counts. The request waits for earlier programs of the session."""
    return await service.status(handle)


@router.get("/{session}/endpoint", summary="Find a session's worker")
@route_options(scope="sessions", queued=False)
async def get_endpoint(
    host: Host, principal: CurrentPrincipal, handle: CurrentSession, response: Response
) -> SessionEndpoint:
    """Where a client behind a gateway may open the session's stream on the worker itself, which saves a hop.

    The session may move: if the worker does not answer, the gateway knows its new place.
    """
    response.headers["cache-control"] = "no-store"
    return service.endpoint(await host.endpoint(handle, principal))


@router.patch("/{session}", summary="Change a session's name or time to live")
async def update_session(
    host: Host,
    handle: CurrentSession,
    settings: ServerSettings,
    body: SessionUpdate,
) -> SessionStatus:
    """Fields that are absent stay as they are."""
    await service.update(host, handle, body, settings)
    return await service.status(handle)


@router.put("/{session}/heartbeat", status_code=204, summary="Send a heartbeat")
@route_options(queued=False)
async def beat_session(handle: CurrentSession) -> None:
    """Keeps a session with `heartbeats` alive. It does not wait for programs, and does not count as a use."""
    handle.beat()


@router.delete("/{session}", status_code=204, summary="Delete a session")
@route_options(queued=False)
async def delete_session(host: Host, principal: CurrentPrincipal, handle: CurrentSession) -> None:
    """Its tensors are freed; the program that runs is cancelled, and those that wait do not run."""
    await host.end(principal, handle.id)
