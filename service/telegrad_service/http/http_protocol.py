"""uvicorn's HTTP protocol, with limits on headers and on how long a client may take (see connections.py).

uvicorn itself has a timeout between two requests, but none within a request, and no limit on the size of headers.
"""

from __future__ import annotations

import asyncio
import logging
import math
from enum import Enum
from typing import Any

import httptools
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from websockets.http11 import MAX_LINE_LENGTH

from telegrad_engine.errors import HeadersTooLarge, MalformedRequest, RequestTimeout, ServerBusy, TelegradError

from .. import problems
from ..observability.metrics import OTHER_METHOD, RequestCounts
from . import origins
from .limits import SPARE_S, LimitedServerState, extended, peer_of

logger = logging.getLogger(__name__)
OFFER = (b"upgrade", b"http2-settings")
"""The headers of an offer of another protocol, and their options in the header Connection."""
HEALTH = frozenset({"/healthz", "/readyz"})
"""Paths that are served on spare connections."""
MAX_HEADERS = 128
"""The most header lines of a request."""
FULL = "the server has as many connections as it may"
LENGTH = b"\r\ncontent-length: "
LINGER_S = 5.0
"""Seconds in which the client must send the rest of a body that was answered before it was read."""


class Phase(Enum):
    """Which part of a request is expected next."""

    REQUEST = 0
    HEADERS = 1
    BODY = 2


class _TooLarge(Exception):
    """Ends the parsing of a request whose headers are too large."""


class ResponseWriter:
    """Writes one response: a head that says how long the body is, in one piece with the beginning of the body.

    uvicorn writes them one after the other, and each write takes as long as a small op.
    """

    __slots__ = ("_head", "_transport", "close")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self.close = transport, transport.close
        self._head: bytes | None = b""
        """The head that waits for the body; empty before there is one, None after it was written."""

    def is_closing(self) -> bool:
        """Whether the connection is about to close."""
        return self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """Write data, unless it is the head of a response."""
        if self._head is None:
            self._transport.write(data)
        elif self._head:
            pieces, self._head = (self._head, data), None
            self._transport.writelines(pieces)
        elif data.startswith(b"HTTP/1.1 ") and LENGTH in data:
            self._head = data
        else:  # the head of another response, or 100 Continue
            self._transport.write(data)


class HttpProtocol(HttpToolsProtocol):
    """Reads and answers the requests of one connection, within limits; ignores offers of protocols but WebSocket.

    Java's HTTP client and some modes of curl offer HTTP/2 with each request (``Upgrade: h2c``). A server may ignore
    that (RFC 9110, section 7.8), but httptools takes the data after the headers for the other protocol, and so loses
    the body.
    """

    def __init__(
        self, config: Any, server_state: LimitedServerState, app_state: dict[str, Any], _loop: Any = None
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.parser = httptools.HttpRequestParser(self)
        self._ignored = False
        """Whether the request that is parsed has an offer, so that it is parsed again without it."""
        self._limits = server_state.limits
        self._settings = server_state.limits.settings
        self._server_state = server_state
        self.peer = ""
        self.spare = False
        self.waiting_since: float | None = None
        self._phase = Phase.REQUEST
        self._deadline = math.inf
        """When the current part of a request must have arrived."""
        self._unparsed = 0
        """Bytes that have arrived since the last parsed part of a request."""
        self._send_deadline = math.inf
        """When the client must have read what was sent."""
        self._unsent = 0
        """Bytes that the client had not read at the last check."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the new connection and set the deadline for its first request."""
        super().connection_made(transport)
        self.peer = peer_of(self.client[0]) if self.client else ""
        now = self.loop.time()
        self.waiting_since, self._deadline = now, now + self._settings.header_timeout_s
        self._limits.admit(self)
        if self.spare:
            self._deadline = now + SPARE_S
            self.app = _only_health(self.app, self._server_state.requests)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection."""
        self._limits.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data that has arrived."""
        self._unset_keepalive_if_required()
        if self._phase is Phase.REQUEST:
            self._phase = Phase.HEADERS
            if not self.spare:
                self._deadline = self.loop.time() + self._settings.header_timeout_s
        self._unparsed += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, _TooLarge):
                self._refuse_headers()
            else:
                self.refuse(MalformedRequest("not an HTTP request"))
        else:
            if self._unparsed > self._settings.max_header_bytes:
                self._refuse_headers()

    def _parse(self, data: bytes) -> None:
        """Parse data. Raises the errors of httptools' parser, but HttpParserUpgrade only for WebSockets."""
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if not self._ignored:
                    raise
                self._ignored = False
                data = self._head_without_offer() + data[upgrade.args[0] :]
                self.parser = httptools.HttpRequestParser(self)

    def _head_without_offer(self) -> bytes:
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [method + b" " + self.url + b" HTTP/" + version]
        for name, value in self.headers:
            if name in OFFER:
                continue
            if name == b"connection":
                options = [option for option in value.split(b",") if option.strip().lower() not in OFFER]
                value = b",".join(options)
            lines.append(name + b": " + value)
        return b"\r\n".join([*lines, b"", b""])

    def on_headers_complete(self) -> None:
        """Start the request, unless its headers are too large."""
        if self.parser.should_upgrade() and not self._should_upgrade():
            self._ignored = any(name == b"upgrade" for name, _ in self.headers)
        if self._ignored:
            return
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > self._settings.max_header_bytes or len(self.headers) > MAX_HEADERS:
            raise _TooLarge
        self._phase, self._unparsed = Phase.BODY, 0
        self._deadline = self.loop.time() + self._body_timeout_s
        self.waiting_since = None
        super().on_headers_complete()
        if self.cycle is not None:
            if self.scope["method"] != "HEAD":
                self.cycle.transport = ResponseWriter(self.transport)  # type: ignore[assignment]
            if self.spare:
                self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Handle a part of the body, and extend the deadline."""
        self._unparsed = 0
        if self._busy:  # data after the answer is discarded and does not extend the deadline
            self._deadline = extended(self._deadline, len(body), self.loop.time(), self._body_timeout_s)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Handle the end of a request."""
        if self._ignored:
            return
        super().on_message_complete()
        self._phase, self._deadline, self._unparsed = Phase.REQUEST, math.inf, 0
        self._wait_for_request()

    def on_response_complete(self) -> None:
        """Wait for the next request after a response."""
        super().on_response_complete()
        if self._phase is Phase.BODY:
            self._deadline = self.loop.time() + min(LINGER_S, self._settings.body_timeout_s)
        self._wait_for_request()

    def _wait_for_request(self) -> None:
        if self._phase is not Phase.BODY and self.cycle is not None and self.cycle.response_complete:
            self.waiting_since = self.loop.time()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to the WebSocket protocol."""
        if self.spare:
            self.refuse(ServerBusy(FULL))
            return
        self._limits.leave(self)
        super().handle_websocket_upgrade()
        stream: Any = self.transport.get_protocol()
        if not stream.handshake_initiated:  # the library has refused the request without an answer
            self.refuse(MalformedRequest(f"a stream's request has no body and no line beyond {MAX_LINE_LENGTH} bytes"))

    def is_overdue(self, now: float) -> bool:
        """Whether the client is too slow to send the rest of a request or to read the response."""
        if self._takes_too_long(now):
            return True
        if self.flow.read_paused or (self._busy and self._phase is Phase.HEADERS):
            self._deadline = max(self._deadline, now + self._settings.body_timeout_s)  # the delay is the server's
        return now > self._deadline

    def _takes_too_long(self, now: float) -> bool:
        """Whether the client is too slow to read what is sent."""
        timeout_s = self._settings.body_timeout_s
        before, self._unsent = self._unsent, self.transport.get_write_buffer_size()
        if not self._unsent:
            self._send_deadline = math.inf
        elif not before:
            self._send_deadline = now + timeout_s
        else:
            self._send_deadline = extended(self._send_deadline, max(0, before - self._unsent), now, timeout_s)
        return now > self._send_deadline

    @property
    def _body_timeout_s(self) -> float:
        return SPARE_S if self.spare else self._settings.body_timeout_s

    @property
    def _busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def expire(self) -> None:
        """End the connection, with a problem document if a request has begun and has no answer yet."""
        if self._unsent:
            self.abort()
        elif self._phase is Phase.REQUEST or (self.cycle is not None and self.cycle.response_started):
            self.transport.close()
        else:
            self.refuse(RequestTimeout("the request did not arrive in time"))

    def abort(self) -> None:
        """End the connection at once."""
        self.transport.abort()

    def _refuse_headers(self) -> None:
        most = self._settings.max_header_bytes
        self.refuse(HeadersTooLarge(f"the headers of a request have at most {most} bytes and {MAX_HEADERS} lines here"))

    def refuse(self, error: TelegradError) -> None:
        """Answer a request that does not reach the application with a problem document, and end the connection."""
        logger.info("%s refused: %s %s", self.peer, error.status, error.detail)
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self._server_state.requests.add(None, OTHER_METHOD, error.status, None, error.slug)
            answer = problems.problem(error, {"connection": "close"})
            headers = [*self.server_state.default_headers, *answer.raw_headers]
            lines = [name + b": " + value + b"\r\n" for name, value in headers]
            self.transport.write(b"".join([STATUS_LINE[error.status], *lines, b"\r\n", bytes(answer.body)]))
        self.transport.close()


def _only_health(app: ASGIApp, requests: RequestCounts) -> ASGIApp:
    """The app for a spare connection: it serves only health checks."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in HEALTH:
            await app(scope, receive, send)
        else:
            requests.add(None, scope["method"], ServerBusy.status, None, ServerBusy.slug)
            await origins.refuse(ServerBusy(FULL))(scope, receive, send)

    return serve
