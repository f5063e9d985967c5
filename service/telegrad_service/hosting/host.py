"""Session hosts: where sessions live and how they are reached.

:class:`SessionHost` is the interface; :class:`InProcessHost` keeps sessions in this process. All
that the routes do in a session goes through ``SessionHandle.call`` with a module-level function, so
a host elsewhere can send it along.
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
"""Why a stream is closed: WebSocket's own code where it has one; the others are ours, after HTTP's statuses."""
AT_ONCE_S = 5e-3
"""Seconds that a program may keep the event loop where nobody else needs it."""
TINY_S = 1e-4
"""Seconds that it may where others do: to hand it to a thread and back takes the loop as long."""
CANCEL_S = 2.0
"""Seconds that cancelled programs get to stop when the server stops; a call into BLAS may take longer."""
OCCUPIED_S = 5.0
"""Seconds after which the server is not ready if each thread has run the same work for so long."""
SESSION_ENDED, CLIENT_GONE = "the session has ended", "the program's client went away"
TOKEN: ContextVar[CancellationToken | None] = ContextVar("token", default=None)
"""What stops the calls that are made in this context; each has its own if it is None."""
T = TypeVar("T")


class SessionOptions(NamedTuple):
    """What a new session is made of."""

    name: str | None = None
    device: str = "cpu"
    dtype: dtypes.DType = dtypes.float32
    seed: int | None = None
    ttl_s: float | None = None
    compile: bool = False
    peer: str = ""
    """The client that creates it, as far as limits are concerned."""
    heartbeats: bool = False


class Stoppable(Protocol):
    """A stream of programs, as far as the host is concerned."""

    sender: str
    """Whose it is."""
    gone: bool
    """Whether its client is gone."""

    def stop(self, code: int, reason: str) -> None:
        """End soon, and say why with a WebSocket close code."""


class SessionHandle(ABC):
    """A session as the routes see it."""

    def __init__(
        self, number: int, options: SessionOptions, ttl_s: float, heartbeat_ttl_s: float | None = None
    ) -> None:
        self.id = secrets.token_urlsafe(16)
        self.number = number
        """Sessions are numbered in the order in which they were made."""
        self.name = options.name
        self.peer = options.peer
        self.device = options.device
        self.dtype = options.dtype
        self.ttl_s = ttl_s
        self.heartbeat_ttl_s = heartbeat_ttl_s
        """Seconds that the session outlives the last sign of life of its client; None if it does not depend on one."""
        self.created_at = self.last_used_at = self.last_heartbeat_at = time.time()
        self.senders = SequenceRecords()
        self.streams: set[Stoppable] = set()
        """The connections on which programs of the session arrive."""
        self.streamed: set[CancellationToken] = set()
        """The tokens of the programs that arrived on them and have not ended."""

    @property
    def expires_at(self) -> float:
        """When the session ends if nobody uses it and, if it has heartbeats, no more of them arrive."""
        idle = self.last_used_at + self.ttl_s
        if self.heartbeat_ttl_s is None or self.streams:  # an open connection is a sign of life
            return idle
        return min(idle, max(self.last_used_at, self.last_heartbeat_at) + self.heartbeat_ttl_s)

    def beat(self) -> None:
        """Note a sign of life of the session's client; it does not count as a use."""
        self.last_heartbeat_at = time.time()

    @property
    def alone(self) -> bool:
        """Whether no other session was used for a while."""
        return False

    def stop_streams(self, code: int, reason: str, sender: str | None = None) -> None:
        """Have the session's streams end, or those of one sender: each answers what it runs, and closes."""
        for stream in list(self.streams):
            if sender is None or stream.sender == sender:
                stream.stop(code, reason)

    def cancel_streamed(self) -> None:
        """Stop the programs that streams brought, unless a client is connected."""
        if all(stream.gone for stream in self.streams):
            for token in self.streamed:
                token.cancel(CLIENT_GONE)

    @abstractmethod
    async def call(self, function: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """``function(session, …)`` where the session lives, after all calls before it; :data:`TOKEN` stops it.

        ``function`` is importable by name and its arguments are plain data.
        """

    def run_at_once(self, function: Callable[..., T], *args: Any) -> T:
        """``function(session, …, within=…)`` before this returns, where so few seconds keep nobody waiting.

        What it leaves in the session may still be to :meth:`finish`. Raises NotAtOnce, with nothing done, where they
        might.
        """
        raise NotAtOnce

    @abstractmethod
    def flush(self) -> None:
        """Do what the last program that ran at once has left to do: before anything else is done with the session.

        Never raises: where that fails, later programs get InternalError.
        """


class SessionHost(ABC):
    """Makes, finds and ends sessions."""

    draining = False
    """Whether the host takes no more work because the server is about to stop."""
    bodies: Accounts
    """What the bodies of requests take that are being read or have not been answered."""
    library: Library
    """The functions that all sessions share, those installed by the operator among them."""

    @abstractmethod
    async def create(self, options: SessionOptions) -> SessionHandle:
        """A new session. Raises ServerBusy if there is no room for it."""

    @abstractmethod
    def find(self, session_id: str) -> SessionHandle:
        """The session of this id. Raises UnknownSession, and ServerBusy while draining."""

    @abstractmethod
    def sessions(self) -> Sequence[SessionHandle]:
        """All sessions, in the order in which they were made."""

    @abstractmethod
    async def end(self, session_id: str) -> None:
        """End a session and free its tensors. Raises UnknownSession."""

    @abstractmethod
    async def expire(self) -> None:
        """End the sessions that were idle, or without a heartbeat, for longer than they live, and give up passes that
        nobody resumed in time."""

    @abstractmethod
    async def drain(self, seconds: float) -> bool:
        """Take no more work and wait so long for what runs; whether all of it finished."""

    def is_occupied(self) -> bool:
        """Whether long programs have taken all threads, so that new work has to wait."""
        return False

    @abstractmethod
    async def close(self) -> None:
        """Release what the host holds."""

    @abstractmethod
    def ended(self, seconds: float) -> bool:
        """Whether nothing computes any more after :meth:`close`; waits for about so many seconds."""


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
        if not self._actor.busy:  # a thread finishes what it runs by itself
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
        """Cancel the passes that wait for the client; not a use of the session."""
        if self._session.suspensions.waiting:
            await self._actor.call(self._session.suspensions.cancel_all, self._session)

    def cancel(self, reason: str) -> None:
        """Stop all that runs or waits."""
        self._actor.cancel(reason)

    def abandon(self, error: Exception) -> None:
        """Answer with ``error`` all that runs or waits."""
        self._actor.abandon(error)


class InProcessHost(SessionHost):
    """Sessions in this process, computing on a few threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._workers = Workers(settings.threads)
        self._activity = Activity()
        self._sessions: dict[str, _Local] = {}
        self._drained: asyncio.Task[bool] | None = None
        """Draining, once it has begun."""
        self._numbers = count(1)
        self.library = installed_library()
        self.process = ProcessMemory(settings.max_process_bytes)
        self.bodies = Accounts(settings.max_process_bytes, process=self.process)
        self._memory = Memory(settings.remembered_programs, settings.remembered_bytes)
        most = settings.remembered_programs
        self._planner = Compiler(settings.plan_after, most, tier=PLANNED) if settings.plan_after and most else None
        self._compiler = Compiler(settings.compile_after, tier=COMPILED, fallback=self._planner)

    async def create(self, options: SessionOptions) -> SessionHandle:
        """A new session on this process's threads."""
        await asyncio.to_thread(device, options.device)  # its first use imports a large library
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
        """Why this client may not have one more session; None if it may."""
        settings = self._settings
        if len(self._sessions) >= settings.max_sessions:
            return ServerBusy(f"the server holds {settings.max_sessions} sessions, as many as it may")
        most = settings.max_sessions_per_peer
        if most and sum(handle.peer == peer for handle in self._sessions.values()) >= most:
            return SessionLimit(f"{peer or 'this client'} has {most} sessions, as many as one address may")
        return None

    def find(self, session_id: str) -> SessionHandle:
        """The session of this id."""
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
        """Forget a session; what it runs or has waiting is cancelled."""
        self.find(session_id)
        handle = self._sessions.pop(session_id)
        handle.stop_streams(ENDED, SESSION_ENDED)
        handle.cancel(SESSION_ENDED)

    async def expire(self) -> None:
        """End the sessions and passes whose time is up, but in none that computes."""
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
        """Refuse new work, wait for the threads to finish what they have, and for the streams to have answered it.

        What is not finished by then is cancelled. Drained again, the host waits no longer than the first time.
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
        # The callers learn that they may try elsewhere, before they learn of the cancellation.
        for handle in self._sessions.values():
            handle.cancel("the server is about to stop")
            handle.abandon(ServerBusy("the server stopped before this was finished"))
        await self._idle(CANCEL_S)
        return False

    async def _idle(self, seconds: float) -> bool:
        """Wait at most so long until nothing runs; whether that is so."""
        deadline = time.monotonic() + seconds
        # What runs in a session that has ended counts, too: the process must not end in the middle of it.
        while busy := self._workers.busy or any(h.busy or h.streams for h in self._sessions.values()):
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.02)
        return not busy

    def is_occupied(self) -> bool:
        """Whether each thread has run the same work for a while."""
        return self._workers.occupied(OCCUPIED_S)

    def ended(self, seconds: float) -> bool:
        """Whether all threads have ended."""
        return self._workers.ended(seconds)

    async def close(self) -> None:
        """End the threads and forget all sessions."""
        self._workers.stop()
        self._sessions.clear()

    def _refuse_while_draining(self) -> None:
        if self.draining:
            raise ServerBusy("the server is about to stop and takes no more work")
