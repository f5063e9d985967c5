"""A gateway's connections to its workers, in HTTP/1.1, one request at a time on each; streams become tunnels.

The gateway reads the request for a stream, checks it and passes it on. After the worker's answer, it copies bytes
between the two connections without reading them, as fast as the other end reads. The worker and the client handle
frames, pings and limits themselves, so a stream costs the gateway two copies, and it holds no message.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, cast
from urllib.parse import urlsplit

import httptools

from ..streaming.websocket import StreamProtocol
from .directory import Worker

CONNECT_S = 5.0
HIGH_WATER = 2**18
"""The bytes that may wait to be sent before reading from the other connection pauses."""
SWITCHING = 101
"""The status with which a connection becomes a stream."""
LENGTHS = frozenset({b"content-length", b"transfer-encoding"})
"""The headers that determine the end of a body; without them, it ends with the connection."""
Headers = list[tuple[bytes, bytes]]


class Unreachable(Exception):
    """The connection to the worker failed, so the request had no effect."""

    def __init__(self, worker: Worker, refused: bool, reason: str) -> None:
        super().__init__(f"worker {worker.id} at {worker.url} cannot be reached: {reason}")
        self.worker = worker
        self.refused = refused
        """Whether nothing listens at the worker's address."""


class Lost(Exception):
    """The connection broke before the worker answered. Whether the request had an effect is unknown."""


class Connection(asyncio.Protocol):
    """A connection to a worker: sends a request, then receives the head of the answer, and its body as it arrives."""

    transport: asyncio.Transport
    status = 0
    """The status of the answer; 0 before it arrives."""
    is_sent = False
    """Whether the whole request was sent."""

    def __init__(self, worker: Worker, on_lost: Callable[[Connection], None]) -> None:
        """``on_lost`` is called when the connection has ended."""
        self.worker, self._on_lost = worker, on_lost
        self.lost = asyncio.Event()
        """Set when the connection has ended."""
        self._reason = "the worker closed the connection"
        self._arrived, self._writable = asyncio.Event(), asyncio.Event()
        self._writable.set()
        self._parser: Any = None
        """Reads the answer; None before the first request."""
        self.headers: Headers = []
        """The headers of the answer, with names in lower case."""
        self._pieces: list[bytes] = []
        self._size = 0
        """The number of bytes in ``_pieces``."""
        self._ended = self._keeps_alive = False
        self._expiry: asyncio.TimerHandle | None = None

    async def open(self, tls: ssl.SSLContext) -> None:
        """Connect, unless the connection is already open; ``tls`` is used for an https address. Raises Unreachable."""
        if self._expiry is not None:
            self._expiry.cancel()
            return
        parts = urlsplit(self.worker.url)
        context = tls if parts.scheme == "https" else None
        port = parts.port or (443 if context else 80)
        try:
            async with asyncio.timeout(CONNECT_S):
                loop = asyncio.get_running_loop()
                await loop.create_connection(lambda: self, parts.hostname or "", port, ssl=context)
        except OSError as error:  # TimeoutError is one
            reason = str(error) or type(error).__name__
            raise Unreachable(self.worker, not isinstance(error, TimeoutError), reason) from None
        if self.lost.is_set():
            raise Unreachable(self.worker, False, "it is dead")

    def abort(self) -> None:
        """Close the connection immediately."""
        self.lost.set()
        if self.is_open:
            self.transport.abort()

    # Requests ------------------------------------------------------------------------------------

    def begin(self, method: str, target: bytes, headers: Headers, body: bytes | None) -> None:
        """Send a request. If ``body`` is None, :meth:`write` sends the body later."""
        self._parser, self._is_head = httptools.HttpResponseParser(self), method == "HEAD"
        self.take()  # what nobody wanted of the last answer
        self.status, self.headers = 0, []
        self.is_sent, self._ended = body is not None, False
        lines = [method.encode() + b" " + target + b" HTTP/1.1", *(name + b": " + value for name, value in headers)]
        self.transport.write(b"\r\n".join([*lines, b"", body or b""]))

    async def write(self, *pieces: bytes) -> None:
        """Send a part of the body, and wait until the worker can receive more."""
        if self.is_open:
            self.transport.writelines(pieces)
            await self._writable.wait()

    async def answer(self) -> None:
        """Wait for the head of the answer: ``status`` and ``headers``. Raises Lost."""
        while not self.status:
            await self._wait()

    async def body(self) -> AsyncIterator[bytes]:
        """The pieces of the answer's body as they arrive. Raises Lost."""
        while True:
            if self._pieces:
                yield self.take()
            elif self._ended:
                return
            else:
                await self._wait()

    def take(self) -> bytes:
        """Return the bytes of a body or a stream that have arrived since the last call."""
        found = b"".join(self._pieces)
        self._pieces.clear()
        if self._size > HIGH_WATER and self.is_open:
            self.transport.resume_reading()
        self._size = 0
        return found

    @property
    def is_open(self) -> bool:
        """Whether the connection is open."""
        return hasattr(self, "transport") and not self.transport.is_closing()

    @property
    def is_free(self) -> bool:
        """Whether the connection can be used for another request."""
        return self.is_open and self.is_sent and self._ended and self._keeps_alive

    def keep(self, seconds: float) -> None:
        """Close the connection after this time, unless another request is sent before."""
        self._expiry = asyncio.get_running_loop().call_later(seconds, self.abort)

    async def _wait(self) -> None:
        """Wait until more data arrives. Raises Lost."""
        if self.lost.is_set():
            raise Lost(self._reason)
        self._arrived.clear()
        await self._arrived.wait()

    # Callbacks of the transport and of the parser ------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport, or close it if :meth:`abort` was called before."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(HIGH_WATER)
        if self.lost.is_set():
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse a part of the answer. Data without a request closes the connection."""
        try:
            if self._parser is None or self._ended:
                raise httptools.HttpParserError("nothing was asked")
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self.transport.pause_reading()
            self._pieces.append(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._reason = f"not an HTTP answer: {error}"
            self.transport.abort()
        self._arrived.set()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header."""
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Store the status, unless it is provisional, such as 100."""
        status = self._parser.get_status_code()
        if status < 200 and status != SWITCHING:
            self.headers.clear()
            return
        self.status, self._ended = status, self._is_head
        self._keeps_alive = status != SWITCHING and self._parser.should_keep_alive()
        self._ends_with_connection = not LENGTHS.intersection(name for name, _ in self.headers)

    def on_body(self, piece: bytes) -> None:
        """Store a part of the body, and pause reading while too much of it waits."""
        self._pieces.append(piece)
        before, self._size = self._size, self._size + len(piece)
        if before <= HIGH_WATER < self._size:
            self.transport.pause_reading()

    def on_message_complete(self) -> None:
        """Mark the end of the answer."""
        self._ended = self.status != 0

    def pause_writing(self) -> None:
        """Suspend :meth:`write`, because the worker does not read."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Resume :meth:`write`."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all waits."""
        if exc is not None:
            self._reason = f"{type(exc).__name__}: {exc}"
        elif self._parser is not None and self.status and self._ends_with_connection:
            self._ended = True
        self._parser = None
        self.lost.set()
        self._arrived.set()
        self._writable.set()
        if self._expiry is not None:
            self._expiry.cancel()
        self._on_lost(self)


# Tunnels ------------------------------------------------------------------------------------------

TUNNEL = "telegrad.tunnel"
"""The key of the connection to the worker in the ASGI message ``websocket.accept``."""
MAX_PIECE = 2**16
"""Bytes to read at a time from a failed connection."""


class _End(asyncio.Protocol):
    """One end of a tunnel: sends what the other end receives. Its ``owner`` still counts the connection."""

    other: _End

    def __init__(self, owner: TunnelProtocol | Connection, transport: asyncio.Transport) -> None:
        self._owner, self.transport = owner, transport
        transport.set_protocol(self)

    def data_received(self, data: bytes) -> None:
        self.other.transport.write(data)

    def eof_received(self) -> bool:
        return False  # the transport closes itself, and connection_lost closes the other one

    def pause_writing(self) -> None:
        if not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self.other.transport.write(_unread(self.transport))
        self.other.transport.close()  # after its buffer is sent
        self._owner.connection_lost(exc)


def _unread(transport: asyncio.Transport) -> bytes:
    """Return the bytes that one end sent before it closed the connection; a worker's may say why.

    They are unread if sending to it failed first. The socket is still open while the transport reports the loss.
    """
    if transport.get_extra_info("sslcontext") is not None:
        return b""
    unread = b""
    with suppress(OSError):
        while piece := os.read(transport.get_extra_info("socket").fileno(), MAX_PIECE):
            unread += piece
    return unread


class TunnelProtocol(StreamProtocol):
    """uvicorn's WebSocket protocol for a gateway, which joins the connections of a client and a worker."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._is_joined = False

    def handle_connect(self, event: Any) -> None:
        """Start the application, and pause reading until the worker has answered."""
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.transport.pause_reading()

    async def send(self, message: Any) -> None:
        """Send an ASGI message. If it has a connection to a worker, join the two connections."""
        if TUNNEL in message:
            self._join(message[TUNNEL], message["headers"])
        else:
            await super().send(message)

    def _join(self, connection: Connection, headers: Headers) -> None:
        """Send the head of the worker's answer to the client, then copy bytes both ways until either end closes."""
        worker = connection.transport
        if self.disconnected or self.transport.is_closing():
            connection.abort()
            return
        self._is_joined = self.handshake_complete = True  # the worker has answered the handshake
        near, far = _End(self, self.transport), _End(connection, worker)
        near.other, far.other = far, near
        self.transport.set_write_buffer_limits(HIGH_WATER)
        lines = [b"HTTP/1.1 101 Switching Protocols", *(name + b": " + value for name, value in headers)]
        self.transport.write(b"\r\n".join([*lines, b"", connection.take()]))
        self.transport.resume_reading()
        if worker.is_closing():
            self.transport.close()
        else:
            worker.resume_reading()

    def is_overdue(self, now: float) -> bool:
        """Whether the client is too slow. Once the connections are joined, the worker decides that."""
        return not self._is_joined and super().is_overdue(now)

    def shutdown(self) -> None:
        """Close the connection because the gateway stops; the client connects to another gateway."""
        if self._is_joined:
            self.transport.close()
        else:
            super().shutdown()
