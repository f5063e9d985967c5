"""Streams through a gateway: after the handshake, the gateway copies bytes between two connections, unread.

The gateway reads the client's request, checks it and passes it on. After the worker's answer, it sends whatever one end
sends to the other end, as fast as that reads. The worker and the client handle frames, pings and limits themselves, so
a stream costs the gateway two copies, and it holds no message.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import Any

from ..streaming.websocket import StreamProtocol
from .connection import HIGH_WATER, Connection, Headers

TUNNEL = "telegrad.tunnel"
"""The member of the ASGI message ``websocket.accept`` that has the connection to the worker."""
MAX_PIECE = 2**16
"""Bytes to read at a time from a connection that has failed."""


class _End(asyncio.Protocol):
    """One end of a tunnel: what it receives, the other end sends. Its ``owner`` goes on counting the connection."""

    other: _End

    def __init__(self, owner: TunnelProtocol | Connection, transport: asyncio.Transport) -> None:
        self._owner, self.transport = owner, transport
        transport.set_protocol(self)

    def data_received(self, data: bytes) -> None:
        self.other.transport.write(data)

    def eof_received(self) -> bool:
        return False  # the transport closes itself, and connection_lost the other one

    def pause_writing(self) -> None:
        if not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self.other.transport.write(_unread(self.transport))
        self.other.transport.close()  # after what is to be sent
        self._owner.connection_lost(exc)


def _unread(transport: asyncio.Transport) -> bytes:
    """Return the bytes that one end sent before it closed the connection; a worker's may say why.

    They are unread if sending to it failed first. The socket is open while the transport reports the loss.
    """
    if transport.get_extra_info("sslcontext") is not None:
        return b""
    unread = b""
    with suppress(OSError):
        while piece := os.read(transport.get_extra_info("socket").fileno(), MAX_PIECE):
            unread += piece
    return unread


class TunnelProtocol(StreamProtocol):
    """uvicorn's WebSocket protocol for a gateway, which joins a client's connection with one to a worker."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._is_joined = False

    def handle_connect(self, event: Any) -> None:
        """Start the application. Nothing more is read until the worker has answered."""
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.transport.pause_reading()

    async def send(self, message: Any) -> None:
        """Send an ASGI message; if it has the connection to a worker, join the two."""
        if TUNNEL in message:
            self._join(message[TUNNEL], message["headers"])
        else:
            await super().send(message)

    def _join(self, connection: Connection, headers: Headers) -> None:
        """Send the head of the worker's answer to the client, and pass on what follows until either end closes."""
        worker = connection.transport
        if self.disconnected or self.transport.is_closing():
            connection.abort()
            return
        self._is_joined = self.handshake_complete = True  # the worker answers the handshake
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
        """Whether the client is too slow: only the worker knows once the connections are joined."""
        return not self._is_joined and super().is_overdue(now)

    def shutdown(self) -> None:
        """Close the connection because the gateway stops; the client connects to another one."""
        if self._is_joined:
            self.transport.close()
        else:
            super().shutdown()
