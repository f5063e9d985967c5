"""``…/fork``, ``…/snapshot`` and ``/v1/sessions/import``."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import Field

from telegrad_engine.program.safetensors import Container
from telegrad_engine.session import snapshot
from telegrad_engine.session.session import Session

from ..hosting.commands import query
from ..hosting.session_handle import SessionOptions
from ..http.media import SAFETENSORS
from ..routing.dependencies import CurrentPrincipal, CurrentSession, Host, Peer, RawBody, ServerSettings
from ..routing.route import Route, route_options
from ..routing.schemas import Request as RequestModel
from ..sessions import service
from ..sessions.schemas import TTL, Name, SessionStatus, Ttl

FILE = {"schema": {"type": "string", "format": "binary"}}
SNAPSHOT: dict[int | str, Any] = {
    200: {
        "description": "A safetensors file with the session's state as JSON and the memory of its tensors.",
        "content": {SAFETENSORS: FILE},
    }
}
IMPORT: dict[str, Any] = {"requestBody": {"required": True, "content": {SAFETENSORS: FILE}}}
DURABLE = "Whether the new session survives a restart of the server, as for `POST /v1/sessions`."
HEARTBEATS = "Whether the new session ends soon after its client, as for `POST /v1/sessions`."


class SessionFork(RequestModel):
    """The options of a fork that are not the original's."""

    name: Name | None = Field(default=None, description="A name for people; null is the original's.")
    ttl_s: Ttl | None = Field(default=None, description=f"{TTL[:-1]} for the fork.")
    heartbeats: bool = Field(default=False, description=HEARTBEATS)
    durable: bool = Field(default=False, description=DURABLE)


router = APIRouter(prefix="/v1/sessions", tags=["snapshots"], route_class=Route)


@router.post("/import", status_code=201, summary="Import a session", openapi_extra=IMPORT)
@route_options(reads=(SAFETENSORS,))
async def import_session(
    host: Host,
    settings: ServerSettings,
    principal: CurrentPrincipal,
    peer: Peer,
    response: Response,
    raw: RawBody,
    name: Annotated[Name | None, Query(description="A name for people; need not be unique.")] = None,
    ttl_s: Annotated[Ttl | None, Query(description=TTL)] = None,
    heartbeats: Annotated[bool, Query(description=HEARTBEATS)] = False,
    durable: Annotated[bool, Query(description=DURABLE)] = False,
) -> SessionStatus:
    """A new session in the state of a snapshot, which any server may have made. It continues exactly like the original.

    The file contains no code: ops are named, and functions and procedures are checked as when they are registered.
    """
    ttl_s = service.checked_ttl(ttl_s, settings)
    options = SessionOptions(principal.tenant, name, ttl_s=ttl_s, peer=peer, heartbeats=heartbeats, durable=durable)
    handle = await host.create(options, raw[0])
    response.headers["location"] = f"/v1/sessions/{handle.id}"
    return await service.status(handle)


@router.post("/{session}/fork", status_code=201, summary="Fork a session")
async def fork_session(
    host: Host,
    settings: ServerSettings,
    handle: CurrentSession,
    peer: Peer,
    response: Response,
    body: SessionFork | None = None,
) -> SessionStatus:
    """A second session in the same state: tensors with their ids, gradients, the graph, the random generator.

    Both continue independently, and draw the same random numbers. They share the memory of large tensors until one of
    them writes to it, but each counts it in full.
    """
    asked = body or SessionFork()
    ttl_s = service.checked_ttl(asked.ttl_s, settings) or handle.ttl_s
    options = SessionOptions(
        handle.tenant,
        asked.name or (None if asked.durable else handle.name),  # a durable session's name is its own
        ttl_s=ttl_s,
        peer=peer,
        heartbeats=asked.heartbeats,
        durable=asked.durable,
    )
    fork = await host.create(options, handle)
    response.headers["location"] = f"/v1/sessions/{fork.id}"
    return await service.status(fork)


@router.get("/{session}/snapshot", summary="Export a session", response_class=Response, responses=SNAPSHOT)
@route_options(writes=(SAFETENSORS,))
async def export_session(handle: CurrentSession) -> Response:
    """The whole state of the session as one file, for `POST /v1/sessions/import`.

    A session that waits for its client in a backward pass, or whose profile is running, has no snapshot.
    """
    content: Any = await handle.call(_export)
    return Response(content, media_type=SAFETENSORS)


@query
def _export(session: Session) -> Container:
    session.accounts.check_quota(session.accounts.used_bytes)
    return snapshot.save(session)
