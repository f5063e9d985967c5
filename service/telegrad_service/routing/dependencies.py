"""Dependencies of routes: the host, the settings, the session, limits, headers and the body of a request.

Dependencies are plain functions, which :class:`.arguments.Arguments` calls on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request

from telegrad_engine.program.compression import Body
from telegrad_engine.session.session import Session

from ..hosting.host import SessionHost
from ..hosting.session_handle import SessionHandle
from ..http.media import header
from ..settings import Settings
from ..tenants.principal import Principal, principal_of
from .schemas import SESSION_ID


def found(find: Callable[[Request], Any]) -> Any:
    """The dependency that is the result of a lambda, whose parameter is the request."""
    find.__annotations__["request"] = Request
    return Depends(find)


Host = Annotated[SessionHost, found(lambda request: request.app.state.host)]
ServerSettings = Annotated[Settings, found(lambda request: request.app.state.settings)]
MaxElements = Annotated[int, found(lambda request: request.app.state.settings.max_json_elements)]
"""The most numbers that a response in JSON has."""
CurrentPrincipal = Annotated[Principal, found(lambda request: principal_of(request))]
IfMatch = Annotated[str | None, found(lambda request: header(request, b"if-match"))]
IfNoneMatch = Annotated[str | None, found(lambda request: header(request, b"if-none-match"))]
Accepted = Annotated[str, found(lambda request: request.scope["telegrad.accept"])]
"""The negotiated media type of the response."""
RawBody = Annotated[
    tuple[Body, str], found(lambda request: (request.scope["telegrad.body"], request.scope["telegrad.content_type"]))
]
"""The body, unparsed, and its media type."""


def get_session(request: Request, session: Annotated[str, Path(description=SESSION_ID)]) -> SessionHandle:
    """The session that the path names."""
    handle: SessionHandle = request.scope["app"].state.host.find(principal_of(request), session)
    return handle


CurrentSession = Annotated[SessionHandle, Depends(get_session)]
InSession = Annotated[Session, Depends(get_session)]
"""The first parameter of an endpoint that is a command or query: the route calls it with the handle's session."""
WithData = Annotated[bool, Query(description="Whether `data` of the tensors in the response is filled.")]


def get_data(data: WithData = True) -> bool:
    """Whether the response has the values of tensors."""
    return data


DataByDefault = Annotated[bool, Depends(get_data)]
"""As ``WithData``, and true if the request does not say."""
