"""The route class that all routes share: media types, bodies, sequence numbers.

Endpoints declare the media types they read and write with ``media.speaks``. Requests are checked here, before FastAPI
sees them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from telegrad_engine.program import json_codec
from telegrad_engine.program.compression import Body

from .. import problems
from ..hosting.sequence import (
    HEADER,
    MAX_NUMBER,
    NOT_DONE,
    SENDER_HEADER,
    SENDER_PATTERN,
    digest_of,
    parse_number,
    parse_sender,
)
from ..http import encodings, media
from ..http.limits import BodyReservation, off_loop, read_body
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


class Route(APIRoute):
    """A route that negotiates media types, limits the size of bodies, and runs each sequence number once."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.media = media.media_of(endpoint)
        methods = set(options.get("methods") or ["GET"])
        self.with_body = bool(WITH_BODY & methods)
        self.sequenced = "{session}" in path and "GET" not in methods
        self.negotiated = options.get("status_code") != 204
        if self.sequenced:
            extra = dict(options.get("openapi_extra") or {})
            extra["parameters"] = [*extra.get("parameters", []), SEQUENCE_PARAMETER, SENDER_PARAMETER]
            options["openapi_extra"] = extra
        super().__init__(path, endpoint, **options)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether this route serves a request. A route that serves GET also serves HEAD (RFC 9110, 9.3.2)."""
        match, child = super().matches(scope)
        if match is Match.PARTIAL and scope["method"] == "HEAD" and "GET" in (self.methods or ()):
            match = Match.FULL
        return match, child

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; uvicorn drops the body of the response to HEAD."""
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        await super().handle(scope, receive, send)

    def get_route_handler(self) -> Handler:
        """Return a handler that checks the request and then calls FastAPI's handler."""
        handler = super().get_route_handler()
        if self.media.raw:
            # Raw endpoints take only the request, so FastAPI has no parameters to resolve.
            handler = self.endpoint
        spoken, with_body, sequenced, negotiated = self.media, self.with_body, self.sequenced, self.negotiated
        in_session = "{session}" in self.path

        async def handle(request: Request) -> Response:
            if not with_body:
                return await respond(request)
            host = request.app.state.host
            if in_session:
                host.find(request.path_params["session"])  # before the body is read
            reservation = BodyReservation(host.bodies)
            try:
                await _read(request, spoken, reservation)
                return await respond(request)
            finally:
                reservation.release()

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
                if sequenced and (number := headers.get(HEADER)) is not None:
                    response = await _once(request, number, handler)
                else:
                    if sequenced:
                        parse_sender(headers.get(SENDER_HEADER))
                    response = await handler(request)
            return await encodings.encoded(response, headers.get("accept-encoding"))

        return handle


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


async def _once(request: Request, header: str, handler: Callable[[Request], Awaitable[Response]]) -> Response:
    number, sender = parse_number(header), parse_sender(request.headers.get(SENDER_HEADER))
    handle = request.app.state.host.find(request.path_params["session"])

    async def answer() -> Response:
        try:
            return await handler(request)
        except Exception as error:
            response, headers = problems.from_exception(error, request)
            if response.status == NOT_DONE:
                raise
            if response.status >= 500:
                logger.exception("a numbered request failed; it is answered so when it is repeated")
            return problems.problem(response, headers, sequence=number)

    scope = request.scope
    kind = scope.get("telegrad.content_type"), scope["telegrad.accept"]
    asked = repr((request.method, request.url.path, request.url.query, kind)).encode()
    body = scope.get("telegrad.body", b"")
    digest = digest_of(asked) + await off_loop(len(body), digest_of, body)
    response: Response = await handle.senders.of(sender).once(number, digest, answer)
    return response


def accepted(request: Request) -> str:
    """The negotiated media type of the response."""
    media_type: str = request.scope["telegrad.accept"]
    return media_type


def body_of(request: Request) -> tuple[Body, str]:
    """This request's body, unparsed, and its media type."""
    return request.scope["telegrad.body"], request.scope["telegrad.content_type"]
