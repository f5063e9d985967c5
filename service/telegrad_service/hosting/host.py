"""Session hosts, which create, find and end sessions.

:class:`SessionHost` is the interface; :mod:`.in_process` keeps sessions in this process. Routes access a session
through ``SessionHandle.call`` with a command or a query (:mod:`.commands`), whose arguments are plain data.
"""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from telegrad_engine import dtypes
from telegrad_engine.cancellation import CancellationToken
from telegrad_engine.errors import (
    SessionExists,
)
from telegrad_engine.program.registered_functions import Library
from telegrad_engine.program.safetensors import Container
from telegrad_engine.session.memory_accounting import Accounts
from telegrad_engine.session.quota import Quota
from telegrad_engine.session.session import NotAtOnce

from ..observability.feed import Feed
from ..observability.ledger import Gauges, Ledger, SessionAccount
from ..tenants.principal import ANYONE, Principal
from .sequence import HostedSession, SequenceRecords

P = ParamSpec("P")
GOING_AWAY, ENDED, TAKEN_OVER = 1001, 4404, 4409
"""The close codes of a stream: a standard one of WebSocket, and two of our own that are based on HTTP statuses."""
AT_ONCE_S = 5e-3
"""Seconds that a program may block the event loop if its session is alone."""
TINY_S = 1e-4
"""Seconds that it may block the event loop otherwise, about as long as handing it to a thread and back takes."""
CANCEL_S = 2.0
"""Seconds that cancelled programs get to end when the server stops; a call into BLAS may take longer."""
RETURN_S = 60.0
"""Seconds in which a session does not expire after a restart, in which clients connect again."""
OCCUPIED_S = 5.0
"""The server is not ready if every thread has run the same work for this many seconds."""
SESSION_ENDED, CLIENT_GONE = "the session has ended", "the program's client went away"
TOKEN: ContextVar[CancellationToken | None] = ContextVar("token", default=None)
"""The token that cancels calls made in this context; if it is None, each call has its own."""
HOLDS: ContextVar[bool] = ContextVar("holds", default=False)
"""Whether calls made in this context belong to a numbered request, and are written together with its answer."""
T = TypeVar("T")


class SessionOptions(NamedTuple):
    """The options of a new session."""

    tenant: str = ANYONE.tenant
    name: str | None = None
    device: str = "cpu"
    dtype: dtypes.DType = dtypes.float32
    seed: int | None = None
    ttl_s: float | None = None
    compile: bool = False
    peer: str = ""
    """The peer that creates the session, for the limit on sessions per peer."""
    heartbeats: bool = False
    durable: bool = False
    id: str | None = None
    """The id of a session that is restored; None for a new one."""


class Endpoint(NamedTuple):
    """Where clients reach the process that has a session, past the gateway."""

    url: str
    token: str
    """What they send as ``Authorization: Bearer``, for this session alone."""
    expires_at: float
    """When the token expires."""


class Stoppable(Protocol):
    """The interface of a stream of programs that the host uses."""

    sender: str
    """The name of the sender."""
    gone: bool
    """Whether its client has disconnected."""

    def stop(self, code: int, reason: str) -> None:
        """End the stream soon, with a WebSocket close code and a reason."""


class SessionHandle(ABC):
    """The interface of a session that the routes use."""

    account: SessionAccount
    """What the session has used; its host sets it."""

    def __init__(
        self, number: int, options: SessionOptions, ttl_s: float, heartbeat_ttl_s: float | None = None
    ) -> None:
        self.id = options.id or secrets.token_urlsafe(16)
        self.number = number
        """Sessions are numbered in the order of their creation."""
        self.tenant = options.tenant
        self.name = options.name
        self.peer = options.peer
        self.device = options.device
        self.dtype = options.dtype
        self.ttl_s = ttl_s
        self.heartbeat_ttl_s = heartbeat_ttl_s
        """Seconds after the last heartbeat at which the session ends; None if it needs no heartbeats."""
        self.created_at = self.last_used_at = time.time()
        """Times for people, by the clock on the wall, which may jump."""
        self.last_used = self.last_heartbeat = time.monotonic()
        """The monotonic times of the last use and of the last sign of life."""
        self.durable = options.durable
        self.compile = options.compile
        self.streams: set[Stoppable] = set()
        """The streams of the session."""
        self.streamed: set[CancellationToken] = set()
        """The cancellation tokens of programs that arrived on streams and have not ended."""
        self.feed = Feed()
        """Those who listen to the session's events."""

    @property
    @abstractmethod
    def senders(self) -> SequenceRecords:
        """The records of numbered requests."""

    @property
    def expires(self) -> float:
        """The monotonic time at which the session ends if it is not used again and no heartbeat arrives."""
        idle = self.last_used + self.ttl_s
        if self.heartbeat_ttl_s is None or self.streams:  # an open connection is a sign of life
            return idle
        return min(idle, max(self.last_used, self.last_heartbeat) + self.heartbeat_ttl_s)

    @property
    def expires_at(self) -> float:
        """The same by the clock on the wall."""
        return self.last_used_at + (self.expires - self.last_used)

    def use(self) -> None:
        """Note a use of the session."""
        self.last_used_at, self.last_used = time.time(), time.monotonic()

    @property
    def idle_s(self) -> float:
        """Seconds since the last use."""
        return time.monotonic() - self.last_used

    def continue_from(self, last_used_at: float) -> None:
        """Continue the idle time of a session that was last used at this time, before the server stopped.

        The clock on the wall may have jumped since: at least ``RETURN_S`` seconds of the time to live are left, and at
        most all of it.
        """
        most = max(0.0, self.ttl_s - RETURN_S)
        idle_s = min(max(0.0, time.time() - last_used_at), most)
        self.last_used_at, self.last_used = time.time() - idle_s, time.monotonic() - idle_s

    def beat(self) -> None:
        """Note a heartbeat of the session's client. It does not count as a use."""
        self.last_heartbeat = time.monotonic()

    @property
    def alone(self) -> bool:
        """Whether no other session was used recently."""
        return False

    queue: Quota
    """The quota of requests that run or wait for the session."""

    def stop_streams(self, code: int, reason: str, sender: str | None = None) -> None:
        """Stop the session's streams, or those of one sender: each answers its programs, then closes."""
        for stream in list(self.streams):
            if sender is None or stream.sender == sender:
                stream.stop(code, reason)
        if sender is None:
            self.feed.end("closing" if code == GOING_AWAY else "ended", reason)

    def cancel_streamed(self) -> None:
        """Cancel the programs that arrived on streams, unless a client is connected."""
        if all(stream.gone for stream in self.streams):
            for token in self.streamed:
                token.cancel(CLIENT_GONE)

    @abstractmethod
    async def call(self, function: Callable[Concatenate[HostedSession, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return ``function(session, …)``, run after all earlier calls; :data:`TOKEN` cancels it.

        ``function`` must be importable by name and its arguments plain data.
        """

    @abstractmethod
    async def ready(self) -> None:
        """Load a durable session from the disk if need be. Raises SessionLost if it cannot be loaded."""

    @asynccontextmanager
    async def recording(self, sender: str, number: int) -> AsyncIterator[None]:
        """Run a numbered request: a durable session writes its commands and its recorded answer in one step."""
        yield

    @abstractmethod
    def changed(self) -> None:
        """Note that the session's name or time to live has changed."""

    def run_at_once(self, function: Callable[..., T], *args: Any) -> T:
        """Return ``function(session, …, within=…)``, run on the event loop for at most ``within`` seconds.

        The session must be flushed afterwards. Raises NotAtOnce, with nothing done, if the function may take longer or
        the session is busy.
        """
        raise NotAtOnce

    @abstractmethod
    def flush(self) -> None:
        """Finish the work deferred by the last :meth:`run_at_once`, before the session is used otherwise.

        It never raises: if the work fails, later programs get InternalError.
        """


class SessionHost(ABC):
    """Creates, finds and ends sessions."""

    draining = False
    """Whether the host takes no more work because the server is about to stop."""
    library: Library
    """The functions that all sessions share, including those installed by the operator."""
    ledger: Ledger
    """What sessions and tenants have used."""

    @abstractmethod
    async def create(self, options: SessionOptions) -> SessionHandle:
        """Create a session. Raises ServerBusy or SessionLimit if there is no room for it."""

    @abstractmethod
    async def fork(self, handle: SessionHandle, options: SessionOptions) -> SessionHandle:
        """Create a session in the state of another one. Raises as :meth:`create`, and the errors of a fork."""

    @abstractmethod
    async def restore(self, container: Container, options: SessionOptions) -> SessionHandle:
        """Create a session in the state of a snapshot. Raises as :meth:`create`, and the errors of a restoration."""

    @abstractmethod
    def find(self, principal: Principal, session_id: str) -> SessionHandle:
        """Find a session of the principal's tenant. Raises UnknownSession, and ServerBusy while draining."""

    @abstractmethod
    def bodies(self, tenant: str) -> Accounts:
        """The memory account of a tenant's request bodies that are being read or have not been answered."""

    @abstractmethod
    def sessions(self, tenant: str | None = None) -> Sequence[SessionHandle]:
        """The sessions of a tenant, by default all, in the order of their creation."""

    def check_name(self, tenant: str, name: str | None) -> None:
        """Raise SessionExists if the tenant has a durable session of this name."""
        for handle in self.sessions(tenant):
            if handle.durable and handle.name == name is not None:
                raise SessionExists(f"there is a durable session {name!r} already", session=handle.id)

    async def endpoint(self, handle: SessionHandle, principal: Principal) -> Endpoint | None:
        """Where the principal reaches the session past a gateway; None if there is no gateway."""
        return None

    async def rename(self, handle: SessionHandle, name: str | None) -> None:
        """Set a session's name. Raises SessionExists as :meth:`check_name`."""
        if handle.durable and name != handle.name:
            self.check_name(handle.tenant, name)
        handle.name = name

    @abstractmethod
    async def end(self, principal: Principal, session_id: str) -> None:
        """End a session and free its tensors. Raises UnknownSession."""

    @abstractmethod
    async def expire(self) -> None:
        """End sessions that were idle or without a heartbeat for too long, and cancel backward passes that were not
        resumed in time."""

    @abstractmethod
    async def drain(self, seconds: float) -> bool:
        """Refuse new work and wait at most ``seconds`` seconds for running work. Return whether all of it finished."""

    def is_occupied(self) -> bool:
        """Whether long programs occupy all threads, so that new work must wait."""
        return False

    def gauges(self) -> Gauges:
        """The present state in numbers."""
        return Gauges()

    @abstractmethod
    async def close(self) -> None:
        """Release the host's resources."""

    @abstractmethod
    def ended(self, seconds: float) -> bool:
        """Whether all computation has ended after :meth:`close`; waits about ``seconds`` seconds for that."""
