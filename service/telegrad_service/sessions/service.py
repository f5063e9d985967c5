"""Checks, updates and describes sessions."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import Any

from telegrad_engine import dtypes
from telegrad_engine.errors import InvalidValue
from telegrad_engine.session.session import Session as EngineSession

from .. import __version__
from ..hosting.devices import check_compiling, check_device
from ..hosting.host import SessionHandle, SessionHost, SessionOptions
from ..settings import Settings
from .schemas import Session, SessionCreate, SessionPage, SessionStatus, SessionUpdate


def options(body: SessionCreate, settings: Settings, peer: str) -> SessionOptions:
    """Check a request for a new session and return its options."""
    if body.durable:
        raise InvalidValue("durable sessions are not available yet; leave durable out or set it to false")
    check_device(body.device)
    dtype = dtypes.parse(body.dtype)
    if not dtype.is_floating_point:
        raise InvalidValue(f"only floating-point types are supported as the default type, got {dtype.name}")
    if body.compile:
        check_compiling(settings)
    ttl_s = _ttl(body.ttl_s, settings)
    return SessionOptions(body.name, body.device, dtype, body.seed, ttl_s, body.compile, peer, body.heartbeats)


def update(handle: SessionHandle, body: SessionUpdate, settings: Settings) -> None:
    """Set the fields that the body names."""
    if "ttl_s" in body.model_fields_set:
        handle.ttl_s = _ttl(body.ttl_s, settings) or settings.session_ttl_s
    if "name" in body.model_fields_set:
        handle.name = body.name


def _ttl(seconds: float | None, settings: Settings) -> float | None:
    if seconds is not None and seconds > settings.max_session_ttl_s:
        raise InvalidValue(f"ttl_s is at most {settings.max_session_ttl_s:g} here, got {seconds:g}")
    return seconds


def page(host: SessionHost, limit: int, cursor: str | None) -> SessionPage:
    """A page of the sessions after the cursor."""
    if cursor is not None and not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 19):
        raise InvalidValue(f"not a cursor of this list: {cursor!r:.40}")
    after = int(cursor or 0)
    rest = (handle for handle in host.sessions() if handle.number > after)
    found = list(islice(rest, limit))
    following = str(found[-1].number) if found and next(rest, None) is not None else None
    return SessionPage(items=[Session(**_facts(handle)) for handle in found], next_cursor=following)


async def status(handle: SessionHandle) -> SessionStatus:
    """The session and its counts."""
    counts = await handle.call(_counts)
    return SessionStatus(**_facts(handle), **counts, version=__version__)


def _counts(session: EngineSession) -> dict[str, Any]:
    return {
        "tensors": len(session.tensors),
        "used_bytes": session.accounts.used_bytes,
        "max_bytes": session.accounts.max_bytes,
        "programs": session.programs,
        "instructions": session.instructions,
    }


def _facts(handle: SessionHandle) -> dict[str, Any]:
    def moment(seconds: float) -> datetime:
        return datetime.fromtimestamp(seconds, UTC)

    return {
        "id": handle.id,
        "name": handle.name,
        "device": handle.device,
        "dtype": handle.dtype.name,
        "created_at": moment(handle.created_at),
        "last_used_at": moment(handle.last_used_at),
        "expires_at": moment(handle.expires_at),
        "ttl_s": handle.ttl_s,
        "heartbeat_ttl_s": handle.heartbeat_ttl_s,
        "durable": False,
        "sequence": handle.senders.anonymous,
    }
