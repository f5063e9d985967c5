"""Checks, updates and describes sessions."""

from __future__ import annotations

from typing import Any

from telegrad_engine import dtypes
from telegrad_engine.errors import InvalidValue
from telegrad_engine.session.session import Session as EngineSession

from .. import __version__
from ..hosting.commands import query
from ..hosting.devices import check_device
from ..hosting.host import Endpoint, SessionHost
from ..hosting.session_handle import SessionHandle, SessionOptions
from ..routing.pages import PageRequest
from ..settings import Settings
from .schemas import Session, SessionCreate, SessionEndpoint, SessionPage, SessionStatus, SessionUpdate


def options(body: SessionCreate, settings: Settings, tenant: str, peer: str) -> SessionOptions:
    """Check a request for a new session and return its options."""
    check_device(body.device)
    dtype = dtypes.parse(body.dtype)
    if not dtype.is_floating_point:
        raise InvalidValue(f"only floating-point types are supported as the default type, got {dtype.name}")
    ttl_s = checked_ttl(body.ttl_s, settings)
    return SessionOptions(tenant, body.name, body.device, dtype, body.seed, ttl_s, peer, body.heartbeats, body.durable)


async def update(host: SessionHost, handle: SessionHandle, body: SessionUpdate, settings: Settings) -> None:
    """Set the fields that the body names."""
    if "ttl_s" in body.model_fields_set:
        handle.ttl_s = checked_ttl(body.ttl_s, settings) or settings.session_ttl_s
    if "name" in body.model_fields_set:
        await host.rename(handle, body.name)
    handle.changed()


def checked_ttl(seconds: float | None, settings: Settings) -> float | None:
    """A time to live that a client asks for. Raises InvalidValue if it is longer than the settings allow."""
    if seconds is not None and seconds > settings.max_session_ttl_s:
        raise InvalidValue(f"ttl_s is at most {settings.max_session_ttl_s:g} here, got {seconds:g}")
    return seconds


def page(host: SessionHost, tenant: str, request: PageRequest) -> SessionPage:
    """A page of a tenant's sessions."""
    found, following = request.of("sessions", host.sessions(tenant), lambda handle: handle.number)
    return SessionPage(items=[Session(**facts(handle)) for handle in found], next_cursor=following)


async def status(handle: SessionHandle) -> SessionStatus:
    """The session and its counts."""
    counts = await handle.call(_counts)
    return SessionStatus(**facts(handle), **counts, version=__version__)


def endpoint(found: Endpoint | None) -> SessionEndpoint:
    """Where a session is reached without a gateway."""
    if found is None:
        return SessionEndpoint(url=None, token=None, expires_at=None)
    return SessionEndpoint(**found._asdict())


@query
def _counts(session: EngineSession) -> dict[str, Any]:
    return {
        "tensors": len(session.tensors),
        "used_bytes": session.accounts.used_bytes,
        "max_bytes": session.accounts.max_bytes,
        "programs": session.programs,
        "instructions": session.instructions,
    }


SAME = (
    "id",
    "tenant",
    "name",
    "device",
    "created_at",
    "last_used_at",
    "expires_at",
    "ttl_s",
    "heartbeat_ttl_s",
    "durable",
)
"""The fields of a session that are attributes of its handle. Times are seconds, which the model converts."""


def facts(handle: SessionHandle) -> dict[str, Any]:
    """The fields of a session as it is listed."""
    same = {name: getattr(handle, name) for name in SAME}
    return {**same, "dtype": handle.dtype.name, "sequence": handle.senders.anonymous}
