"""Passes HTTP requests on to workers and their answers back, piece by piece as they arrive."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import httpcore
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send
from typing_extensions import override

from ..observability.request import HEADER as REQUEST_ID
from ..observability.request import REQUEST
from .directory import Worker
from .tokens import FENCED, MOVED

logger = logging.getLogger(__name__)
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Headers of one connection (RFC 9110, 7.6.1)."""
CHECKED = frozenset(
    {b"authorization", b"expect", b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest"}
)
"""Request headers that the gateway has checked, or replaces."""
CLAIMED = frozenset({b"forwarded", b"telegrad-client", REQUEST_ID.lower().encode(), FENCED.encode()})
"""Headers about the way of a request that only the gateway sets."""
OWN = frozenset({b"date", b"server", REQUEST_ID.lower().encode(), FENCED.encode()})
"""Headers of an answer that the gateway sets itself, or that are for it."""
UNAUTHENTICATED = 401
"""The status of an answer to a token that a worker does not accept. The client's own key is the gateway's business."""
CONNECT_S = 5.0
ASKED_S = 5.0
"""Seconds that a worker gets to answer what the gateway itself asks."""
LOOK_S = 0.1
"""Seconds between two looks whether the worker has answered, while a client takes its time to send a body."""
KEPT_S = 30.0
"""Seconds for which an unused connection is kept: fewer than a worker keeps it."""
MAX_KEPT = 256
"""The most unused connections."""
BEGINNING = "http11.send_request_headers.started"
"""What httpcore says before it sends anything."""
Headers = Sequence[tuple[bytes, bytes]]


class Unreachable(Exception):
    """No connection to the worker was made, so the request had no effect."""

    def __init__(self, worker: Worker, refused: bool, reason: str) -> None:
        super().__init__(f"worker {worker.id} at {worker.url} cannot be reached: {reason}")
        self.worker = worker
        self.refused = refused
        """Whether nothing listens at its address."""


class Lost(Exception):
    """The connection to the worker broke before its answer: whether the request had an effect is unknown."""


class Stopped(Exception):
    """The gateway stops, and the worker has not answered: whether the request had an effect is unknown."""


class Moved(Exception):
    """The worker does not have the session any more. The request had no effect."""


class Refused(Exception):
    """The worker does not accept the gateway's token. The request had no effect."""


class Request(NamedTuple):
    """A request to pass on."""

    scope: Scope
    receive: Receive
    send: Send
    body: bytes | None
    """The whole body, if it has been read; None if it is to be passed on as it arrives."""


def passed_on(scope: Scope, token: str, authority: str) -> list[tuple[bytes, bytes]]:
    """The headers of a request, as the worker gets them."""
    dropped = HOP_BY_HOP | CHECKED | CLAIMED | _named_in(scope["headers"])
    kept = [
        (name, value)
        for name, value in scope["headers"]
        if name not in dropped and not name.startswith(b"x-forwarded-")
    ]
    client = scope.get("client")
    request = REQUEST.get()
    return [
        (b"host", authority.encode()),
        *kept,
        (b"authorization", b"Bearer " + token.encode()),
        *([(b"x-forwarded-for", client[0].encode())] if client else ()),
        *([(REQUEST_ID.lower().encode(), request.id.encode())] if request is not None else ()),
    ]


def _named_in(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """The headers that the header Connection names."""
    found = [value for name, value in headers if name.lower() == b"connection"]
    return frozenset(each.strip().lower() for value in found for each in value.split(b","))


def target_of(scope: Scope) -> bytes:
    """The path and the query of a request, as the client sent them."""
    query: bytes = scope.get("query_string", b"")
    path: bytes = scope["raw_path"]
    return path + b"?" + query if query else path


class _Sending:
    """A request that is sent, of the task that sends it."""

    connection: httpcore.AsyncNetworkStream | None = None
    """The connection that it is sent on."""

    @property
    def is_answered(self) -> bool:
        """Whether the worker has answered, or has closed the connection. Never with TLS, which sends more than that."""
        return self.connection is not None and bool(self.connection.get_extra_info("is_readable"))


SENDING: ContextVar[_Sending | None] = ContextVar("sending", default=None)


class _Connection:
    """A connection that tells the request that is sent on it. Everything else is the stream's."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def write(self, *arguments: Any, **options: Any) -> None:
        if (sending := SENDING.get()) is not None:
            sending.connection = self._stream
        await self._stream.write(*arguments, **options)


class _WorkerNetwork(httpcore.AnyIOBackend):
    """Opens connections to workers.

    A worker may answer before the end of a body that it refuses, so the proxy looks whether there is an answer while a
    client takes its time to send the body.
    """

    @override
    async def connect_tcp(self, *arguments: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        stream = _Connection(await super().connect_tcp(*arguments, **options))
        return cast(httpcore.AsyncNetworkStream, stream)


class Proxy:
    """The connections of a gateway to its workers."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            tls,
            max_connections=sys.maxsize,
            max_keepalive_connections=MAX_KEPT,
            keepalive_expiry=KEPT_S,
            network_backend=_WorkerNetwork(),
        )
        self._passing: defaultdict[str, set[asyncio.Task[None]]] = defaultdict(set)
        """The requests that pass to each worker."""
        self._waiting: set[asyncio.Task[None]] = set()
        """Those that wait for the beginning of their answer."""
        self._stops = False

    def cut(self, worker_id: str) -> None:
        """End the requests that pass to a worker: it is dead."""
        for task in self._passing.pop(worker_id, ()):
            task.cancel()

    @property
    def waiting(self) -> int:
        """How many requests wait for the beginning of their answer."""
        return len(self._waiting)

    def give_up(self) -> None:
        """End the requests that wait for an answer: the gateway stops."""
        self._stops = True
        for task in list(self._waiting):
            task.cancel()

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    async def ask(self, worker: Worker, token: str, target: str) -> Any:
        """The JSON answer of a worker to a GET; None if it gives none in time."""
        headers = [("authorization", f"Bearer {token}"), ("accept", "application/json")]
        timeout = {"connect": ASKED_S, "read": ASKED_S, "write": ASKED_S}
        try:
            answer = await self._pool.request(
                "GET", worker.url + target, headers=headers, extensions={"timeout": timeout}
            )
            return json.loads(answer.content) if answer.status == 200 else None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, ValueError) as error:
            logger.info("worker %s does not answer: %s", worker.id, error or type(error).__name__)
            return None

    async def forward(self, request: Request, worker: Worker, token: str) -> None:
        """Pass a request on and its answer back. If the client goes away, the worker is told.

        Raises Unreachable, Lost, Moved or Stopped, with nothing sent to the client.
        """
        body, answering = _Body(request), _Answering(request.send)
        passing = asyncio.create_task(self._pass(request, body, answering, worker, token))
        watching = asyncio.create_task(body.client_gone())
        self._passing[worker.id].add(passing)
        self._waiting.add(passing)
        answering.at_first = partial(self._waiting.discard, passing)
        try:
            await asyncio.wait((passing, watching), return_when=asyncio.FIRST_COMPLETED)
            if not passing.cancelled():
                if passing.done():
                    passing.result()
            elif answering.begun:
                pass
            elif self._stops:
                raise Stopped
            else:
                raise Lost("the worker is dead") if answering.sent else Unreachable(worker, False, "it is dead")
        finally:
            self._passing[worker.id].discard(passing)
            self._waiting.discard(passing)
            for task in (passing, watching):
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task

    async def _pass(self, request: Request, body: _Body, answering: _Answering, worker: Worker, token: str) -> None:
        scope, parts = request.scope, urlsplit(worker.url)
        headers = passed_on(scope, token, parts.netloc)
        if request.body is None and body.exists and not any(name == b"content-length" for name, _ in headers):
            headers.append((b"transfer-encoding", b"chunked"))
        asked = httpcore.Request(
            scope["method"],
            httpcore.URL(scheme=parts.scheme, host=parts.hostname or "", port=parts.port, target=target_of(scope)),
            headers=headers,
            content=body if body.exists else b"",
            extensions={"timeout": {"connect": CONNECT_S}, "trace": answering.trace},
        )
        SENDING.set(body.sending)  # this task passes one request
        try:
            answer = await self._pool.handle_async_request(asked)
        except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
            raise Unreachable(
                worker, isinstance(error, httpcore.ConnectError), str(error) or type(error).__name__
            ) from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            raise Lost(f"{type(error).__name__}: {error}") from None
        try:
            await answering.answer(answer)
        finally:
            await answer.aclose()


class _Answering:
    """The way of an answer to the client."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.sent = False
        """Whether the worker may have got something of the request."""
        self.begun = False
        """Whether the client has got the beginning of the answer."""
        self.at_first: Callable[[], None] | None = None
        """Called before it does."""

    async def trace(self, event: str, info: Any) -> None:
        """Note what happens to the request."""
        self.sent = self.sent or event == BEGINNING

    async def answer(self, answer: httpcore.Response) -> None:
        """Pass an answer on. Raises Moved, Lost or Refused, with nothing sent, if the worker says so."""
        send = self._send
        fenced = next((value for name, value in answer.headers if name.lower() == FENCED.encode()), None)
        if fenced is not None:
            raise Moved if fenced == MOVED.encode() else Lost
        if answer.status == UNAUTHENTICATED:
            raise Refused((await answer.aread()).decode(errors="replace"))
        dropped = HOP_BY_HOP | OWN | _named_in(answer.headers)
        headers = [(name.lower(), value) for name, value in answer.headers if name.lower() not in dropped]
        self.begun = True
        if self.at_first is not None:
            self.at_first()
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        try:
            async for piece in answer.aiter_stream():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            # The client must not take what it got for all: without the end of the answer, its connection is closed.
            logger.warning("a worker's answer broke off: %s", error or type(error).__name__)
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Body:
    """The body of a request as it arrives, and the wait for its client to go away."""

    def __init__(self, request: Request) -> None:
        self._receive, self._whole = request.receive, request.body
        names = [name for name, _ in request.scope["headers"]]
        whole = self._whole
        self.exists = bool(whole) if whole is not None else b"content-length" in names or b"transfer-encoding" in names
        self.sending = _Sending()
        self._read = asyncio.Event()
        """Set when the whole body has been read."""
        if not self.exists or self._whole is not None:
            self._read.set()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._whole is not None:
            yield self._whole
            return
        while True:
            message = await self._next()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            if piece := message.get("body", b""):
                yield piece
            if not message.get("more_body"):
                self._read.set()
                return

    async def _next(self) -> Message:
        """The next piece. Raises WriteError, after which httpcore reads the answer, if there is one already."""
        receiving = asyncio.ensure_future(self._receive())
        try:
            while not (await asyncio.wait((receiving,), timeout=LOOK_S))[0]:
                if self.sending.is_answered:
                    raise httpcore.WriteError("the worker has answered before the end of the request")
            return receiving.result()
        finally:
            receiving.cancel()

    async def client_gone(self) -> None:
        """Wait until the client has gone away."""
        await self._read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
