"""Errors as RFC 9457 problem documents.

The engine's table (``telegrad_engine.errors``) has the slug, the status and the title of each error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.websockets import WebSocket

from telegrad_engine.errors import (
    ERRORS,
    TYPE_PREFIX,
    InternalError,
    InvalidArgument,
    MalformedRequest,
    MethodNotAllowed,
    TelegradError,
    UnknownResource,
)
from telegrad_engine.program.instructions import ID_PATTERN, ID_RULE, no_member

from .observability.request import HEADER, REQUEST, new_id

MEDIA_TYPE = "application/problem+json"
RETRIED = frozenset(error.status for error in ERRORS.values() if error.retry_after_s is not None)
"""Statuses that may carry ``Retry-After``."""
RETRY_AFTER_S = "retry_after_s"
"""The member, of problem documents and of the context of errors, with the seconds after which repeating may help."""
OWN_FAULT = "the server met an error of its own; it is in the server's log"


class Progress(BaseModel):
    """What a program that failed has done."""

    ran: int = Field(description="How many instructions ran, from the first one on.", examples=[2])
    outputs: list[str] = Field(description="The tensors that they made and that exist.", examples=[["y"]])
    rolled_back: bool = Field(description="Whether all effects were undone.", examples=[False])
    next: str = Field(description="How to go on.", examples=["Correct the program and send it from instruction 2 on."])


class Problem(BaseModel):
    """An error (RFC 9457). ``type`` identifies the kind of error and never changes."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["urn:telegrad:problem:shape-mismatch"])
    title: str = Field(examples=["Shapes do not fit"])
    status: int = Field(examples=[422])
    detail: str = Field(description="The text; PyTorch's where PyTorch has one.", examples=["Shapes do not fit"])
    hint: str | None = Field(
        description="How to correct it, where the text does not say so; null if there is nothing to add.",
        examples=["did you mean 'loss'?"],
    )
    instruction: int | None = Field(description="Index of the wrong instruction; `progress` says which ran.")
    op: str | None = Field(description="The op or verb that failed.")
    ids: list[str] = Field(description="The ids of its input tensors.")
    shapes: dict[str, list[int]] = Field(description="Their shapes, by id.")
    progress: Progress | None = Field(description="What the program has done; null for all other requests.")
    request_id: str = Field(
        description="The request's id, as in the header `X-Request-ID` and in the server's log.",
        examples=["5f0c7d1b2a3e4f60"],
    )


def content(error: TelegradError) -> dict[str, Any]:
    """The members of an error's problem document."""
    seconds: int | None = error.context.get(RETRY_AFTER_S, error.retry_after_s)
    request = REQUEST.get()
    return {
        "type": TYPE_PREFIX + error.slug,
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
        "hint": None,
        "instruction": None,
        "op": None,
        "ids": [],
        "shapes": {},
        "progress": None,
        **({} if seconds is None else {RETRY_AFTER_S: seconds}),
        **{name: value for name, value in error.context.items() if name != RETRY_AFTER_S},
        "request_id": new_id() if request is None else request.id,
    }


def problem(error: TelegradError, headers: Mapping[str, str] | None = None, **members: Any) -> Response:
    """The problem document of an error as a response; ``members`` are added to the document."""
    found = content(error) | members
    extra = {"retry-after": str(found[RETRY_AFTER_S])} if RETRY_AFTER_S in found else {}
    request = REQUEST.get()
    if request is None:  # it is refused before it is watched
        extra[HEADER] = found["request_id"]
    else:
        request.slug = error.slug
    body = json.dumps(found, default=str).encode()
    return Response(body, error.status, {**extra, **(headers or {})}, media_type=MEDIA_TYPE)


def from_validation(errors: Sequence[Any], body: Any = None) -> InvalidArgument:
    """The error for a request whose body is of the type ``body``, with each location and reason that pydantic gives."""
    lines = [f"{'.'.join(map(str, e['loc'])) or 'body'}: {_reason(e, body)}" for e in errors[:8]]
    if len(errors) > 8:
        lines.append(f"and {len(errors) - 8} more")
    return InvalidArgument("; ".join(lines))


def _reason(error: Any, body: Any) -> str:
    """Why pydantic refused something: for an unknown member of a body also which ones there are."""
    place = error["loc"]
    if error["type"] == "string_pattern_mismatch" and error["ctx"]["pattern"] == ID_PATTERN:
        return f"not a tensor id: {error['input']!r:.60}; {ID_RULE}"
    if error["type"] != "extra_forbidden" or place[0] != "body" or body is None:
        return str(error["msg"])
    models = [*_models(body)]  # of several, the place names the chosen one by a member that only it has
    chosen = [model for model in models if len(place) > 2 and place[1] in model.model_fields] or models
    return no_member(place[-1], dict.fromkeys([name for model in chosen for name in model.model_fields]))


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in (*get_args(annotation), *filter(None, [getattr(annotation, "__value__", None)])):
        yield from _models(part)


def from_exception(error: Exception, request: Request) -> tuple[TelegradError, Mapping[str, str] | None]:
    """The TelegradError for an exception, and the headers to send with it."""
    if isinstance(error, TelegradError):
        return error, None
    if isinstance(error, RequestValidationError):
        field = getattr(request.scope.get("route"), "body_field", None)
        return from_validation(error.errors(), None if field is None else field.field_info.annotation), None
    if isinstance(error, HTTPException):
        path = request.url.path
        if error.status_code == 404:
            return UnknownResource(f"nothing is served at {path!r}; /docs shows what is"), None
        if error.status_code == 405:
            allow = {"allow": _allowed_methods(request)}
            return MethodNotAllowed(f"{request.method} is not possible on {path!r}"), allow
        if error.status_code < 500:
            return MalformedRequest(str(error.detail)), error.headers
    return InternalError(OWN_FAULT), None


def _allowed_methods(request: Request) -> str:
    """The methods of every route at the request's path; Starlette would name only those of the first."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    routes: Sequence[APIRoute] = request.app.state.routes
    found = [route for route in routes if route.path_regex.match(path)]
    own = [route for route in found if "{" not in route.path]  # /v1/sessions/import is no session
    methods = {method for route in own or found for method in route.methods or ()}
    if not methods or "GET" in methods:  # the files of /docs are not routes
        methods |= {"GET", "HEAD"}
    return ", ".join(sorted(methods))


def respond(request: Request, error: Exception) -> Response:
    """The response to a request that an exception has ended."""
    return problem(*from_exception(error, request))


async def _respond(request: Request, error: Exception) -> Response:
    return respond(request, error)


async def refuse_stream(websocket: WebSocket) -> None:
    """Refuse a WebSocket at a path that has no stream."""
    path = websocket.url.path
    await websocket.send_denial_response(problem(UnknownResource(f"no stream is served at {path!r}")))


def install(app: FastAPI) -> None:
    """Make the app answer every error that a route raises with a problem document."""
    for cls in (TelegradError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(cls, _respond)
