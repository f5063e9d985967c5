"""Reads request bodies within the limits on their size and memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from starlette.requests import Request

from telegrad_engine.errors import MalformedRequest, ServerBusy, SessionLimit, TooLarge
from telegrad_engine.program import compression
from telegrad_engine.session.memory_accounting import Accounts

from ..settings import NetworkSettings
from .encodings import is_coded
from .media import JSON, header

FREE = 2**20
"""The largest body, in bytes, for which no memory is reserved."""
STEP = 2**22
"""Bytes that are reserved at a time."""
SMALL = 2**16
"""The largest body, in bytes, that is parsed, joined or hashed on the event loop."""
T = TypeVar("T")


async def off_loop(size: int, function: Callable[..., T], *args: object) -> T:
    """Return ``function(*args)``, called on a thread if it processes more than ``SMALL`` bytes."""
    return function(*args) if size <= SMALL else await asyncio.to_thread(function, *args)


class BodyReservation:
    """The memory reserved for one body or message, from its first byte until it is answered."""

    def __init__(self, bodies: Accounts) -> None:
        self._bodies = bodies
        self._reserved = 0

    def reserve(self, size: int) -> None:
        """Reserve memory for the ``size`` bytes that have arrived so far.

        Raises SessionLimit if the tenant has none left, and ServerBusy if the server has none. Their texts are short
        enough for the reason with which a WebSocket is closed.
        """
        if size > self._reserved and size > FREE:
            more = size - self._reserved + STEP
            try:
                self._bodies.reserve(more)
            except (TooLarge, ServerBusy):
                raise ServerBusy("the server has no memory left for another body", quota="memory") from None
            except SessionLimit as refused:
                text = "this tenant has no memory left for another body: free tensors or end sessions"
                raise SessionLimit(text, **refused.context) from None
            self._reserved += more

    def release(self) -> None:
        """Release the memory."""
        if self._reserved:
            self._bodies.release(self._reserved)
            self._reserved = 0


async def read_body(
    request: Request, media_type: str, settings: NetworkSettings, reservation: BodyReservation, packed: bool = False
) -> compression.Body:
    """Read the body. Raises TooLarge as soon as it is known to exceed the limit.

    A zstd frame is decompressed, unless ``packed`` is true; the limit also applies to the decompressed body.
    """
    limit = settings.max_body_bytes
    if media_type == JSON:
        limit = min(limit, settings.max_json_bytes)
    coded = is_coded(header(request, b"content-encoding"))
    declared = header(request, b"content-length")
    if declared is not None and (not declared.isdecimal() or int(declared) > limit):
        raise _too_large(limit, media_type)
    chunks: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise MalformedRequest("the client went away before the end of the body")
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size += len(chunk)
        if size > limit:
            raise _too_large(limit, media_type)
        reservation.reserve(size)
        chunks.append(chunk)
    if declared is not None and size != int(declared):
        raise MalformedRequest(f"the body ended after {size} of {declared} bytes")
    body = chunks[0] if len(chunks) == 1 else await off_loop(size, b"".join, chunks)
    if not coded:
        return body
    if packed:
        request.scope["telegrad.coded"] = True
        return body
    reservation.reserve(size + await asyncio.to_thread(compression.size_of, body, limit))
    return await asyncio.to_thread(compression.decompress, body, limit)


def _too_large(limit: int, media_type: str) -> TooLarge:
    hint = "; the binary media types may be larger" if media_type == JSON else ""
    return TooLarge(f"a body of {media_type} has at most {limit} bytes here{hint}")
