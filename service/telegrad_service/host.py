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
from itertools import count
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from telegrad_engine import dtypes
from telegrad_engine.custom import Library, installed_library
from telegrad_engine.devices import device
from telegrad_engine.errors import ServerBusy, UnknownSession
from telegrad_engine.program.compiled import COMPILED, PLANNED, Compiler
from telegrad_engine.program.remembered import Memory
from telegrad_engine.session import NotAtOnce, Session

from .actor import Actor, Workers
from .company import Company
from .sequence import SequenceRecord
from .settings import Settings

P = ParamSpec("P")
GOING_AWAY, ENDED, TAKEN_OVER = 1001, 4404, 4409
"""Why a stream is closed: WebSocket's own code where it has one; the others are ours, after HTTP's statuses."""
AT_ONCE_S = 5e-3
"""Seconds that a program may keep the event loop where nobody else needs it."""
TINY_S = 1e-4
"""Seconds that it may where others do: to hand it to a thread and back takes the loop as long."""
T = TypeVar("T")


class SessionOptions(NamedTuple):
    """What a new session is made of."""

    name: str | None = None
    device: str = "cpu"
    dtype: dtypes.DType = dtypes.float32
    seed: int | None = None
    ttl_s: float | None = None
    compile: bool = False


class Stoppable(Protocol):
    """A stream of programs, as far as the host is concerned."""

    def stop(self, code: int, reason: str) -> None:
        """End soon, and say why with a WebSocket close code."""


class SessionHandle(ABC):
    """A session as the routes see it."""

    def __init__(self, number: int, options: SessionOptions, ttl_s: float) -> None:
        self.id = secrets.token_urlsafe(16)
        self.number = number
        """Sessions are numbered in the order in which they were made."""
        self.name = options.name
        self.device = options.device
        self.dtype = options.dtype
        self.ttl_s = ttl_s
        self.created_at = self.last_used_at = time.time()
        self.sequence = SequenceRecord()
        self.streams: set[Stoppable] = set()
        """The connections on which programs of the session arrive."""

    @property
    def expires_at(self) -> float:
        """When the session ends if nobody uses it."""
        return self.last_used_at + self.ttl_s

    @property
    def alone(self) -> bool:
        """Whether no other session was used for a while."""
        return False

    def stop_streams(self, code: int, reason: str) -> None:
        """Have the session's streams end: each answers what it runs, and closes."""
        for stream in list(self.streams):
            stream.stop(code, reason)

    @abstractmethod
    async def call(self, function: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """``function(session, …)`` where the session lives, after all calls before it.

        ``function`` is importable by name and its arguments are plain data.
        """

    def run_at_once(self, function: Callable[..., T], *args: Any) -> T:
        """``function(session, …, within=…)`` before this returns, where so few seconds keep nobody waiting.

        What it leaves in the session may still be to :meth:`finish`. Raises NotAtOnce, with nothing done, where they
        might.
        """
        raise NotAtOnce

    @abstractmethod
    def finish(self) -> None:
        """Do what the last program that ran at once has left to do: before anything else is done with the session."""


class SessionHost(ABC):
    """Makes, finds and ends sessions."""

    draining = False
    """Whether the host takes no more work because the server is about to stop."""
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
        """End the sessions that were idle for longer than they live, and give up passes that nobody resumed in time."""

    @abstractmethod
    async def drain(self, seconds: float) -> bool:
        """Take no more work and wait so long for what runs; whether all of it finished."""

    @abstractmethod
    async def close(self) -> None:
        """Release what the host holds."""


class _Local(SessionHandle):
    def __init__(
        self,
        number: int,
        options: SessionOptions,
        ttl_s: float,
        session: Session,
        workers: Workers,
        company: Company,
    ) -> None:
        super().__init__(number, options, ttl_s)
        self._session = session
        self._actor = Actor(workers)
        self._company = company

    async def call(self, function: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._company.meet(self.number)
        self.finish()
        try:
            if kwargs:
                return await self._actor.call(lambda: function(self._session, *args, **kwargs))
            return await self._actor.call(function, self._session, *args)
        finally:
            self.last_used_at = time.time()

    @property
    def alone(self) -> bool:
        return self._company.alone

    def finish(self) -> None:
        if not self._actor.busy:  # a thread finishes what it runs by itself
            self._session.finish()

    def run_at_once(self, function: Callable[..., T], *args: Any) -> T:
        self._company.meet(self.number)
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

    def abandon(self, error: Exception) -> None:
        """Answer with ``error`` all that runs or waits."""
        self._actor.abandon(error)


class InProcessHost(SessionHost):
    """Sessions in this process, computing on a few threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._workers = Workers(settings.threads)
        self._company = Company()
        self._sessions: dict[str, _Local] = {}
        self._numbers = count(1)
        self.library = installed_library()
        self._memory = Memory(settings.remembered_programs)
        most = settings.remembered_programs
        self._planner = Compiler(settings.plan_after, most, way=PLANNED) if settings.plan_after and most else None
        self._compiler = Compiler(settings.compile_after, way=COMPILED, beneath=self._planner)

    async def create(self, options: SessionOptions) -> SessionHandle:
        """A new session on this process's threads."""
        await asyncio.to_thread(device, options.device)  # its first use imports a large library
        self._refuse_while_draining()
        if len(self._sessions) >= self._settings.max_sessions:
            await self.expire()
        if len(self._sessions) >= self._settings.max_sessions:
            raise ServerBusy(f"the server holds {self._settings.max_sessions} sessions, as many as it may")
        settings = self._settings
        session = Session(
            device=options.device,
            dtype=options.dtype,
            seed=options.seed,
            max_bytes=settings.max_session_bytes,
            library=self.library,
            memory=self._memory,
            compiler=self._compiler if options.compile else self._planner,
        )
        ttl_s = options.ttl_s or settings.session_ttl_s
        handle = _Local(next(self._numbers), options, ttl_s, session, self._workers, self._company)
        self._sessions[handle.id] = handle
        return handle

    def find(self, session_id: str) -> SessionHandle:
        """The session of this id."""
        self._refuse_while_draining()
        try:
            return self._sessions[session_id]
        except KeyError:
            raise UnknownSession("no session of this id; it never was, it ended or it expired") from None

    def sessions(self) -> Sequence[SessionHandle]:
        """All sessions, oldest first."""
        return list(self._sessions.values())

    async def end(self, session_id: str) -> None:
        """Forget a session; what it runs or has waiting still finishes."""
        self.find(session_id)
        self._sessions.pop(session_id).stop_streams(ENDED, "the session has ended")

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
        """Refuse new work, wait for the threads to finish what they have, and for the streams to have answered it."""
        self.draining = True
        for handle in self._sessions.values():
            handle.stop_streams(GOING_AWAY, "the server is about to stop")
        deadline = time.monotonic() + seconds
        # What a session runs that has ended still finishes: the process must not end in the middle of it.
        while busy := self._workers.busy or any(h.busy or h.streams for h in self._sessions.values()):
            if time.monotonic() > deadline:
                for handle in self._sessions.values():
                    handle.abandon(ServerBusy("the server stopped before this was finished"))
                break
            await asyncio.sleep(0.02)
        return not busy

    async def close(self) -> None:
        """End the threads and forget all sessions."""
        self._workers.stop()
        self._sessions.clear()

    def _refuse_while_draining(self) -> None:
        if self.draining:
            raise ServerBusy("the server is about to stop and takes no more work")
