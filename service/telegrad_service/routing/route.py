"""The route class that all routes share: media types, bodies, sequence numbers.

Endpoints declare the media types they read and write with ``media.speaks``. Requests are checked here, before FastAPI
sees them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeVar

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from telegrad_engine.errors import InvalidArgument, ServerBusy, TelegradError
from telegrad_engine.program import json_codec
from telegrad_engine.program.compression import Body
from telegrad_engine.program.members import no_member

from .. import problems
from ..hosting.host import SessionHandle
from ..hosting.sequence import (
    HEADER,
    MAX_NUMBER,
    SENDER_HEADER,
    SENDER_PATTERN,
    digest_of,
    parse_number,
    parse_sender,
)
from ..http import conditional, encodings, media
from ..http.limits import BodyReservation, off_loop, read_body
from ..http.origins import refuse
from ..observability.request import REQUEST, note_route
from ..tenants.authentication import is_public
from ..tenants.principal import Scope as KeyScope
from ..tenants.principal import principal_of
from . import idempotency
from .disconnection import cancelled_on_disconnect

logger = logging.getLogger(__name__)
Handler = Callable[[Request], Coroutine[Any, Any, Response]]
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
        self.sequenced = "{session}" in path and "GET" not in methods
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
        self.query = frozenset(_query_of(self.dependant))
        """The names of its query parameters."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether this route serves a request. A route that serves GET also serves HEAD (RFC 9110, 9.3.2)."""
        match, child = super().matches(scope)
        if match is Match.PARTIAL and scope["method"] == "HEAD" and "GET" in (self.methods or ()):
            match = Match.FULL
        return match, child

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request whose key has the scope; uvicorn drops the body of the response to HEAD.

        An unknown parameter of the query is refused, except where no key is needed: health checks may add some.
        """
        note_route(self.path_format, principal_of(scope).tenant)
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET", "telegrad.head": True}
        if self.scope is not None:
            try:
                principal_of(scope).require(self.scope)
                if scope["method"] in (self.methods or ()):
                    check_query(scope, self.query)
            except TelegradError as error:
                await refuse(error)(scope, receive, send)
                return
        await super().handle(scope, receive, send)

    def get_route_handler(self) -> Handler:
        """Return a handler that checks the request and then calls FastAPI's handler."""
        handler = super().get_route_handler()
        if self.media.raw:
            # Raw endpoints take only the request, so FastAPI has no parameters to resolve.
            handler = self.endpoint
        spoken, with_body, sequenced, negotiated = self.media, self.with_body, self.sequenced, self.negotiated
        creates, tagged = self.creates, self.tagged
        in_session, queued = "{session}" in self.path, not getattr(self.endpoint, UNQUEUED, False)

        async def handle(request: Request) -> Response:
            if not in_session:
                return await serve(request)
            # Before the body is read.
            found = request.app.state.host.find(principal_of(request), request.path_params["session"])
            with found.queue.taken() if queued else nullcontext():
                return await serve(request)

        async def serve(request: Request) -> Response:
            if not with_body:
                return await respond(request)
            reservation = BodyReservation(request.app.state.host.bodies(principal_of(request).tenant))
            try:
                await _read(request, spoken, reservation)
                return await respond(request)
            finally:
                reservation.release()

        async def answer(request: Request) -> Response:
            if not sequenced:
                return await handler(request)
            number, sender = request.headers.get(HEADER), parse_sender(request.headers.get(SENDER_HEADER))
            if number is None:
                return await handler(request)
            return await _once(request, parse_number(number), sender, handler)

        async def respond(request: Request) -> Response:
            headers = request.headers
            accepted = headers.get("accept")
            if not negotiated:
                # A response without content needs no negotiation: generated clients accept only problem documents here.
                request.scope["telegrad.accept"] = None
            elif spoken.echo and (accepted is None or accepted == "*/*"):
                request.scope["telegrad.accept"] = request.scope["telegrad.content_type"]
            else:
                request.scope["telegrad.accept"] = media.accept(accepted, spoken.writes)
            with cancelled_on_disconnect(request) if sequenced else nullcontext():
                if creates and (key := headers.get(idempotency.HEADER)) is not None:
                    response = await idempotency.once(request, key, answer)
                else:
                    response = await answer(request)
            if tagged == "content":
                response = conditional.with_tag(response, headers.get(conditional.IF_NONE_MATCH))
            return await encodings.encoded(response, headers.get("accept-encoding"))

        return handle


def _query_of(dependant: Dependant) -> Iterator[str]:
    """The names of the query parameters of an endpoint and of its dependencies."""
    yield from [field.alias for field in dependant.query_params]
    for dependency in dependant.dependencies:
        yield from _query_of(dependency)


def check_query(scope: Scope, known: Collection[str]) -> None:
    """Raise InvalidArgument if the query of a request has a parameter that is not known."""
    if scope["query_string"]:
        for name in QueryParams(scope["query_string"]):
            if name not in known:
                raise InvalidArgument(no_member(name, sorted(known), "query parameter"))


async def _read(request: Request, spoken: media.Media, reservation: BodyReservation) -> None:
    """Read the body and, if it is JSON, parse it: FastAPI's own parser is neither strict nor bounded in depth."""
    settings = request.app.state.settings
    header = request.headers.get("content-type")
    empty = header is None and request.headers.get("content-length", "0") == "0"
    content_type = spoken.reads[0] if empty else media.content_type(header, spoken.reads)
    request.scope["telegrad.content_type"] = content_type
    body = request.scope["telegrad.body"] = await read_body(
        request,
        content_type,
        settings,
        reservation,
        # A numbered request is identified by its uncompressed body.
        packed=spoken.raw and HEADER not in request.headers,
    )
    if spoken.raw:
        return
    # FastAPI gets parsed JSON, and an empty body if it is binary.
    text = request._body = bytes(body) if content_type == media.JSON else b""
    if text:
        request._json = await off_loop(len(text), json_codec.loads, text, settings.max_json_depth)


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


def accepted(request: Request) -> str:
    """The negotiated media type of the response."""
    media_type: str = request.scope["telegrad.accept"]
    return media_type


def body_of(request: Request) -> tuple[Body, str]:
    """This request's body, unparsed, and its media type."""
    return request.scope["telegrad.body"], request.scope["telegrad.content_type"]
