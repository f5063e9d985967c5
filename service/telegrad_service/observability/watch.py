"""The ASGI wrapper that watches every request: its id, its count and duration, its line in the log, its span."""

from __future__ import annotations

import logging
import re
from time import perf_counter
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from . import tracing
from .ledger import Ledger
from .metrics import STREAM_METHOD, RequestCounts
from .request import HEADER, REQUEST, RequestInfo, request_id

access_logger = logging.getLogger("telegrad_service.access")
SESSION = re.compile(r"^(/+v1/+sessions/+[^/]{6})[^/]+")
MAX_PATH = 200
"""The most characters of a path that are logged."""
STARTS = frozenset({"http.response.start", "websocket.http.response.start"})
_NAME = HEADER.lower().encode()


def logged_path(scope: Scope) -> str:
    """The request's path for the log: in ASCII, truncated, and with a shortened session id."""
    # Use the decoded path, as the routes do: in raw_path, the characters before the id may be percent-encoded.
    path = SESSION.sub(r"\1...", scope["path"].encode("unicode_escape").decode("ascii"))
    return path if len(path) <= MAX_PATH else path[:MAX_PATH] + "..."


class RequestWatch:
    """Watches the requests to ``app``.

    Each response gets the request's id. With ``log``, it is logged at level info: client, method, path, status and
    duration. A stream gets one line when it begins and one when it ends. Queries, headers and bodies are not logged.
    Session ids are shortened, because knowing the id grants access to the session.
    """

    def __init__(self, app: ASGIApp, counts: RequestCounts, ledger: Ledger, log: bool) -> None:
        self._app, self._counts, self._ledger, self._log = app, counts, ledger, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and note what becomes of it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        watched = _Watched(self._counts, self._log, scope, receive, send)
        info = watched.info
        token = REQUEST.set(info)
        try:
            with tracing.request_span(info, watched.method, scope["headers"]):
                try:
                    await self._app(scope, watched.receive if scope["type"] == "http" else receive, watched.send)
                finally:
                    watched.ended()
                    tracing.end_request(info, watched.method, watched.status)
            REQUEST.reset(token)  # not after an error, which uvicorn logs: the request's task ends then
        finally:
            if info.tenant:  # a request without a key is nobody's
                self._ledger.count_request(info.tenant, info.received, info.sent)


class _Watched:
    """One request and its response."""

    def __init__(self, counts: RequestCounts, log: bool, scope: Scope, receive: Receive, send: Send) -> None:
        self.info = RequestInfo(request_id(scope["headers"]))
        self.method: str = scope.get("method", STREAM_METHOD)
        self.status = 500
        self._counts, self._log, self._scope = counts, log, scope
        self._receive, self._send = receive, send
        self._begun = perf_counter()

    async def receive(self) -> Message:
        """Count the bytes of the request's body."""
        message = await self._receive()
        self.info.received += len(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        """Note the status, and count the bytes of the response's body."""
        kind = message["type"]
        if kind in STARTS:
            self.status = message["status"]
            self._add_id(message)
        elif kind == "http.response.body" or kind == "websocket.http.response.body":
            self.info.sent += len(message.get("body", b""))
        elif kind == "websocket.accept":
            self.status = 101
            self._add_id(message)
            self._count(None)
            self._write_line("opened")
        await self._send(message)

    def _add_id(self, message: Message) -> None:
        headers = [pair for pair in message.get("headers", ()) if pair[0] != _NAME]
        message["headers"] = [*headers, (_NAME, self.info.id.encode())]

    def ended(self) -> None:
        """Count and log the response; of a stream, log its end."""
        if self.status == 101:
            self._write_line("closed")
        else:
            self._count(perf_counter() - self._begun)
            self._write_line()

    def _count(self, seconds: float | None) -> None:
        info, counts = self.info, self._counts
        counts.add(info.route, self.method, self.status, seconds, info.slug)
        counts.received += info.received
        counts.sent += info.sent

    def _write_line(self, stream: str | None = None) -> None:
        if not self._log:
            return
        client = (self._scope.get("client") or ("-",))[0]
        path, milliseconds = logged_path(self._scope), 1e3 * (perf_counter() - self._begun)
        what = "closed" if stream == "closed" else self.status
        fields: dict[str, Any] = {
            "client": client, "method": self.method, "path": path, "route": self.info.route, "status": self.status,
            "duration_ms": round(milliseconds, 1), "tenant": self.info.tenant, "problem": self.info.slug,
        }  # fmt: skip
        if stream is not None:
            fields["stream"] = stream
        access_logger.info("%s %s %s %s %.1f ms", client, self.method, path, what, milliseconds, extra=fields)
