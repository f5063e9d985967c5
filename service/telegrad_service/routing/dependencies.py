"""Dependencies of routes, and how the arguments of endpoints are found in requests.

Dependencies are plain functions, which :class:`Arguments` calls on the event loop: the host, the settings, the session,
limits, headers and the body of a request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import request_params_to_args

from telegrad_engine.program.compression import Body
from telegrad_engine.session.session import Session

from ..hosting.host import SessionHost
from ..hosting.session_handle import SessionHandle
from ..http.representations import header_of
from ..settings import Settings
from ..tenants.principal import Principal, principal_of
from .schemas import SESSION_ID

NO_BODY = object()
"""The body of a request without JSON."""


class Arguments:
    """The arguments that an endpoint, or a dependency, declares.

    FastAPI finds them anew for every request, dependency by dependency, which takes longer than all else in a small
    request. This class does the same for what our endpoints declare: plain functions as dependencies, parameters of
    path and query, one JSON body, the request and the response.
    """

    def __init__(self, dependant: Dependant) -> None:
        """Raises TypeError if something else is declared."""
        self._call: Any = dependant.call
        self._dependencies = [(each.name, Arguments(each)) for each in dependant.dependencies]
        self._path, self._query, self._body = dependant.path_params, dependant.query_params, dependant.body_params
        self._defaults = {field.name: field.default for field in self._query if not field.field_info.is_required()}
        self.query: frozenset[str] = frozenset([field.alias for field in self._query]).union(
            *[each.query for _, each in self._dependencies]
        )
        """The names of all query parameters."""
        self._request, self._response = dependant.request_param_name, dependant.response_param_name
        inner = any(each.takes_response for _, each in self._dependencies)
        self.takes_response: bool = inner or self._response is not None
        """Whether a response is declared, to which headers can be added."""
        others = [*dependant.header_params, *dependant.cookie_params, *self._body[1:]]
        others += [field for field in self._path if field.field_info.annotation is not str or field.field_info.metadata]
        if others:
            raise TypeError(f"{self._call} declares what is not supported: {', '.join(field.name for field in others)}")

    def find(self, request: Request, body: Any, response: Response | None, errors: list[Any]) -> dict[str, Any]:
        """Return the arguments by name, and add to ``errors`` what is wrong with the request, as pydantic describes it.

        ``body`` is the parsed body, or ``NO_BODY``.
        """
        values: dict[str, Any] = {}
        for name, dependency in self._dependencies:
            before = len(errors)
            arguments = dependency.find(request, body, response, errors)
            if len(errors) == before and name is not None:
                values[name] = dependency._call(**arguments)
        for field in self._path:
            values[field.name] = request.scope["path_params"][field.alias]
        if self._query:
            if request.scope["query_string"] or len(self._defaults) < len(self._query):
                found, wrong = request_params_to_args(self._query, request.query_params)
                values |= found
                errors += wrong
            else:
                values |= self._defaults
        for field in self._body:
            if body is not NO_BODY:
                values[field.name], wrong = field.validate(body, {}, loc=("body",))
                errors += wrong
            elif field.field_info.is_required():
                errors.append({"type": "missing", "loc": ("body",), "msg": "Field required"})
            else:
                values[field.name] = field.default
        if self._request is not None:
            values[self._request] = request
        if self._response is not None:
            values[self._response] = response
        return values


def found(find: Callable[[Request], Any]) -> Any:
    """The dependency that is the result of a lambda, whose parameter is the request."""
    find.__annotations__["request"] = Request
    return Depends(find)


Host = Annotated[SessionHost, found(lambda request: request.app.state.host)]
ServerSettings = Annotated[Settings, found(lambda request: request.app.state.settings)]
MaxElements = Annotated[int, found(lambda request: request.app.state.settings.max_json_elements)]
"""The most numbers that a response in JSON has."""
CurrentPrincipal = Annotated[Principal, found(lambda request: principal_of(request))]
IfMatch = Annotated[str | None, found(lambda request: header_of(request, b"if-match"))]
IfNoneMatch = Annotated[str | None, found(lambda request: header_of(request, b"if-none-match"))]
Accepted = Annotated[str, found(lambda request: request.scope["telegrad.accept"])]
"""The negotiated media type of the response."""
RawBody = Annotated[
    tuple[Body, str], found(lambda request: (request.scope["telegrad.body"], request.scope["telegrad.content_type"]))
]
"""The body, unparsed, and its media type."""


def find_session(request: Request, session: Annotated[str, Path(description=SESSION_ID)]) -> SessionHandle:
    """The session that the path names."""
    handle: SessionHandle = request.scope["app"].state.host.find(principal_of(request), session)
    return handle


CurrentSession = Annotated[SessionHandle, Depends(find_session)]
InSession = Annotated[Session, Depends(find_session)]
"""The first parameter of an endpoint that is a command or query: the route calls it with the handle's session."""
WithData = Annotated[bool, Query(description="Whether `data` of the tensors in the response is filled.")]


def get_data(data: WithData = True) -> bool:
    """Whether the response has the values of tensors."""
    return data


DataByDefault = Annotated[bool, Depends(get_data)]
"""As ``WithData``, and true if the request does not say."""
