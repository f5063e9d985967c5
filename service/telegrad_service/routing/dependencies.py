"""Dependencies of routes: the host, the settings, the session, limits, headers and the body.

They are plain functions, which :class:`.arguments.Arguments` calls on the event loop.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query, Request

from telegrad_engine.program.compression import Body
from telegrad_engine.session.session import Session

from ..hosting.host import SessionHost
from ..hosting.session_handle import SessionHandle
from ..http.connections import peer_of
from ..http.media import header
from ..settings import Settings
from ..tenants.principal import Principal, principal_of
from .schemas import SESSION_ID

WITH_DATA = "Whether `data` of the tensors in the response is filled."


def get_host(request: Request) -> SessionHost:
    """The app's session host."""
    host: SessionHost = request.app.state.host
    return host


def get_settings(request: Request) -> Settings:
    """The app's settings."""
    settings: Settings = request.app.state.settings
    return settings


def get_principal(request: Request) -> Principal:
    """Who makes the request."""
    return principal_of(request)


def get_peer(request: Request) -> str:
    """The peer that the request comes from, as sessions are counted."""
    return peer_of(request.client.host) if request.client else ""


Host = Annotated[SessionHost, Depends(get_host)]
ServerSettings = Annotated[Settings, Depends(get_settings)]
CurrentPrincipal = Annotated[Principal, Depends(get_principal)]
Peer = Annotated[str, Depends(get_peer)]


def get_session(request: Request, session: Annotated[str, Path(description=SESSION_ID)]) -> SessionHandle:
    """The session that the path names."""
    found: SessionHandle = request.scope["app"].state.host.find(principal_of(request), session)
    return found


def get_max_elements(request: Request) -> int:
    """The most numbers that a response in JSON has."""
    most: int = request.scope["app"].state.settings.max_json_elements
    return most


def get_if_match(request: Request) -> str | None:
    """The header ``If-Match``."""
    return header(request, b"if-match")


def get_if_none_match(request: Request) -> str | None:
    """The header ``If-None-Match``."""
    return header(request, b"if-none-match")


def get_data(
    data: Annotated[bool, Query(description=WITH_DATA)] = True,
) -> bool:
    """Whether the response has the values of tensors."""
    return data


def get_accepted(request: Request) -> str:
    """The negotiated media type of the response."""
    media_type: str = request.scope["telegrad.accept"]
    return media_type


def get_body(request: Request) -> tuple[Body, str]:
    """The body, unparsed, and its media type."""
    return request.scope["telegrad.body"], request.scope["telegrad.content_type"]


CurrentSession = Annotated[SessionHandle, Depends(get_session)]
InSession = Annotated[Session, Depends(get_session)]
"""The first parameter of an endpoint that is a command or query: the route calls it with the handle's session."""
MaxElements = Annotated[int, Depends(get_max_elements)]
IfMatch = Annotated[str | None, Depends(get_if_match)]
IfNoneMatch = Annotated[str | None, Depends(get_if_none_match)]
Accepted = Annotated[str, Depends(get_accepted)]
RawBody = Annotated[tuple[Body, str], Depends(get_body)]
WithData = Annotated[bool, Query(description=WITH_DATA)]
DataByDefault = Annotated[bool, Depends(get_data)]
