"""Streams through a gateway: after the handshake, the gateway copies bytes between two connections, unread.

The gateway reads the client's request, checks it and passes it on. After the worker's answer, it sends whatever one end
sends to the other end, as fast as that reads. The worker and the client handle frames, pings and limits themselves, so
a stream costs the gateway two copies, and it holds no message.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from contextlib import suppress
from typing import Any, cast
from urllib.parse import urlsplit

from starlette.types import Scope

from ..streaming.websocket import StreamProtocol
from .directory import Worker
from .proxy import CONNECT_S, Headers, Lost, Unreachable, passed_on, target_of

TUNNEL, JOIN = "telegrad.tunnel", "join"
"""The ASGI extension of a WebSocket, and its function that joins its connection with one to a worker."""
HANDSHAKE_S = 60.0
"""Seconds that a worker gets to answer a handshake, in which it may load a session from the disk."""
MAX_HEAD = 2**16
"""The most bytes of the head of an answer."""
HIGH_WATER = 2**18
"""Bytes that one end may lag behind the other before its writer is held."""


class Answer:
    """The head of a worker's answer to a handshake, and the connection that it came on."""

    def __init__(self, far: _Far, head: bytes) -> None:
        lines = head.split(b"\r\n")
        self.far, self._lines = far, lines
        try:
            self.status = int(lines[0].split(b" ", 2)[1])
        except (IndexError, ValueError):
            raise Lost("not an HTTP answer") from None

    def header(self, name: bytes) -> bytes | None:
        """The value of a header, whose name is in lower case."""
        for line in self._lines[1:]:
            found, _, value = line.partition(b":")
            if found.strip().lower() == name:
                return value.strip()
        return None

    def head(self, own: Headers) -> bytes:
        """The head for the client, with the gateway's own headers in place of the worker's."""
        names = {name.lower() for name, _ in own}
        kept = [line for line in self._lines[:-2] if line.partition(b":")[0].strip().lower() not in names]
        return b"\r\n".join([*kept, *(name + b": " + value for name, value in own), b"", b""])


class _End(asyncio.Protocol):
    """One end of a tunnel: what it receives, the other end sends."""

    transport: asyncio.Transport
    other: _End | None = None

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        return False  # the transport closes itself, and connection_lost the other one

    def pause_writing(self) -> None:
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None:
            self.other.transport.close()  # after what is to be sent


class _Far(_End):
    """The connection to the worker."""

    def __init__(self) -> None:
        self._arrived = bytearray()
        self.ended = asyncio.Event()
        """Set when the connection has ended."""
        self._answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        """The head of the answer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(HIGH_WATER)

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)
            return
        self._arrived += data
        end = self._arrived.find(b"\r\n\r\n")
        if end >= 0 and not self._answer.done():
            self.transport.pause_reading()
            self._answer.set_result(bytes(self._arrived[: end + 4]))
            del self._arrived[: end + 4]
        elif len(self._arrived) > MAX_HEAD:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._answer.done():
            self._answer.set_exception(Lost("the worker closed the connection"))
        self.ended.set()
        if exc is not None and self.other is not None:
            self.other.transport.write(_unread(self.transport))
        super().connection_lost(exc)

    async def answer(self) -> Answer:
        """Wait for the head of the answer. Raises Lost."""
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                return Answer(self, await self._answer)
        except TimeoutError:
            raise Lost("the worker did not answer in time") from None

    def take_rest(self) -> bytes:
        """What has arrived after the head."""
        rest, self._arrived = bytes(self._arrived), bytearray()
        return rest


def _unread(transport: asyncio.Transport) -> bytes:
    """Return the bytes that the worker sent before it closed the connection; they may say why.

    They are unread if sending to the worker failed first. The socket is open while the transport reports the loss.
    """
    if transport.get_extra_info("sslcontext") is not None:
        return b""
    unread = b""
    with suppress(OSError):
        while piece := os.read(transport.get_extra_info("socket").fileno(), MAX_HEAD):
            unread += piece
    return unread


async def shake_hands(scope: Scope, worker: Worker, token: str, tls: ssl.SSLContext) -> Answer:
    """Pass a handshake on to a worker. Raises Unreachable or Lost."""
    parts = urlsplit(worker.url)
    own = {b"connection", b"upgrade", b"te", b"transfer-encoding", b"content-length"}
    headers = [pair for pair in passed_on(scope, token, parts.netloc) if pair[0] not in own]
    headers += [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
    lines = [b"GET " + target_of(scope) + b" HTTP/1.1", *(name + b": " + value for name, value in headers)]
    context = tls if parts.scheme == "https" else None
    port = parts.port or (443 if context else 80)
    try:
        async with asyncio.timeout(CONNECT_S):
            transport, far = await asyncio.get_running_loop().create_connection(
                _Far, parts.hostname or "", port, ssl=context
            )
    except (OSError, TimeoutError) as error:
        reason = str(error) or type(error).__name__
        raise Unreachable(worker, isinstance(error, ConnectionRefusedError), reason) from None
    transport.write(b"\r\n".join([*lines, b"", b""]))
    try:
        return await far.answer()
    except BaseException:
        transport.abort()
        raise


class _Near(_End):
    """The client's connection. Its owner goes on counting it."""

    def __init__(self, owner: TunnelProtocol) -> None:
        self._owner = owner
        self.transport = owner.transport

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._owner.connection_lost(exc)


class TunnelProtocol(StreamProtocol):
    """uvicorn's WebSocket protocol for a gateway, which joins a client's connection with one to a worker."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._near: _Near | None = None

    def handle_connect(self, event: Any) -> None:
        """Offer the extension to the application. Nothing more is read until the worker has answered."""
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope["extensions"][TUNNEL] = {JOIN: self.join}
            self.transport.pause_reading()

    def join(self, answer: Answer, own: Headers) -> None:
        """Send the head of the worker's answer to the client, and pass on what follows until either end closes."""
        far = answer.far
        if self.disconnected or self.transport.is_closing():
            far.transport.abort()
            return
        near = self._near = _Near(self)
        near.other, far.other = far, near
        self.handshake_complete = True  # the worker answers it
        self.transport.set_write_buffer_limits(HIGH_WATER)
        self.transport.set_protocol(near)
        self.transport.write(answer.head(own) + far.take_rest())
        self.transport.resume_reading()
        if far.transport.is_closing():
            self.transport.close()
        else:
            far.transport.resume_reading()

    async def send(self, message: Any) -> None:
        """Send an ASGI message, unless the worker answers."""
        if self._near is None:
            await super().send(message)

    def is_overdue(self, now: float) -> bool:
        """Whether the client is too slow: only the worker knows once the connections are joined."""
        return self._near is None and super().is_overdue(now)

    def shutdown(self) -> None:
        """Close the connection because the gateway stops; the client connects to another one."""
        if self._near is None:
            super().shutdown()
        else:
            self.transport.close()
