"""``/v1/sessions``: create, list, read, update and end sessions; fork, export and import them."""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from fastapi import Request as HTTPRequest
from pydantic import Field, StringConstraints

from telegrad_engine import dtypes
from telegrad_engine.arrays import ANY_GPU, installed, split
from telegrad_engine.errors import InvalidOperation, InvalidValue
from telegrad_engine.program.safetensors import Container
from telegrad_engine.session import snapshot
from telegrad_engine.session.session import Session as EngineSession

from .. import __version__
from ..hosting.commands import query
from ..hosting.session_handle import SessionHandle, SessionOptions
from ..http.limits import peer_of
from ..http.representations import JSON, SAFETENSORS
from ..routing.dependencies import CurrentPrincipal, CurrentSession, Host, InSession, RawBody, ServerSettings
from ..routing.route import Route, route_options
from ..routing.schemas import BINARY, Answer, DType, Page, Paged, Request
from ..settings import Settings
from ..tenants.principal import principal_of

Name = Annotated[str, StringConstraints(max_length=200)]
Ttl = Annotated[float, Field(gt=0, allow_inf_nan=False)]
DEVICES = installed()
"""The kinds of device whose library is installed. It is imported, and may find no GPU, when a session uses the kind."""
TTL = "Seconds without a request after which the session ends; null is the server's default."
DURABLE = "Whether the new session survives a restart of the server, as for `POST /v1/sessions`."
HEARTBEATS = "Whether the new session ends soon after its client, as for `POST /v1/sessions`."


class SessionCreate(Request):
    """A new session."""

    name: Name | None = Field(
        default=None,
        description="A name for people. A tenant has at most one durable session of a name: a second one is refused "
        "with the first one's id in `session`.",
    )
    device: str = Field(
        default="cpu", description="Where its tensors live: one of `GET /v1/devices`, or `gpu` for any GPU."
    )
    dtype: DType = Field(default="float32", description="The default dtype of floating-point tensors.")
    seed: int | None = Field(
        default=None,
        ge=0,
        lt=2**63,
        description="The seed of its random numbers; null is a random seed. The verb `manual_seed` takes any integer.",
    )
    ttl_s: Ttl | None = Field(default=None, description=TTL)
    heartbeats: bool = Field(
        default=False,
        description="Whether the session ends soon after its client: after the server's `heartbeat_ttl_s` without "
        "an open stream, a request or a heartbeat.",
    )
    durable: bool = Field(
        default=False, description="Whether it survives a restart or a crash of the server, which needs a data folder."
    )


class SessionFork(Request):
    """The options of a fork that are not the original's."""

    name: Name | None = Field(default=None, description="A name for people; null is the original's.")
    ttl_s: Ttl | None = Field(default=None, description=f"{TTL[:-1]} for the fork.")
    heartbeats: bool = Field(default=False, description=HEARTBEATS)
    durable: bool = Field(default=False, description=DURABLE)


class SessionUpdate(Request):
    """What to change; absent fields stay as they are."""

    name: Name | None = Field(default=None, description="A name for people; need not be unique.")
    ttl_s: Ttl | None = Field(default=None, description=TTL)


SessionState = Literal["idle", "running", "waiting", "unloaded"]


class Session(Answer):
    """A session."""

    id: str = Field(
        description="Unguessable. Clients of the same tenant may use the session; without API keys, whoever knows it.",
        examples=["0s7vJ1mQ2nGx4yRkTz8bWc5d"],
    )
    tenant: str = Field(description="The tenant that it belongs to.", examples=["local"])
    name: str | None = Field(description="A name for people.", examples=["notebook"])
    device: str = Field(description="Where its tensors live.", examples=["cpu"])
    dtype: DType = Field(description="The default dtype of floating-point tensors.", examples=["float32"])
    created_at: datetime = Field(examples=["2026-01-01T12:00:00Z"])
    last_used_at: datetime = Field(examples=["2026-01-01T12:00:01Z"])
    expires_at: datetime = Field(
        description="When it ends if no request uses it and no heartbeat arrives before.",
        examples=["2026-01-01T13:00:01Z"],
    )
    ttl_s: float = Field(description="Seconds without a request after which it ends.", examples=[3600.0])
    heartbeat_ttl_s: float | None = Field(
        description="Seconds without a sign of life after which it ends; null for a session without heartbeats.",
        examples=[None],
    )
    durable: bool = Field(description="Whether it survives a restart of the server.", examples=[False])
    sequence: int = Field(
        description="The last sequence number that was used without a sender; 0 before the first.", examples=[0]
    )
    state: SessionState = Field(
        description="`running`: it computes, or a request waits in it. `waiting`: a backward pass waits for the "
        "client. `unloaded`: it is only on the disk, or its worker does not answer.",
        examples=["idle"],
    )
    used_bytes: int = Field(description="The bytes of tensors that ids and the graph hold.", examples=[8])
    programs: int = Field(description="The number of programs that ran since it was loaded.", examples=[1])
    worker: str | None = Field(
        description="The worker that has it; null on a server without workers, and while no worker has it.",
        examples=[None],
    )


class SessionStatus(Session):
    """A session and what it holds."""

    version: str = Field(description="The server's version.", examples=["0.1.0"])
    tensors: int = Field(description="The number of tensors that have an id.", examples=[1])
    max_bytes: int = Field(description="The most bytes that it may hold.", examples=[2**31])
    instructions: int = Field(description="The number of instructions that ran.", examples=[1])


class SessionEndpoint(Answer):
    """Where a session is reached without a gateway; all fields are null on a server without gateways."""

    url: str | None = Field(
        description="The address of the worker that has the session; clients may not be able to reach it.",
        examples=[None],
    )
    token: str | None = Field(
        description="What the worker takes as `Authorization: Bearer`, for this session and this client alone.",
        examples=[None],
    )
    expires_at: datetime | None = Field(
        description="When the token expires. A stream that is open by then stays open.", examples=[None]
    )


class SessionPage(Page[Session]):
    """Sessions, oldest first."""


router = APIRouter(prefix="/v1/sessions", tags=["sessions"], route_class=Route)


UNLOADED: dict[str, Any] = {"state": "unloaded", "used_bytes": 0, "programs": 0, "worker": None}
"""Members of a session that no process has in memory."""


def members(handle: SessionHandle) -> dict[str, Any]:
    """The members of :class:`Session`. Times are seconds, which the model converts."""
    same = {name: getattr(handle, name) for name in Session.model_fields.keys() - {"dtype", "sequence"}}
    return {**same, "dtype": handle.dtype.name, "sequence": handle.senders.anonymous}


async def _status(handle: SessionHandle) -> SessionStatus:
    counts = await handle.call(_counts)  # first: it loads a durable session, which has the last sequence number
    return SessionStatus(**members(handle), **counts, version=__version__)


@query
def _counts(session: EngineSession) -> dict[str, Any]:
    return {
        "tensors": len(session.tensors),
        "max_bytes": session.accounts.max_bytes,
        "instructions": session.instructions,
    }


def _checked_ttl(seconds: float | None, settings: Settings) -> float | None:
    """A time to live that a client asks for. Raises InvalidValue if it is longer than the settings allow."""
    if seconds is not None and seconds > settings.max_session_ttl_s:
        raise InvalidValue(f"ttl_s is at most {settings.max_session_ttl_s:g} here, got {seconds:g}")
    return seconds


async def _create(
    request: HTTPRequest,
    asked: SessionCreate | SessionFork,
    state: Container | SessionHandle | None = None,
    ttl_s: float | None = None,
    **options: Any,
) -> Response:
    """Create the session that a request asks for, in the state of a snapshot or of another session if there is one.

    ``ttl_s`` is its time to live if ``asked`` has none; ``options`` are those that only an empty session has.
    """
    app = request.app.state
    made = SessionOptions(
        principal_of(request).tenant,
        asked.name,
        ttl_s=_checked_ttl(asked.ttl_s, app.settings) or ttl_s,
        peer=peer_of(request.client.host) if request.client else "",
        heartbeats=asked.heartbeats,
        durable=asked.durable,
        **options,
    )
    handle: SessionHandle = await app.host.create(made, state)
    content = (await _status(handle)).model_dump_json()
    return Response(content, 201, {"location": f"/v1/sessions/{handle.id}"}, media_type=JSON)


def _check_device(name: str) -> None:
    """Check that a device has a name that may exist here. Raises InvalidValue, which lists the kinds that do."""
    try:
        kind, _ = split(name)
    except (InvalidOperation, InvalidValue) as error:
        raise InvalidValue(f"{error}; available: {', '.join(DEVICES)}") from None
    if kind not in DEVICES and not (kind == ANY_GPU and DEVICES != ["cpu"]):
        raise InvalidValue(f"no device {name!r:.60} here; available: {', '.join(DEVICES)}")


@router.post("", status_code=201, summary="Create a session", response_model=SessionStatus)
async def create_session(request: HTTPRequest, body: SessionCreate | None = None) -> Response:
    """A session holds tensors, their graph and a random number generator. It ends after `ttl_s` without a request."""
    asked = body or SessionCreate()
    _check_device(asked.device)
    dtype = dtypes.parse(asked.dtype)
    if not dtype.is_floating_point:
        raise InvalidValue(f"only floating-point types are supported as the default type, got {dtype.name}")
    return await _create(request, asked, device=asked.device, dtype=dtype, seed=asked.seed)


@router.get("", summary="List the sessions")
async def list_sessions(host: Host, principal: CurrentPrincipal, page: Paged) -> SessionPage:
    """The tenant's sessions, oldest first."""
    found, following = page.of("sessions", host.sessions(principal.tenant), attrgetter("number"))
    return SessionPage(items=[Session(**members(handle)) for handle in found], next_cursor=following)


@router.get("/{session}", summary="Read a session")
async def get_session(handle: CurrentSession) -> SessionStatus:
    """The session and its counts. The request waits for earlier programs of the session."""
    return await _status(handle)


@router.get("/{session}/endpoint", summary="Find a session's worker")
@route_options(scope="sessions", queued=False)
async def get_endpoint(
    host: Host, principal: CurrentPrincipal, handle: CurrentSession, response: Response
) -> SessionEndpoint:
    """Where a client behind a gateway may open the session's stream on the worker itself, which saves a hop.

    The session may move: if the worker does not answer, the gateway knows its new place.
    """
    response.headers["cache-control"] = "no-store"
    found = await host.endpoint(handle, principal)
    if found is None:
        return SessionEndpoint(url=None, token=None, expires_at=None)
    return SessionEndpoint(**found._asdict())


@router.patch("/{session}", summary="Change a session's name or time to live")
async def update_session(
    host: Host, handle: CurrentSession, settings: ServerSettings, body: SessionUpdate
) -> SessionStatus:
    """Fields that are absent stay as they are."""
    if "ttl_s" in body.model_fields_set:
        handle.ttl_s = _checked_ttl(body.ttl_s, settings) or settings.session_ttl_s
    if "name" in body.model_fields_set:
        await host.rename(handle, body.name)
    handle.changed()
    return await _status(handle)


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


# Snapshots ----------------------------------------------------------------------------------------

snapshots_router = APIRouter(prefix="/v1/sessions", tags=["snapshots"], route_class=Route)
SNAPSHOT: dict[int | str, Any] = {
    200: {
        "description": "A safetensors file with the session's state as JSON and the memory of its tensors.",
        "content": {SAFETENSORS: BINARY},
    }
}
IMPORT: dict[str, Any] = {"requestBody": {"required": True, "content": {SAFETENSORS: BINARY}}}


@snapshots_router.post(
    "/import", status_code=201, summary="Import a session", response_model=SessionStatus, openapi_extra=IMPORT
)
@route_options(reads=(SAFETENSORS,))
async def import_session(
    request: HTTPRequest,
    raw: RawBody,
    name: Annotated[Name | None, Query(description="A name for people; need not be unique.")] = None,
    ttl_s: Annotated[Ttl | None, Query(description=TTL)] = None,
    heartbeats: Annotated[bool, Query(description=HEARTBEATS)] = False,
    durable: Annotated[bool, Query(description=DURABLE)] = False,
) -> Response:
    """A new session in the state of a snapshot, which any server may have made. It continues exactly like the original.

    The file contains no code: ops are named, and functions and procedures are checked as when they are registered.
    """
    asked = SessionFork(name=name, ttl_s=ttl_s, heartbeats=heartbeats, durable=durable)
    return await _create(request, asked, raw[0])


@snapshots_router.post("/{session}/fork", status_code=201, summary="Fork a session", response_model=SessionStatus)
async def fork_session(request: HTTPRequest, handle: CurrentSession, body: SessionFork | None = None) -> Response:
    """A second session in the same state: tensors with their ids, gradients, the graph, the random generator.

    Both continue independently, and draw the same random numbers. They share the memory of large tensors until one of
    them writes to it, but each counts it in full.
    """
    asked = body or SessionFork()
    asked.name = asked.name or (None if asked.durable else handle.name)  # a durable session's name is its own
    return await _create(request, asked, handle, handle.ttl_s)


@snapshots_router.get("/{session}/snapshot", summary="Export a session", response_class=Response, responses=SNAPSHOT)
@route_options(writes=(SAFETENSORS,))
@query
def export_session(session: InSession) -> Response:
    """The whole state of the session as one file, for `POST /v1/sessions/import`.

    A session that waits for its client in a backward pass, or whose profile is running, has no snapshot.
    """
    session.accounts.check_quota(session.accounts.used_bytes)
    return Response(snapshot.save(session), media_type=SAFETENSORS)
