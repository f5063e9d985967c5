"""Limits on connections and bodies.

A connection that waits for its client costs a file descriptor and memory. Three limits bound that: connections per peer
and in total, with some file descriptors reserved; seconds to send headers, to send a body, and between requests; and
the size of headers. If there is no room for another connection, the server closes the one that has waited longest for a
request. If none of them waits, the new connection is accepted on a reserved descriptor, for one request: health checks
are answered, everything else gets a 503.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections import Counter
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Protocol, TypeVar

from starlette.requests import Request
from uvicorn.server import ServerState

from telegrad_engine.errors import MalformedRequest, ServerBusy, SessionLimit, TooLarge
from telegrad_engine.program import compression
from telegrad_engine.session.memory_accounting import Accounts

from ..observability.metrics import RequestCounts
from ..settings import NetworkSettings
from .representations import JSON, header_of, is_coded

FREE = 2**20
"""The size in bytes up to which no memory is reserved for a body."""
STEP = 2**22
"""Bytes that are reserved at a time."""
SMALL = 2**16
"""The size in bytes up to which a body is parsed, joined or hashed on the event loop."""
T = TypeVar("T")


async def off_loop(size: int, function: Callable[..., T], *args: object) -> T:
    """Return ``function(*args)``, called on a thread if it processes more than ``SMALL`` bytes."""
    return function(*args) if size <= SMALL else await asyncio.to_thread(function, *args)


class BodyReservation:
    """The memory reserved for one body or message until it is answered."""

    def __init__(self, bodies: Accounts) -> None:
        self._bodies = bodies
        self._reserved = 0

    def reserve(self, size: int) -> None:
        """Reserve memory for the ``size`` bytes that have arrived so far.

        Raises SessionLimit if the tenant has no memory left, and ServerBusy if the server has none. The texts are short
        enough for the reason of a WebSocket's close frame.
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
    """Read the body. Raises TooLarge as soon as it exceeds the limit.

    A zstd frame is decompressed, unless ``packed`` is true; the limit also applies to the decompressed body.
    """
    limit = settings.max_body_bytes
    if media_type == JSON:
        limit = min(limit, settings.max_json_bytes)
    coded = is_coded(header_of(request, b"content-encoding"))
    declared = header_of(request, b"content-length")
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


# Connections --------------------------------------------------------------------------------------

RESERVED_DESCRIPTORS = 64
"""File descriptors reserved for listening sockets, files, libraries and the spare connections."""
SPARE = 16
"""Connections accepted above the limit, for one short request each."""
SPARE_S = 2.0
"""Seconds in which a request on a spare connection must arrive."""
MIN_RATE = 1024
"""Bytes per second at which a client must send a body, or read an answer, after the timeout."""
MAX_BACKLOG = 2048


def peer_of(address: str) -> str:
    """The peer that an address belongs to: a /64 network for IPv6, the address itself for IPv4."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        return str(found.ipv4_mapped or ip_network((found, 64), strict=False))
    return address


def max_descriptors() -> float:
    """The number of file descriptors this process may have open."""
    if sys.platform == "win32":  # it has no such limit
        return math.inf
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return math.inf if soft == resource.RLIM_INFINITY else soft


def extended(deadline: float, count: int, now: float, timeout_s: float) -> float:
    """The deadline of a transfer after ``count`` more bytes.

    Each byte extends the deadline by its time at ``MIN_RATE``, to at most ``timeout_s`` from now. So a client cannot
    send most of a large body at once and then keep the server waiting for hours.
    """
    return min(deadline + count / MIN_RATE, now + timeout_s)


class Connection(Protocol):
    """The interface of a connection that the limits use."""

    peer: str
    spare: bool
    """Whether the connection was accepted above the limit."""
    waiting_since: float | None
    """When the connection began to wait for a request; None while it serves one, and for a stream."""

    def is_overdue(self, now: float) -> bool:
        """Whether the client is too slow."""

    def expire(self) -> None:
        """Close the connection because the client is too slow."""

    def abort(self) -> None:
        """Close the connection immediately."""


class ConnectionLimits:
    """The open connections of a server."""

    def __init__(self, settings: NetworkSettings, descriptors: float | None = None) -> None:
        self.settings = settings
        descriptors = max_descriptors() if descriptors is None else descriptors
        reserved = max(RESERVED_DESCRIPTORS, descriptors / 4) if descriptors < math.inf else RESERVED_DESCRIPTORS
        self.max_open = int(max(1, min(settings.max_connections, descriptors - reserved)))
        # A single peer can never use all connections.
        self.max_per_peer = min(settings.max_connections_per_peer, max(1, self.max_open * 3 // 4))
        # The connections of a burst take their descriptors all at once when they are accepted.
        self.backlog = int(min(MAX_BACKLOG, max(1, reserved / 2 if descriptors < math.inf else MAX_BACKLOG)))
        self._open: dict[Connection, None] = {}
        self._of_peer: Counter[str] = Counter()
        self._spare = 0
        self._unlimited = frozenset(settings.trusted_proxy)

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Connection) -> None:
        """Count a new connection. If there is no room for it, mark it as ``spare`` or abort it."""
        self._open[connection] = None
        self._of_peer[connection.peer] += 1
        if self._has_room(connection.peer) or self._make_room(connection):
            return
        if self._spare >= SPARE and not self._make_room(connection, spare=True):
            connection.abort()
        connection.spare = True
        self._spare += 1

    def keep(self, stream: Connection) -> None:
        """Count a stream. There is room for it, because it replaces an HTTP connection."""
        self._open[stream] = None
        self._of_peer[stream.peer] += 1

    def leave(self, connection: Connection) -> None:
        """Stop counting a connection that has closed or is about to close."""
        if connection not in self._open:
            return
        del self._open[connection]
        self._spare -= connection.spare
        self._of_peer[connection.peer] -= 1
        if not self._of_peer[connection.peer]:
            del self._of_peer[connection.peer]

    def end_overdue(self, now: float) -> None:
        """Close the connections of slow clients."""
        for connection in list(self._open):
            if connection.is_overdue(now):
                connection.expire()

    def _has_room(self, peer: str) -> bool:
        if len(self._open) > self.max_open:
            return False
        return self._of_peer[peer] <= self.max_per_peer or peer in self._unlimited

    def _make_room(self, newcomer: Connection, spare: bool = False) -> bool:
        """Close the connection that has waited longest: of all if there are too many, else of the newcomer's peer."""
        too_many = len(self._open) > self.max_open
        waiting = [
            connection
            for connection in self._open
            if connection.waiting_since is not None
            and connection is not newcomer
            and connection.spare == spare
            and (too_many or connection.peer == newcomer.peer)
        ]
        if not waiting:
            return False
        longest = min(waiting, key=lambda connection: connection.waiting_since or 0.0)
        self.leave(longest)
        longest.abort()
        return True


class LimitedServerState(ServerState):
    """The state that uvicorn's protocols share, with the connection limits."""

    def __init__(self, limits: ConnectionLimits, bodies: Callable[[str], Accounts], requests: RequestCounts) -> None:
        super().__init__()
        self.limits = limits
        self.requests = requests
        """The counts of requests, to count those that do not reach the application."""
        self.bodies = bodies
        """The memory account of a tenant's incoming bodies."""
