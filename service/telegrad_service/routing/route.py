"""The route class that all routes share: media types, bodies, sequence numbers.

Endpoints declare the media types they read and write with ``media.speaks``. FastAPI makes the document of the API from
their declarations; requests are served here.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from telegrad_engine.errors import InvalidArgument, ServerBusy, TelegradError
from telegrad_engine.program import json_codec
from telegrad_engine.program.members import no_member

from .. import problems
from ..hosting.sequence import (
    HEADER,
    MAX_NUMBER,
    SENDER_HEADER,
    SENDER_PATTERN,
    digest_of,
    parse_number,
    parse_sender,
)
from ..hosting.session_handle import SessionHandle
from ..http import conditional, encodings, media
from ..http.limits import BodyReservation, off_loop, read_body
from ..http.origins import refuse
from ..observability.request import REQUEST, note_route
from ..tenants.authentication import is_public
from ..tenants.principal import Principal, principal_of
from ..tenants.principal import Scope as KeyScope
from . import idempotency
from .arguments import NO_BODY, Arguments
from .disconnection import CancelledOnDisconnect

logger = logging.getLogger(__name__)
NUMBER, SENDER = HEADER.lower().encode(), SENDER_HEADER.lower().encode()
WITH_BODY = frozenset({"POST", "PATCH", "PUT"})
SEQUENCE_PARAMETER = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "The number of this mutation: 1, 2, 3, … A repeated request is answered from the record.",
    "schema": {"type": "integer", "minimum": 1, "maximum": MAX_NUMBER},
}
SENDER_PARAMETER = {
    "name": SENDER_HEADER,
    "in": "header",
    "required": False,
    "description": "The sender that the number belongs to: each sender counts its own mutations.",
    "schema": {"type": "string", "pattern": SENDER_PATTERN},
}


IF_NONE_MATCH_PARAMETER = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "Tags of responses that the client has. If one is current, the answer is 304, without content.",
    "schema": {"type": "string"},
}
IF_MATCH_PARAMETER = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": "The tag of the value that the client has read. If the value has changed since, the answer is 412.",
    "schema": {"type": "string"},
}
UNQUEUED = "telegrad_unqueued"
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


def unqueued(endpoint: Endpoint) -> Endpoint:
    """Declare that an endpoint of a session does not wait for its programs, so it is served while the queue is full."""
    setattr(endpoint, UNQUEUED, True)
    return endpoint


NEEDED = "telegrad_scope"
"""The attribute of an endpoint that has its scope."""


def needs(scope: KeyScope) -> Callable[[Endpoint], Endpoint]:
    """Declare the scope that an endpoint needs; by default it is "read" for GET, and "sessions" for all else."""

    def declare(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, NEEDED, scope)
        return endpoint

    return declare


class Route(APIRoute):
    """A route that checks scopes, negotiates media types, limits bodies, and runs each sequence number or key once."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.media = media.media_of(endpoint)
        methods = set(options.get("methods") or ["GET"])
        self.with_body = bool(WITH_BODY & methods)
        self.in_session, self.queued = "{session}" in path, not getattr(endpoint, UNQUEUED, False)
        self.sequenced = self.in_session and "GET" not in methods
        self.negotiated = options.get("status_code") != 204
        default: KeyScope = "sessions" if methods - {"GET", "HEAD"} else "read"
        self.scope: KeyScope | None = None if is_public(path) else getattr(endpoint, NEEDED, default)
        """The scope that a request needs; None if it needs no key."""
        if not self.negotiated:
            options["response_class"] = Response  # JSONResponse would name a media type, without content
        self.creates = methods == {"POST"} and options.get("status_code") == 201
        """Whether it creates something, so that it supports idempotency keys."""
        self.tagged: conditional.Tags | None = getattr(endpoint, "tagged", None)
        """How the tags of its responses are computed; None if they have none."""
        self.guarded: bool = getattr(endpoint, "guarded", False)
        """Whether it checks ``If-Match``."""
        own = [
            *([SEQUENCE_PARAMETER, SENDER_PARAMETER] if self.sequenced else ()),
            *([idempotency.PARAMETER] if self.creates else ()),
            *([IF_NONE_MATCH_PARAMETER] if self.tagged else ()),
            *([IF_MATCH_PARAMETER] if self.guarded else ()),
        ]
        if own:
            extra = dict(options.get("openapi_extra") or {})
            extra["parameters"] = [*extra.get("parameters", []), *own]
            options["openapi_extra"] = extra
        super().__init__(path, endpoint, **options)
        self._arguments = Arguments(self.dependant)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request. HEAD is GET for an endpoint (RFC 9110, 9.3.2); uvicorn drops the body of its response."""
        principal = principal_of(scope)
        note_route(self.path_format, principal.tenant)
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET", "telegrad.head": True}
        scope["route"] = self
        scope[media.HEADERS] = dict(reversed(scope["headers"]))
        request = Request(scope, receive, send)
        try:
            response = await self._serve(request, principal)
        except (TelegradError, RequestValidationError, HTTPException) as error:
            response = problems.respond(request, error)
        await response(scope, receive, send)

    async def _serve(self, request: Request, principal: Principal) -> Response:
        """Check the key's scope, find the session before the body is read, read the body, and answer."""
        scope = request.scope
        try:
            if self.scope is not None:
                principal.require(self.scope)
        except TelegradError as error:
            return refuse(error)
        if scope["method"] not in (self.methods or ()):
            raise HTTPException(405)
        if self.scope is not None:  # health checks may add parameters
            check_query(scope, self._arguments.query)
        host = scope["app"].state.host
        queue = reservation = None
        try:
            if self.in_session:
                found = host.find(principal, scope["path_params"]["session"])
                if self.queued:
                    found.queue.take()
                    queue = found.queue
            if self.with_body:
                reservation = BodyReservation(host.bodies(principal.tenant))
                await _read(request, self.media, reservation)
            return await self._respond(request)
        finally:
            if reservation is not None:
                reservation.release()
            if queue is not None:
                queue.add(-1)

    async def _respond(self, request: Request) -> Response:
        """Negotiate the media type, and answer once, in the coding that the client accepts."""
        scope = request.scope
        accepted = media.header(request, b"accept")
        if not self.negotiated:
            # A response without content needs no negotiation: generated clients accept only problem documents here.
            scope["telegrad.accept"] = None
        elif self.media.echo and (accepted is None or accepted == "*/*"):
            scope["telegrad.accept"] = scope["telegrad.content_type"]
        else:
            scope["telegrad.accept"] = media.accept(accepted, self.media.writes)
        with CancelledOnDisconnect(request) if self.sequenced else nullcontext():
            if self.creates and (key := media.header(request, b"idempotency-key")) is not None:
                response = await idempotency.once(request, key, self._answer)
            else:
                response = await self._answer(request)
        if self.tagged == "content":
            response = conditional.with_tag(response, media.header(request, b"if-none-match"))
        return await encodings.encoded(response, media.header(request, b"accept-encoding"))

    async def _answer(self, request: Request) -> Response:
        """Answer a request, or a numbered one from the record if it is repeated."""
        if self.sequenced:
            number, sender = media.header(request, NUMBER), parse_sender(media.header(request, SENDER))
            if number is not None:
                return await _once(request, parse_number(number), sender, self._call)
        return await self._call(request)

    async def _call(self, request: Request) -> Response:
        """Call the endpoint with its arguments. Raises RequestValidationError."""
        if self.media.raw:
            response: Response = await self.endpoint(request)
            return response
        errors: list[Any] = []
        more = Response() if self._arguments.takes_response else None
        arguments = self._arguments.find(request, request.scope.get("telegrad.json", NO_BODY), more, errors)
        if errors:
            raise RequestValidationError(errors)
        result = await self.endpoint(**arguments)
        return result if isinstance(result, Response) else self._encoded(result, more)

    def _encoded(self, result: Any, more: Response | None) -> Response:
        """The response with a result of the endpoint, and with the headers that it has set."""
        field = self.response_field
        if field is None:
            response = Response(status_code=self.status_code or 200)
        else:
            content = field.serialize_json(result)
            response = Response(content, self.status_code or 200, media_type=media.JSON)
        if more is not None:
            response.raw_headers += [pair for pair in more.raw_headers if pair[0] != b"content-length"]
        return response


def check_query(scope: Scope, known: Collection[str]) -> None:
    """Raise InvalidArgument if the query of a request has a parameter that is not known."""
    if scope["query_string"]:
        for name in QueryParams(scope["query_string"]):
            if name not in known:
                raise InvalidArgument(no_member(name, sorted(known), "query parameter"))


async def _read(request: Request, spoken: media.Media, reservation: BodyReservation) -> None:
    """Read the body and, if it is JSON, parse it, strictly and bounded in depth."""
    settings = request.app.state.settings
    header = media.header(request, b"content-type")
    empty = header is None and media.header(request, b"content-length") in (None, "0")
    content_type = spoken.reads[0] if empty else media.content_type(header, spoken.reads)
    request.scope["telegrad.content_type"] = content_type
    body = request.scope["telegrad.body"] = await read_body(
        request,
        content_type,
        settings,
        reservation,
        # A numbered request is identified by its uncompressed body.
        packed=spoken.raw and NUMBER not in request.scope[media.HEADERS],
    )
    if spoken.raw:
        return
    if (current := REQUEST.get()) is not None:
        current.body_size = len(body)
    if len(body) and content_type == media.JSON:
        text = bytes(body)
        data = await off_loop(len(text), json_codec.loads, text, settings.max_json_depth)
        # Without a Content-Type, which only a chunked body can lack here, the text is not taken for JSON.
        request.scope["telegrad.json"] = text if header is None else data


async def _once(
    request: Request, number: int, sender: str, handler: Callable[[Request], Awaitable[Response]]
) -> Response:
    handle: SessionHandle = request.app.state.host.find(principal_of(request), request.path_params["session"])
    await handle.ready()
    if (current := REQUEST.get()) is not None:
        current.sequence = number

    async def answer() -> Response:
        try:
            return await handler(request)
        except Exception as error:
            found, headers = problems.from_exception(error, request)
            try:
                if isinstance(found, ServerBusy):
                    if "instruction" not in found.context:
                        raise  # it had no effect, so its number stays free
                elif found.status >= 500:
                    logger.exception("a numbered request failed; it is answered so when it is repeated")
                return problems.problem(found, headers, sequence=number)
            finally:
                del found  # its traceback holds this frame, and the session's memory

    scope = request.scope
    kind = scope.get("telegrad.content_type"), scope["telegrad.accept"]
    asked = repr((request.method, request.url.path, request.url.query, kind)).encode()
    body = scope.get("telegrad.body", b"")
    digest = digest_of(asked) + await off_loop(len(body), digest_of, body)
    recording = partial(handle.recording, sender, number)
    response: Response = await handle.senders.of(sender).once(number, digest, answer, recording)
    return response
