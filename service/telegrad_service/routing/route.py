"""The routes of the API: how they handle requests, and how the route of a request is found.

An endpoint is an async function, or a command or query (:mod:`..hosting.commands`), which runs in the session that the
path names. Endpoints declare with ``route_options`` what is special about their requests. FastAPI makes the document of
the API from their declarations; requests are served here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from inspect import iscoroutinefunction, signature
from typing import Any, Literal, NamedTuple, TypeVar

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from telegrad_engine.cancellation import CancellationToken
from telegrad_engine.errors import InvalidArgument, ServerBusy, TelegradError
from telegrad_engine.program import json_codec
from telegrad_engine.program.instructions import no_member

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
from ..hosting.session_handle import CLIENT_GONE, TOKEN, SessionHandle
from ..http.limits import BodyReservation, off_loop, read_body
from ..http.origins import refuse
from ..http.representations import HEADERS, JSON, accept, header_of, media_type_of, with_coding, with_tag
from ..observability.request import REQUEST, note_route
from ..tenants.authentication import is_public
from ..tenants.principal import Principal, principal_of
from ..tenants.principal import Scope as KeyScope
from . import idempotency
from .dependencies import NO_BODY, Arguments

logger = logging.getLogger(__name__)
NUMBER, SENDER = HEADER.lower().encode(), SENDER_HEADER.lower().encode()
WITH_BODY = frozenset({"POST", "PATCH", "PUT"})
PARAMETER = "/"
"""The key of a parameter among the segments of paths, which have no slashes. The key of a method adds its name."""
LONG_S = 1.0
"""Seconds after which the client of a request is watched for a disconnect. Most requests are answered earlier."""
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


class RouteOptions(NamedTuple):
    """How the requests of a route are handled, where it differs from the default."""

    scope: KeyScope | None = None
    """The scope that a request needs; by default "read" for GET, and "sessions" for other methods."""
    reads: tuple[str, ...] = (JSON,)
    """The media types of bodies; the first one is the default."""
    writes: tuple[str, ...] = (JSON,)
    """The media types of responses; the first one is the default."""
    raw: bool = False
    """Whether the endpoint decodes the body itself."""
    echo: bool = False
    """Whether the response has the body's media type if Accept is absent or ``*/*``."""
    queued: bool = True
    """Whether requests count towards the queue of their session. Others are served even if it is full."""
    tagged: Literal["content", "endpoint"] | None = None
    """Whether responses have a tag, which is computed from their content or by the endpoint."""
    guarded: bool = False
    """Whether the endpoint checks ``If-Match``."""
    respond: Callable[[Request, Any], Response] | None = None
    """Makes the response of the endpoint's result, which is otherwise a response, JSON or a value of the schema."""


def route_options(**facts: Any) -> Callable[[Endpoint], Endpoint]:
    """Declare the fields of :class:`RouteOptions` for an endpoint."""

    def declare(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, "route_options", RouteOptions(**facts))  # noqa: B010  # functions have no such attribute
        return endpoint

    return declare


def _header(name: str, description: str, type: str = "string", **schema: Any) -> dict[str, Any]:
    """An optional header in the OpenAPI document."""
    schema = {"type": type, **schema}
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


NUMBERED = "The number of this mutation: 1, 2, 3, … A repeated request is answered from the record."
SENT_BY = "The sender that the number belongs to: each sender counts its own mutations."
KEYED = (
    "A key that the client chooses, such as a UUID. A request that is repeated with the same key creates nothing new: "
    "it gets the first answer, for 24 hours."
)
CACHED = "Tags of responses that the client has. If one is current, the answer is 304, without content."
UNCHANGED = "The tag of the value that the client has read. If the value has changed since, the answer is 412."
SEQUENCE_HEADERS = (
    _header(HEADER, NUMBERED, "integer", minimum=1, maximum=MAX_NUMBER),
    _header(SENDER_HEADER, SENT_BY, pattern=SENDER_PATTERN),
)
KEY_HEADER = _header(idempotency.HEADER, KEYED, pattern=idempotency.PATTERN)
IF_NONE_MATCH_HEADER, IF_MATCH_HEADER = _header("If-None-Match", CACHED), _header("If-Match", UNCHANGED)


class Route(APIRoute):
    """A route that checks scopes, negotiates media types, limits bodies, and runs each sequence number or key once."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **fastapi: Any) -> None:
        own: RouteOptions = getattr(endpoint, "route_options", RouteOptions())
        self.options = own
        methods = set(fastapi.get("methods") or ["GET"])
        self.with_body = bool(WITH_BODY & methods)
        self.in_session = "{session}" in path
        self.sequenced = self.in_session and "GET" not in methods
        self.negotiated = fastapi.get("status_code") != 204
        default: KeyScope = "sessions" if methods - {"GET", "HEAD"} else "read"
        self.scope: KeyScope | None = None if is_public(path) else own.scope or default
        """The scope that a request needs; None if it needs no key."""
        fastapi["operation_id"] = fastapi.get("operation_id") or endpoint.__name__
        if not self.negotiated:
            fastapi["response_class"] = Response  # JSONResponse would name a media type, without content
        self.creates = methods == {"POST"} and fastapi.get("status_code") == 201
        """Whether the route creates something, so that it supports idempotency keys."""
        headers = [*SEQUENCE_HEADERS] if self.sequenced else []
        headers += [KEY_HEADER] if self.creates else []
        headers += [IF_NONE_MATCH_HEADER] if own.tagged else []
        headers += [IF_MATCH_HEADER] if own.guarded else []
        if headers:
            extra = dict(fastapi.get("openapi_extra") or {})
            extra["parameters"] = [*extra.get("parameters", []), *headers]
            fastapi["openapi_extra"] = extra
        super().__init__(path, endpoint, **fastapi)
        self._arguments = Arguments(self.dependant)
        self._in_session = None if iscoroutinefunction(endpoint) else tuple(signature(endpoint).parameters)
        """The parameters, the session first, of a command or query; None for any other endpoint."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request. HEAD is GET for an endpoint (RFC 9110, 9.3.2); uvicorn drops the body of its response."""
        principal = principal_of(scope)
        note_route(self.path_format, principal.tenant)
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET", "telegrad.head": True}
        scope["route"] = self
        scope[HEADERS] = dict(reversed(scope["headers"]))
        request = Request(scope, receive, send)
        try:
            response = await self._serve(request, principal)
        except (TelegradError, RequestValidationError, HTTPException) as error:
            response = problems.respond(request, error)
        await response(scope, receive, send)

    async def _serve(self, request: Request, principal: Principal) -> Response:
        """Check the request, find the session before the body is read, read the body, and answer."""
        scope, options = request.scope, self.options
        if self.scope is not None:
            try:
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
                if options.queued:
                    found.queue.take()
                    queue = found.queue
            if self.with_body:
                reservation = BodyReservation(host.bodies(principal.tenant))
                await _read(request, options, reservation)
            accepted = header_of(request, b"accept")
            if not self.negotiated:
                # A response without content needs no negotiation: generated clients accept only problem documents here.
                scope["telegrad.accept"] = None
            elif options.echo and (accepted is None or accepted == "*/*"):
                scope["telegrad.accept"] = scope["telegrad.content_type"]
            else:
                scope["telegrad.accept"] = accept(accepted, options.writes)
            with _cancelled_on_disconnect(request) if self.sequenced else nullcontext():
                if self.creates and (key := header_of(request, b"idempotency-key")) is not None:
                    response = await scope["app"].state.idempotency_keys.once(request, key, self._answer)
                else:
                    response = await self._answer(request)
            if options.tagged == "content":
                response = with_tag(response, header_of(request, b"if-none-match"))
            return await with_coding(response, header_of(request, b"accept-encoding"))
        finally:
            if reservation is not None:
                reservation.release()
            if queue is not None:
                queue.add(-1)

    async def _answer(self, request: Request) -> Response:
        """Answer a request. A repeated numbered request is answered from the record."""
        if self.sequenced:
            number, sender = header_of(request, NUMBER), parse_sender(header_of(request, SENDER))
            if number is not None:
                return await _once(request, parse_number(number), sender, self._call)
        return await self._call(request)

    async def _call(self, request: Request) -> Response:
        """Call the endpoint with its arguments. Raises RequestValidationError."""
        if self.options.raw:
            raw: Response = await self.endpoint(request)
            return raw
        errors: list[Any] = []
        more = Response() if self._arguments.takes_response else None
        arguments = self._arguments.find(request, request.scope.get("telegrad.json", NO_BODY), more, errors)
        if errors:
            raise RequestValidationError(errors)
        if self._in_session is None:
            result = await self.endpoint(**arguments)
        else:
            handle, *data = [arguments[name] for name in self._in_session]
            result = await handle.call(self.endpoint, *data)
        if self.options.respond is not None:
            return self.options.respond(request, result)
        if isinstance(result, Response):
            return result
        if self.response_field is None:
            response = Response(status_code=self.status_code or 200)
        else:
            content = result if type(result) is bytes else self.response_field.serialize_json(result)
            response = Response(content, self.status_code or 200, media_type=JSON)
        if more is not None:  # the headers that the endpoint has set
            response.raw_headers += [pair for pair in more.raw_headers if pair[0] != b"content-length"]
        return response


@contextmanager
def _cancelled_on_disconnect(request: Request) -> Iterator[None]:
    """Cancel session calls in the block when the client disconnects. The body of the request must have been read."""
    token, watching = CancellationToken(), []

    def watch() -> None:
        watching.append(asyncio.create_task(_cancel_on_disconnect(request, token)))

    timer, previous = asyncio.get_running_loop().call_later(LONG_S, watch), TOKEN.set(token)
    try:
        yield
    finally:
        timer.cancel()
        for task in watching:
            task.cancel()
        TOKEN.reset(previous)


async def _cancel_on_disconnect(request: Request, token: CancellationToken) -> None:
    """Wait until the client of a request disconnects, then cancel the token.

    A numbered request may be repeated on another connection. So it continues for the time that a client has to
    reconnect, and until no request of its sender waits for its turn.
    """
    while (await request.receive())["type"] != "http.disconnect":
        pass
    if request.headers.get(HEADER) is not None:
        state = request.app.state
        handle: SessionHandle = state.host.find(principal_of(request), request.path_params["session"])
        record = handle.senders.of(parse_sender(request.headers.get(SENDER_HEADER)))
        waits = True
        while waits:
            await asyncio.sleep(max(state.settings.reconnect_s, 0.1))
            waits = bool(record.waiting)
    token.cancel(CLIENT_GONE)


def check_query(scope: Scope, known: Collection[str]) -> None:
    """Raise InvalidArgument if the query of a request has a parameter that is not known."""
    if scope["query_string"]:
        for name in QueryParams(scope["query_string"]):
            if name not in known:
                raise InvalidArgument(no_member(name, sorted(known), "query parameter"))


async def _read(request: Request, options: RouteOptions, reservation: BodyReservation) -> None:
    """Read the body and, if it is JSON, parse it, strictly and bounded in depth."""
    settings = request.app.state.settings
    named = header_of(request, b"content-type")
    empty = named is None and header_of(request, b"content-length") in (None, "0")
    content_type = options.reads[0] if empty else media_type_of(named, options.reads)
    request.scope["telegrad.content_type"] = content_type
    body = request.scope["telegrad.body"] = await read_body(
        request,
        content_type,
        settings,
        reservation,
        # A numbered request is identified by its uncompressed body.
        packed=options.raw and NUMBER not in request.scope[HEADERS],
    )
    if options.raw:
        return
    if (current := REQUEST.get()) is not None:
        current.body_size = len(body)
    if len(body) and content_type == JSON:
        text = bytes(body)
        data = await off_loop(len(text), json_codec.loads, text, settings.max_json_depth)
        # Without a Content-Type, which only a chunked body can lack here, the text is not taken for JSON.
        request.scope["telegrad.json"] = text if named is None else data


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
                del found  # its traceback refers to this frame, and so to the session's memory

    scope = request.scope
    kind = scope.get("telegrad.content_type"), scope["telegrad.accept"]
    asked = repr((request.method, request.url.path, request.url.query, kind)).encode()
    body = scope.get("telegrad.body", b"")
    digest = digest_of(asked) + await off_loop(len(body), digest_of, body)
    recording = partial(handle.recording, sender, number)
    response: Response = await handle.senders.of(sender).once(number, digest, answer, recording)
    return response


class RouteTable:
    """ASGI middleware that passes requests to their routes; a route that serves GET also serves HEAD.

    FastAPI tries its routes one after the other, those of each router twice. ``app``, which gets all other requests,
    answers for paths and methods that no route has, and serves streams.
    """

    def __init__(self, app: ASGIApp, routes: Iterable[Route]) -> None:
        self._app = app
        self._root: dict[str, Any] = {}
        """The tree of the segments of paths, whose leaves are routes with the names of their parameters."""
        for route in routes:
            node = self._root
            segments = route.path.split("/")
            for segment in segments:
                node = node.setdefault(PARAMETER if segment.startswith("{") else segment, {})
            names = [segment.strip("{}") for segment in segments if segment.startswith("{")]
            node |= {PARAMETER + method: (route, names) for method in route.methods or ()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        found = self._find(scope) if scope["type"] == "http" and not scope.get("root_path") else None
        await (self._app if found is None else found.handle)(scope, receive, send)

    def _find(self, scope: Scope) -> Route | None:
        """The route of a request, or None; sets the parameters of its path."""
        node, values, method = self._root, [], scope["method"]
        for segment in scope["path"].split("/"):
            following = node.get(segment)
            if following is None:
                following = node.get(PARAMETER)
                if following is None or not segment:
                    return None
                values.append(segment)
            node = following
        route, names = node.get(PARAMETER + ("GET" if method == "HEAD" else method), (None, ()))
        scope["path_params"] = dict(zip(names, values, strict=False))
        found: Route | None = route
        return found
