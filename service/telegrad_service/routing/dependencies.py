"""Dependencies of routes: the host, the settings, the session, the negotiated media type, the body and pagination."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query, Request

from telegrad_engine.program.compression import Body

from ..hosting.host import SessionHandle, SessionHost
from ..settings import Settings
from .route import accepted, body_of
from .schemas import SESSION_ID


async def get_host(request: Request) -> SessionHost:
    """The app's session host."""
    host: SessionHost = request.app.state.host
    return host


async def get_settings(request: Request) -> Settings:
    """The app's settings."""
    settings: Settings = request.app.state.settings
    return settings


Host = Annotated[SessionHost, Depends(get_host)]
ServerSettings = Annotated[Settings, Depends(get_settings)]


async def get_session(host: Host, session: Annotated[str, Path(description=SESSION_ID)]) -> SessionHandle:
    """The session that the path names."""
    return host.find(session)


async def get_accepted(request: Request) -> str:
    """The negotiated media type of the response."""
    return accepted(request)


async def get_body(request: Request) -> tuple[Body, str]:
    """The body, unparsed, and its media type."""
    return body_of(request)


CurrentSession = Annotated[SessionHandle, Depends(get_session)]
Accepted = Annotated[str, Depends(get_accepted)]
RawBody = Annotated[tuple[Body, str], Depends(get_body)]
Limit = Annotated[int, Query(ge=1, le=1000, description="The most items that a page has.")]
NumberCursor = Annotated[
    str | None,
    Query(
        description="`next_cursor` of the previous page; absent for the first page.",
        json_schema_extra={"pattern": "^[0-9]{1,18}$"},
    ),
]
Cursor = Annotated[str | None, Query(description="`next_cursor` of the previous page; absent for the first page.")]
WithData = Annotated[bool, Query(description="Whether `data` of the tensors in the response is filled.")]
