"""``/v1/sessions``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Response

from ..dependencies import CurrentSession, Cursor, Host, Limit, ServerSettings
from ..routing import Route
from . import service
from .schemas import CreateSession, SessionPage, SessionStatus, UpdateSession

router = APIRouter(prefix="/v1/sessions", tags=["sessions"], route_class=Route)
CREATE = {"example": {"summary": "A reproducible session", "value": {"name": "notebook", "seed": 0}}}


@router.post("", status_code=201, operation_id="create_session", summary="Create a session")
async def create_session(
    host: Host,
    settings: ServerSettings,
    response: Response,
    body: Annotated[CreateSession | None, Body(openapi_examples=CREATE)] = None,
) -> SessionStatus:
    """A session holds tensors, their graph and a random number generator. It ends when idle for too long."""
    handle = await host.create(service.options(body or CreateSession(), settings))
    response.headers["location"] = f"/v1/sessions/{handle.id}"
    return await service.status(handle)


@router.get("", operation_id="list_sessions", summary="List the sessions")
async def list_sessions(host: Host, limit: Limit = 100, cursor: Cursor = None) -> SessionPage:
    """All sessions of the server, oldest first."""
    return service.page(host, limit, cursor)


@router.get("/{session}", operation_id="get_session", summary="Look at a session")
async def get_session(handle: CurrentSession) -> SessionStatus:
    """The session and what it holds. Looking waits for the programs before it."""
    return await service.status(handle)


@router.patch("/{session}", operation_id="update_session", summary="Rename a session or change how long it lives")
async def update_session(handle: CurrentSession, settings: ServerSettings, body: UpdateSession) -> SessionStatus:
    """What the body does not name stays as it is."""
    service.update(handle, body, settings)
    return await service.status(handle)


@router.delete("/{session}", status_code=204, operation_id="delete_session", summary="End a session")
async def delete_session(host: Host, handle: CurrentSession) -> None:
    """Its tensors are freed; programs that wait still run."""
    await host.end(handle.id)
