"""Forwards requests to workers, and their answers to clients, in pieces as they arrive. Streams become tunnels."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from starlette.types import Receive, Scope, Send

from ..observability.request import HEADER as REQUEST_ID
from ..observability.request import REQUEST
from .connection import SWITCHING, TUNNEL, Connection, Headers, Lost, Unreachable
from .directory import Worker
from .tokens import FENCED, MOVED

logger = logging.getLogger(__name__)
HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
"""Headers of one connection (RFC 9110, 7.6.1)."""
CHECKED = frozenset(
    b"authorization content-length expect host origin sec-fetch-site sec-fetch-mode sec-fetch-dest".split()
)
"""Request headers that the gateway checks or sets itself; those of the client are not forwarded."""
CLAIMED = frozenset({b"forwarded", b"telegrad-client", REQUEST_ID.lower().encode(), FENCED.encode()})
"""Request headers about the client, which only the gateway may set."""
OWN = frozenset({b"date", b"server", REQUEST_ID.lower().encode(), FENCED.encode()})
"""Response headers that the gateway sets itself, or that only the gateway reads."""
UNAUTHENTICATED = 401
"""The status with which a worker refuses the gateway's token. The gateway itself checks the client's key."""
ASKED_S = 5.0
"""Seconds that a worker gets to answer a request of the gateway's own."""
HANDSHAKE_S = 60.0
"""Seconds that a worker gets to answer a stream's handshake, which may load a session from the disk."""
KEPT_S = 30.0
"""Seconds for which an idle connection is kept; a worker keeps it for longer."""
MAX_KEPT = 256
"""The most idle connections to a worker."""


class Stopped(Exception):
    """The gateway stops before the worker has answered. Whether the request had an effect is unknown."""


class Moved(Exception):
    """The worker no longer has the session, or takes no new ones. The request had no effect."""


class Refused(Exception):
    """The worker does not accept the gateway's token. The request had no effect."""


class Request(NamedTuple):
    """A request to forward."""

    scope: Scope
    receive: Receive
    send: Send
    body: bytes | None
    """The whole body if it was read; None if it is forwarded as it arrives."""


def _named_in(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """The names of the headers that the header Connection lists."""
    found = [value for name, value in headers if name.lower() == b"connection"]
    return frozenset(each.strip().lower() for value in found for each in value.split(b","))


class Proxy:
    """The connections of a gateway to its workers."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        """``tls`` is used for workers whose address begins with https."""
        self._tls = tls
        self._connections: set[Connection] = set()
        self._unused: defaultdict[str, set[Connection]] = defaultdict(set)
        """The idle connections to each worker."""
        self._waiting: set[Connection] = set()
        """The connections on which the head of the answer has not arrived."""
        self.streams = 0
        """The number of open streams."""
        self._stops = False

    @property
    def waiting(self) -> int:
        """How many requests wait for the head of their answer."""
        return len(self._waiting)

    def give_up(self) -> None:
        """End the requests that wait for an answer, because the gateway stops."""
        self._stops = True
        for connection in self._waiting:
            connection.abort()

    def cut(self, worker_id: str | None = None) -> None:
        """End the requests and streams of a dead worker, by default of all workers."""
        for connection in self._connections:
            if worker_id in (None, connection.worker.id):
                connection.abort()

    def _take(self, worker: Worker) -> Connection:
        """Return an idle connection, or a new one that is not open yet."""
        unused = self._unused[worker.id]
        while unused:
            if (kept := unused.pop()).is_free:
                return kept
        connection = Connection(worker, self._forget)
        self._connections.add(connection)
        return connection

    def _release(self, connection: Connection) -> None:
        """Keep a connection for another request, if possible."""
        unused = self._unused[connection.worker.id]
        if connection.is_free and len(unused) < MAX_KEPT:
            connection.keep(KEPT_S)
            unused.add(connection)
        else:
            connection.abort()
            self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._unused[connection.worker.id].discard(connection)

    async def ask(self, worker: Worker, token: str, target: str) -> Any:
        """The JSON answer of a worker to a GET; None if there is none in time."""
        headers = [
            (b"host", urlsplit(worker.url).netloc.encode()),
            (b"authorization", b"Bearer " + token.encode()),
            (b"accept", b"application/json"),
        ]
        connection = self._take(worker)
        try:
            async with asyncio.timeout(ASKED_S):
                await connection.open(self._tls)
                connection.begin("GET", target.encode(), headers, b"")
                await connection.answer()
                text = b"".join([piece async for piece in connection.body()])
            return json.loads(text) if connection.status == 200 else None
        except (Unreachable, Lost, TimeoutError, ValueError) as error:
            logger.info("worker %s does not answer: %s", worker.id, error or type(error).__name__)
            return None
        finally:
            self._release(connection)

    async def forward(self, request: Request, worker: Worker, token: str) -> None:
        """Forward a request, or the handshake of a stream, and its answer.

        If the client disconnects, the connection to the worker is closed. Raises Unreachable, Lost, Moved, Refused or
        Stopped, with nothing sent to the client.
        """
        connection = self._take(worker)
        self._waiting.add(connection)
        client: asyncio.Task[None] | None = None
        try:
            await connection.open(self._tls)
            connection.begin(*_head(request, token, worker), request.body)
            if request.scope["type"] == "http":
                client = asyncio.create_task(_follow_client(request, connection))
            async with asyncio.timeout(None if client is not None else HANDSHAKE_S):
                await connection.answer()
            await _check(connection)
            self._waiting.discard(connection)
            if client is not None and not connection.is_sent:
                client.cancel()  # the worker does not want the rest
            await self._answer(request, connection)
        except (Unreachable, Lost, TimeoutError) as error:
            if client is not None and client.done() and not client.cancelled():
                client.result()  # the client has disconnected
            elif connection not in self._waiting:
                # Without its end, the client cannot take the answer for complete: its connection is closed.
                logger.warning("a worker's answer broke off: %s", error)
            elif self._stops:
                raise Stopped from None
            elif isinstance(error, TimeoutError):
                raise Lost("the worker did not answer in time") from None
            else:
                raise
        finally:
            self._waiting.discard(connection)
            if client is not None:
                client.cancel()
            self._release(connection)

    async def _answer(self, request: Request, connection: Connection) -> None:
        """Forward an answer."""
        send, status, kind = request.send, connection.status, "http.response"
        if status == SWITCHING:
            self.streams += 1
            try:
                await send({"type": "websocket.accept", "headers": connection.headers, TUNNEL: connection})
                await connection.lost.wait()
            finally:
                self.streams -= 1
            return
        if request.scope["type"] == "websocket":
            kind = "websocket.http.response"
        dropped = HOP_BY_HOP | OWN | _named_in(connection.headers)
        headers = [pair for pair in connection.headers if pair[0] not in dropped]
        await send({"type": f"{kind}.start", "status": status, "headers": headers})
        async for piece in connection.body():
            await send({"type": f"{kind}.body", "body": piece, "more_body": True})
        await send({"type": f"{kind}.body", "body": b"", "more_body": False})


def _head(request: Request, token: str, worker: Worker) -> tuple[str, bytes, Headers]:
    """The method, the target and the headers that the worker gets."""
    scope, info = request.scope, REQUEST.get()
    dropped = HOP_BY_HOP | CHECKED | CLAIMED | _named_in(scope["headers"])
    headers = [
        (name, value)
        for name, value in scope["headers"]
        if name not in dropped and not name.startswith(b"x-forwarded-")
    ]
    headers.append((b"host", urlsplit(worker.url).netloc.encode()))
    headers.append((b"authorization", b"Bearer " + token.encode()))
    if client := scope.get("client"):
        headers.append((b"x-forwarded-for", client[0].encode()))
    if info is not None:
        headers.append((REQUEST_ID.lower().encode(), info.id.encode()))
    length = _length(scope)
    if scope["type"] == "websocket":
        headers += [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
    elif length is not None:
        headers.append((b"content-length", length if request.body is None else b"%d" % len(request.body)))
    elif request.body is None:
        headers.append((b"transfer-encoding", b"chunked"))
    path, query = scope["raw_path"], scope.get("query_string", b"")
    return scope.get("method", "GET"), path + b"?" + query if query else path, headers


def _length(scope: Scope) -> bytes | None:
    """The Content-Length of a request; None if it has none."""
    return next((value for name, value in scope["headers"] if name == b"content-length"), None)


async def _follow_client(request: Request, connection: Connection) -> None:
    """Forward the body of a request as it arrives, and close the connection when the client disconnects."""
    chunked = _length(request.scope) is None
    while (message := await request.receive())["type"] != "http.disconnect":
        if connection.is_sent:
            continue
        if piece := message.get("body", b""):
            await connection.write(*((b"%x\r\n" % len(piece), piece, b"\r\n") if chunked else (piece,)))
        if not message.get("more_body"):
            connection.is_sent = True
            if chunked:
                await connection.write(b"0\r\n\r\n")
    connection.abort()


async def _check(connection: Connection) -> None:
    """Raise Moved, Lost or Refused if the worker has not served the request."""
    fenced = next((value for name, value in connection.headers if name == FENCED.encode()), None)
    if fenced is not None:
        raise Moved if fenced == MOVED.encode() else Lost
    if connection.status == UNAUTHENTICATED:
        raise Refused(b"".join([piece async for piece in connection.body()]).decode(errors="replace"))
