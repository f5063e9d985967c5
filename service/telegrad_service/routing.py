"""The route class that all routes share: media types, bodies, sequence numbers.

What a route reads and writes is declared with ``media.speaks``; the checks happen here, once, before
FastAPI sees the request.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from telegrad_engine.program import json_codec
from telegrad_engine.program.compression import Body

from . import encodings, media, problems
from .limits import read_body
from .sequence import HEADER, NOT_DONE, checksum, parse_number

logger = logging.getLogger(__name__)
Handler = Callable[[Request], Coroutine[Any, Any, Response]]
WITH_BODY = frozenset({"POST", "PATCH", "PUT"})
SEQUENCE_PARAMETER = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "number of this mutation, from 1 on; repeated, it is answered from the record",
    "schema": {"type": "integer", "minimum": 1},
}


class Route(APIRoute):
    """A route that negotiates media types, reads its body within limits, and is answered once a number."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.media = media.media_of(endpoint)
        methods = set(options.get("methods") or ["GET"])
        self.with_body = bool(WITH_BODY & methods)
        self.sequenced = "{session}" in path and "GET" not in methods
        if self.sequenced:
            extra = dict(options.get("openapi_extra") or {})
            extra["parameters"] = [*extra.get("parameters", []), SEQUENCE_PARAMETER]
            options["openapi_extra"] = extra
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> Handler:
        """FastAPI's handler behind ours."""
        handler = super().get_route_handler()
        if self.media.raw:
            # The hot path takes nothing but the request: FastAPI has no parameters to resolve for it.
            handler = self.endpoint
        spoken, with_body, sequenced = self.media, self.with_body, self.sequenced

        async def handle(request: Request) -> Response:
            headers = request.headers
            if with_body:
                await _read(request, spoken)
            accepted = headers.get("accept")
            if spoken.echo and (accepted is None or accepted == "*/*"):
                request.scope["telegrad.accept"] = request.scope["telegrad.content_type"]
            else:
                request.scope["telegrad.accept"] = media.accept(accepted, spoken.writes)
            if sequenced and (number := headers.get(HEADER)) is not None:
                response = await _once(request, number, handler)
            else:
                response = await handler(request)
            return await encodings.encoded(response, headers.get("accept-encoding"))

        return handle


async def _read(request: Request, spoken: media.Media) -> None:
    """Read the body, and parse it here if it is JSON: FastAPI's own parsing is neither strict nor bounded."""
    settings = request.app.state.settings
    header = request.headers.get("content-type")
    empty = header is None and request.headers.get("content-length", "0") == "0"
    content_type = spoken.reads[0] if empty else media.content_type(header, spoken.reads)
    request.scope["telegrad.content_type"] = content_type
    body = request.scope["telegrad.body"] = await read_body(request, content_type, settings)
    if spoken.raw:
        return
    # FastAPI sees JSON that is parsed already, and nothing of a binary body.
    text = request._body = bytes(body) if content_type == media.JSON else b""
    if text:
        request._json = json_codec.loads(text, settings.max_json_depth)


async def _once(request: Request, header: str, handler: Callable[[Request], Awaitable[Response]]) -> Response:
    number = parse_number(header)
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
    body = checksum(scope.get("telegrad.body", b""))
    fingerprint = hash((request.method, request.url.path, request.url.query, kind, body))
    response: Response = await handle.sequence.once(number, fingerprint, answer)
    return response


def accepted(request: Request) -> str:
    """The media type that this request's answer gets."""
    media_type: str = request.scope["telegrad.accept"]
    return media_type


def body_of(request: Request) -> tuple[Body, str]:
    """This request's body, unparsed, and its media type."""
    return request.scope["telegrad.body"], request.scope["telegrad.content_type"]
