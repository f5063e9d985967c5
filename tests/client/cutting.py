"""A TCP proxy that cuts connections at a given byte, refuses connections, or delays data."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Self
from urllib.parse import urlsplit

UP, DOWN = "up", "down"


class Cutter:
    """A context manager that relays connections to the server at ``url``, with TLS on the client's side if given."""

    def __init__(self, url: str, tls: ssl.SSLContext | None = None) -> None:
        self._target, self._tls = urlsplit(url), tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._open: set[asyncio.StreamWriter] = set()
        self.passed: Counter[str] = Counter()
        """The number of relayed bytes, by direction."""
        self.sent = bytearray()
        """The bytes that clients sent."""
        self.cuts = 0
        """The number of cuts so far."""
        self.refusing = False
        """Whether new connections are closed at once."""
        self.refused = 0
        """The number of connections that were closed at once."""
        self.to_upgrades: bytes | None = None
        """The answer to WebSocket requests, after which the connection is closed; None relays them."""
        self.rewrite: Callable[[bytes], bytes] | None = None
        """A function that rewrites the data that the server sends on a WebSocket after the handshake."""
        self.delay_s = 0.0
        """The latency in seconds, independent of the amount of data."""
        self._left: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls))
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self.kill()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(asyncio.sleep(0.01))
        self._loop.close()

    def _call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    def cut(self, direction: str, after: int) -> None:
        """End every connection after ``after`` more bytes in a direction."""
        self._left = {direction: after}

    def mend(self) -> None:
        """Stop cutting connections."""
        self._left = {}

    def kill(self) -> None:
        """End all connections now."""

        async def close() -> None:
            self._end()
            await asyncio.sleep(0)

        self._call(close())

    def _end(self) -> None:
        for writer in self._open:
            writer.close()
        self._open.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            if self.refusing:
                self.refused += 1
                writer.close()
                return
            first = await reader.read(2**16)
            upgrade = b"upgrade: websocket" in first.lower()
            if self.to_upgrades is not None and upgrade:
                writer.write(self.to_upgrades)
                writer.close()
                return
            there = await asyncio.open_connection(self._target.hostname, self._target.port)
            self._open |= {writer, there[1]}
            first = self.introduced(first, there[1].get_extra_info("sockname"))
            down = self._rewriting(there[0]) if upgrade else there[0].read
            await asyncio.gather(self._pump(UP, reader.read, there[1], first), self._pump(DOWN, down, writer, b""))

    def introduced(self, first: bytes, end: tuple[str, int]) -> bytes:
        """Return the first bytes of a client as relayed to the server; ``end`` is the proxy's address and port."""
        return first

    def _rewriting(self, reader: asyncio.StreamReader) -> Callable[[int], Awaitable[bytes]]:
        async def read(count: int) -> bytes:
            data = await reader.read(count)
            rewritten = self.rewrite is not None and data and not data.startswith(b"HTTP/")
            return self.rewrite(data) if rewritten else data

        return read

    async def _pump(
        self, way: str, read: Callable[[int], Awaitable[bytes]], writer: asyncio.StreamWriter, data: bytes
    ) -> None:
        with suppress(OSError):
            while True:
                left = self._left.get(way)
                if data:
                    part = data if left is None else data[:left]
                    self.passed[way] += len(part)
                    if way == UP:
                        self.sent += part
                    if self.delay_s:
                        self._loop.call_later(self.delay_s, writer.write, part)
                    else:
                        writer.write(part)
                        await writer.drain()
                    if left is not None:
                        self._left[way] = left - len(part)
                if left is not None and left <= len(data):
                    self._left = {}
                    self.cuts += 1
                    self._end()
                    return
                data = await read(2**16)
                if not data:
                    break
        self._loop.call_later(self.delay_s, writer.close)
