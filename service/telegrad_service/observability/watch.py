"""The ASGI middleware that gives every request an id, counts, logs and traces it."""

from __future__ import annotations

import logging
import re
from time import perf_counter
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from . import tracing
from .metrics import STREAM_METHOD, Ledger, RequestCounts
from .request import HEADER, REQUEST, RequestInfo, request_id

access_logger = logging.getLogger("telegrad_service.access")
SESSION = re.compile(r"^(/+v1/+sessions/+[^/]{6})[^/]+")
MAX_PATH = 200
"""The most characters of a path that are logged."""
STARTS = frozenset({"http.response.start", "websocket.http.response.start", "websocket.accept"})
BODIES = frozenset({"http.response.body", "websocket.http.response.body"})
_NAME = HEADER.lower().encode()


def logged_path(scope: Scope) -> str:
    """The request's path for the log: in ASCII, truncated, and with a shortened session id."""
    # Use the decoded path, as the routes do: in raw_path, the characters before the id may be percent-encoded.
    path = SESSION.sub(r"\1...", scope["path"].encode("unicode_escape").decode("ascii"))
    return path if len(path) <= MAX_PATH else path[:MAX_PATH] + "..."


class RequestWatch:
    """Watches the requests to ``app``.

    Each response gets the request's id. With ``log``, requests are logged at level info, with client, method, path,
    status and duration. A stream is logged when it begins and when it ends. Queries, headers and bodies are not logged.
    Session ids are shortened, because knowing the id grants access to the session.
    """

    def __init__(self, app: ASGIApp, counts: RequestCounts, ledger: Ledger, log: bool) -> None:
        self._app, self._counts, self._ledger, self._log = app, counts, ledger, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, and record its outcome."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        begun = perf_counter()
        info = RequestInfo(request_id(scope["headers"]), scope.get("method", STREAM_METHOD))

        async def receive_part() -> Message:
            message = await receive()
            info.received += len(message.get("body", b""))
            return message

        async def send_part(message: Message) -> None:
            kind = message["type"]
            if kind in STARTS:
                info.status = message.get("status", 101)
                headers = [pair for pair in message.get("headers", ()) if pair[0] != _NAME]
                message["headers"] = [*headers, (_NAME, info.id.encode())]
                if info.status == 101:
                    self._count(info, None)
                    self._write_line(scope, info, begun, "opened")
            elif kind in BODIES:
                info.sent += len(message.get("body", b""))
            await send(message)

        token = REQUEST.set(info)
        try:
            with tracing.request_span(info, scope["headers"]):
                try:
                    await self._app(scope, receive_part if scope["type"] == "http" else receive, send_part)
                finally:
                    if info.status != 101:
                        self._count(info, perf_counter() - begun)
                    self._write_line(scope, info, begun, "closed" if info.status == 101 else None)
            REQUEST.reset(token)  # not after an error, which uvicorn logs: the request's task ends then
        finally:
            if info.tenant:  # a request without a key is nobody's
                self._ledger.count_request(info.tenant, info.received, info.sent)

    def _count(self, info: RequestInfo, seconds: float | None) -> None:
        self._counts.add(info.route, info.method, info.status, seconds, info.slug)
        self._counts.received += info.received
        self._counts.sent += info.sent

    def _write_line(self, scope: Scope, info: RequestInfo, begun: float, stream: str | None) -> None:
        if not self._log:
            return
        client = (scope.get("client") or ("-",))[0]
        path, milliseconds = logged_path(scope), 1e3 * (perf_counter() - begun)
        what = "closed" if stream == "closed" else info.status
        fields: dict[str, Any] = {
            "client": client, "method": info.method, "path": path, "route": info.route, "status": info.status,
            "duration_ms": round(milliseconds, 1), "tenant": info.tenant, "problem": info.slug,
        }  # fmt: skip
        if stream is not None:
            fields["stream"] = stream
        access_logger.info("%s %s %s %s %.1f ms", client, info.method, path, what, milliseconds, extra=fields)
