"""Connections to workers that tell, while a body is sent, whether the worker has answered already: it may refuse it."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

import httpcore
from typing_extensions import override


class Sending:
    """A request of this task that is sent."""

    connection: httpcore.AsyncNetworkStream | None = None
    """The connection that it is sent on."""

    @property
    def is_answered(self) -> bool:
        """Whether the worker has answered, or has closed the connection. Never with TLS, which sends more than that."""
        return self.connection is not None and bool(self.connection.get_extra_info("is_readable"))


SENDING: ContextVar[Sending | None] = ContextVar("sending", default=None)
"""The request that this task sends."""


class WorkerNetwork(httpcore.AsyncNetworkBackend):
    """Opens connections for httpcore, which note what is sent on them."""

    def __init__(self) -> None:
        self._backend = httpcore.AnyIOBackend()

    @override
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return _Connection(await self._backend.connect_tcp(host, port, timeout, local_address, socket_options))

    @override
    async def sleep(self, seconds: float) -> None:
        await self._backend.sleep(seconds)


class _Connection(httpcore.AsyncNetworkStream):
    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream

    @override
    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._stream.read(max_bytes, timeout)

    @override
    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if (sending := SENDING.get()) is not None:
            sending.connection = self._stream
        await self._stream.write(buffer, timeout)

    @override
    async def aclose(self) -> None:
        await self._stream.aclose()

    @override
    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return await self._stream.start_tls(ssl_context, server_hostname, timeout)

    @override
    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
