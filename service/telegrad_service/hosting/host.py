"""Session hosts, which create, find and end sessions.

:class:`SessionHost` is the interface; :class:`InProcessHost` keeps sessions in this process. Routes access a session
through ``SessionHandle.call`` with a module-level function, which a remote host could forward.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from itertools import count
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from telegrad_engine import dtypes
from telegrad_engine.cancellation import CancellationToken
from telegrad_engine.compile import COMPILED, PLANNED, Compiler
from telegrad_engine.devices import device
from telegrad_engine.errors import ServerBusy, SessionLimit, UnknownSession
from telegrad_engine.program.program_cache import Memory
from telegrad_engine.program.registered_functions import Library, installed_library
from telegrad_engine.session.memory_accounting import Accounts, ProcessMemory
from telegrad_engine.session.session import NotAtOnce, Session

from ..settings import Settings
from .actor import Activity, Actor, Workers
from .sequence import SequenceRecords

P = ParamSpec("P")
GOING_AWAY, ENDED, TAKEN_OVER = 1001, 4404, 4409
"""The close codes of a stream: a standard one of WebSocket, and two of our own that are based on HTTP statuses."""
AT_ONCE_S = 5e-3
"""Seconds that a program may block the event loop if its session is alone."""
TINY_S = 1e-4
"""Seconds that it may block the event loop otherwise, about as long as handing it to a thread and back takes."""
CANCEL_S = 2.0
"""Seconds that cancelled programs get to end when the server stops; a call into BLAS may take longer."""
OCCUPIED_S = 5.0
"""The server is not ready if every thread has run the same work for this many seconds."""
SESSION_ENDED, CLIENT_GONE = "the session has ended", "the program's client went away"
TOKEN: ContextVar[CancellationToken | None] = ContextVar("token", default=None)
"""The token that cancels calls made in this context; if it is None, each call has its own."""
T = TypeVar("T")


class SessionOptions(NamedTuple):
    """The options of a new session."""

    name: str | None = None
    device: str = "cpu"
    dtype: dtypes.DType = dtypes.float32
    seed: int | None = None
    ttl_s: float | None = None
    compile: bool = False
    peer: str = ""
    """The peer that creates the session, for the limit on sessions per peer."""
    heartbeats: bool = False


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

    def __init__(
        self, number: int, options: SessionOptions, ttl_s: float, heartbeat_ttl_s: float | None = None
    ) -> None:
        self.id = secrets.token_urlsafe(16)
        self.number = number
        """Sessions are numbered in the order of their creation."""
        self.name = options.name
        self.peer = options.peer
        self.device = options.device
        self.dtype = options.dtype
        self.ttl_s = ttl_s
        self.heartbeat_ttl_s = heartbeat_ttl_s
        """Seconds after the last heartbeat at which the session ends; None if it needs no heartbeats."""
        self.created_at = self.last_used_at = self.last_heartbeat_at = time.time()
        self.senders = SequenceRecords()
        self.streams: set[Stoppable] = set()
        """The streams of the session."""
        self.streamed: set[CancellationToken] = set()
        """The cancellation tokens of programs that arrived on streams and have not ended."""

    @property
    def expires_at(self) -> float:
        """When the session ends if it is not used again and no heartbeat arrives."""
        idle = self.last_used_at + self.ttl_s
        if self.heartbeat_ttl_s is None or self.streams:  # an open connection is a sign of life
            return idle
        return min(idle, max(self.last_used_at, self.last_heartbeat_at) + self.heartbeat_ttl_s)

    def beat(self) -> None:
        """Note a heartbeat of the session's client. It does not count as a use."""
        self.last_heartbeat_at = time.time()

    @property
    def alone(self) -> bool:
        """Whether no other session was used recently."""
        return False

    def stop_streams(self, code: int, reason: str, sender: str | None = None) -> None:
        """Stop the session's streams, or those of one sender: each answers its programs, then closes."""
        for stream in list(self.streams):
            if sender is None or stream.sender == sender:
                stream.stop(code, reason)

    def cancel_streamed(self) -> None:
        """Cancel the programs that arrived on streams, unless a client is connected."""
        if all(stream.gone for stream in self.streams):
            for token in self.streamed:
                token.cancel(CLIENT_GONE)

    @abstractmethod
    async def call(self, function: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return ``function(session, …)``, run after all earlier calls; :data:`TOKEN` cancels it.

        ``function`` must be importable by name and its arguments plain data.
        """

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
    bodies: Accounts
    """The memory account of request bodies that are being read or have not been answered."""
    library: Library
    """The functions that all sessions share, including those installed by the operator."""

    @abstractmethod
    async def create(self, options: SessionOptions) -> SessionHandle:
        """Create a session. Raises ServerBusy or SessionLimit if there is no room for it."""

    @abstractmethod
    def find(self, session_id: str) -> SessionHandle:
        """Find a session by id. Raises UnknownSession, and ServerBusy while draining."""

    @abstractmethod
    def sessions(self) -> Sequence[SessionHandle]:
        """All sessions, in the order of their creation."""

    @abstractmethod
    async def end(self, session_id: str) -> None:
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

    @abstractmethod
    async def close(self) -> None:
        """Release the host's resources."""

    @abstractmethod
    def ended(self, seconds: float) -> bool:
        """Whether all computation has ended after :meth:`close`; waits about ``seconds`` seconds for that."""


class _Local(SessionHandle):
    def __init__(
        self,
        number: int,
        options: SessionOptions,
        ttl_s: float,
        heartbeat_ttl_s: float | None,
        session: Session,
        workers: Workers,
        activity: Activity,
    ) -> None:
        super().__init__(number, options, ttl_s, heartbeat_ttl_s)
        self.senders.accounts = session.accounts
        self._session = session
        self._actor = Actor(workers)
        self._activity = activity

    async def call(self, function: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._activity.note(self.number)
        self.flush()
        try:
            if kwargs:
                return await self._actor.call(lambda: function(self._session, *args, **kwargs), token=TOKEN.get())
            return await self._actor.call(function, self._session, *args, token=TOKEN.get())
        finally:
            self.last_used_at = time.time()

    @property
    def alone(self) -> bool:
        return self._activity.alone

    def flush(self) -> None:
        if not self._actor.busy:  # a thread flushes the session itself
            self._session.flush()

    def run_at_once(self, function: Callable[..., T], *args: Any) -> T:
        self._activity.note(self.number)
        within = AT_ONCE_S if self.alone else TINY_S
        if self._actor.busy or self._session.last_s > within:
            raise NotAtOnce
        result = function(self._session, *args, within=within)
        self.last_used_at = time.time()
        return result

    @property
    def busy(self) -> bool:
        """Whether a call runs or waits."""
        return self._actor.busy

    async def give_up_waiting(self) -> None:
        """Cancel the backward passes that wait for the client. It does not count as a use of the session."""
        if self._session.suspensions.waiting:
            await self._actor.call(self._session.suspensions.cancel_all, self._session)

    def cancel(self, reason: str) -> None:
        """Cancel all running and waiting calls."""
        self._actor.cancel(reason)

    def abandon(self, error: Exception) -> None:
        """Answer all running and waiting calls with ``error``."""
        self._actor.abandon(error)


class InProcessHost(SessionHost):
    """A host whose sessions live in this process and compute on its worker threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._workers = Workers(settings.threads)
        self._activity = Activity()
        self._sessions: dict[str, _Local] = {}
        self._drained: asyncio.Task[bool] | None = None
        """The task that drains; None before :meth:`drain`."""
        self._numbers = count(1)
        self.library = installed_library()
        self.process = ProcessMemory(settings.max_process_bytes)
        self.bodies = Accounts(settings.max_process_bytes, process=self.process)
        self._memory = Memory(settings.remembered_programs, settings.remembered_bytes)
        most = settings.remembered_programs
        self._planner = Compiler(settings.plan_after, most, tier=PLANNED) if settings.plan_after and most else None
        self._compiler = Compiler(settings.compile_after, tier=COMPILED, fallback=self._planner)

    async def create(self, options: SessionOptions) -> SessionHandle:
        """Create a session. Raises ServerBusy or SessionLimit if there is no room for it."""
        await asyncio.to_thread(device, options.device)  # the first use of a device imports a large library
        self._refuse_while_draining()
        if self._refusal(options.peer) is not None:
            await self.expire()
        if (refusal := self._refusal(options.peer)) is not None:
            try:
                raise refusal
            finally:
                del refusal  # its traceback holds this frame
        settings = self._settings
        session = Session(
            device=options.device,
            dtype=options.dtype,
            seed=options.seed,
            max_bytes=settings.max_session_bytes,
            library=self.library,
            memory=self._memory,
            compiler=self._compiler if options.compile else self._planner,
            max_program_s=settings.max_program_s,
            process=self.process,
        )
        ttl_s = options.ttl_s or settings.session_ttl_s
        heartbeat_ttl_s = settings.heartbeat_ttl_s if options.heartbeats else None
        number = next(self._numbers)
        handle = _Local(number, options, ttl_s, heartbeat_ttl_s, session, self._workers, self._activity)
        self._sessions[handle.id] = handle
        return handle

    def _refusal(self, peer: str) -> SessionLimit | ServerBusy | None:
        """The error if there is no room for another session of this peer, else None."""
        settings = self._settings
        if len(self._sessions) >= settings.max_sessions:
            return ServerBusy(f"the server holds {settings.max_sessions} sessions, as many as it may")
        most = settings.max_sessions_per_peer
        if most and sum(handle.peer == peer for handle in self._sessions.values()) >= most:
            return SessionLimit(f"{peer or 'this client'} has {most} sessions, as many as one address may")
        return None

    def find(self, session_id: str) -> SessionHandle:
        """Find a session by id. Raises UnknownSession, and ServerBusy while draining."""
        self._refuse_while_draining()
        try:
            return self._sessions[session_id]
        except KeyError:
            raise UnknownSession(
                f"no session of this id: {session_id!r:.66}; it never was, it ended or it expired"
            ) from None

    def sessions(self) -> Sequence[SessionHandle]:
        """All sessions, oldest first."""
        return list(self._sessions.values())

    async def end(self, session_id: str) -> None:
        """Remove a session, and cancel its running and waiting calls."""
        self.find(session_id)
        handle = self._sessions.pop(session_id)
        handle.stop_streams(ENDED, SESSION_ENDED)
        handle.cancel(SESSION_ENDED)

    async def expire(self) -> None:
        """End expired sessions and waiting backward passes, except in sessions that are computing."""
        now = time.time()
        for handle in list(self._sessions.values()):
            if handle.busy:
                continue
            if handle.expires_at < now:
                del self._sessions[handle.id]
                handle.stop_streams(ENDED, "the session has expired")
            elif handle.last_used_at + self._settings.pending_timeout_s < now:
                await handle.give_up_waiting()

    async def drain(self, seconds: float) -> bool:
        """Refuse new work, and wait until the threads have finished their work and the streams have answered.

        Unfinished work is cancelled after ``seconds`` seconds. A second call waits for the first one.
        """
        if self._drained is None:
            self.draining = True
            for handle in self._sessions.values():
                handle.stop_streams(GOING_AWAY, "the server is about to stop")
            self._drained = asyncio.create_task(self._drain(seconds))
        return await asyncio.shield(self._drained)

    async def _drain(self, seconds: float) -> bool:
        if await self._idle(seconds):
            return True
        # abandon() answers the callers with 503 before the cancellation reaches them.
        for handle in self._sessions.values():
            handle.cancel("the server is about to stop")
            handle.abandon(ServerBusy("the server stopped before this was finished"))
        await self._idle(CANCEL_S)
        return False

    async def _idle(self, seconds: float) -> bool:
        """Wait at most ``seconds`` seconds until nothing runs. Return whether nothing runs."""
        deadline = time.monotonic() + seconds
        # Work of sessions that have ended counts too, since the process must not end during it.
        while busy := self._workers.busy or any(h.busy or h.streams for h in self._sessions.values()):
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.02)
        return not busy

    def is_occupied(self) -> bool:
        """Whether each thread has run the same work for ``OCCUPIED_S`` seconds."""
        return self._workers.occupied(OCCUPIED_S)

    def ended(self, seconds: float) -> bool:
        """Whether all threads have ended; waits at most ``seconds`` seconds for each."""
        return self._workers.ended(seconds)

    async def close(self) -> None:
        """End the threads and forget all sessions."""
        self._workers.stop()
        self._sessions.clear()

    def _refuse_while_draining(self) -> None:
        if self.draining:
            raise ServerBusy("the server is about to stop and takes no more work")
