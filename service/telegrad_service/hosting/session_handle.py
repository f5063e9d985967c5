"""The handle of a session: its calls run on the worker threads, short ones on the event loop.

Routes access a session through :meth:`SessionHandle.call`, with a command or a query (:mod:`.commands`) whose arguments
are plain data.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, Protocol, TypeVar

from telegrad_engine import dtypes
from telegrad_engine.cancellation import CancellationToken
from telegrad_engine.errors import ServerBusy
from telegrad_engine.lru import LRU
from telegrad_engine.program import Instruction
from telegrad_engine.session.memory_accounting import Quota
from telegrad_engine.session.session import NotAtOnce

from ..observability.feed import Feed
from ..observability.metrics import SessionAccount
from ..observability.request import REQUEST
from ..observability.tracing import run_for
from ..tenants.principal import ANYONE
from .actor import Activity, Actor, Workers
from .commands import QUERIES, WORKLOADS, Report, Submission, kind_of, run_instructions, run_published
from .durable import Durable
from .sequence import HostedSession, SequenceRecords

GOING_AWAY, ENDED = 1001, 4404
"""The close codes of a stream: a standard code of WebSocket, and a private one based on an HTTP status."""
AT_ONCE_S = 5e-3
"""Seconds that a program may block the event loop while no other session is used."""
TINY_S = 1e-4
"""Seconds that it may block the event loop otherwise: about as long as handing it to a thread and back takes."""
RETURN_S = 60.0
"""Seconds after a restart in which a session does not expire, so that clients can reconnect."""
NOTED_S = 60.0
"""Seconds by which the time of the last use on the disk may be wrong."""
BRIEF_S = 3e-4
"""Seconds that a request's call may block the event loop. Handing it to a thread and back takes a third of that."""
MAX_BODY = 2048
"""The size in bytes of the largest body with which a request's call may run on the event loop."""
SESSION_ENDED, CLIENT_GONE = "the session has ended", "the program's client went away"
TOKEN: ContextVar[CancellationToken | None] = ContextVar("token", default=None)
"""The token that cancels calls made in this context. If it is None, each call has its own."""
HOLDS: ContextVar[bool] = ContextVar("holds", default=False)
"""Whether calls in this context belong to a numbered request, so that its answer is written together with them."""
P = ParamSpec("P")
T = TypeVar("T")
_DURATIONS: LRU[int, float] = LRU(4096)
"""The moving average of the seconds that calls take, by the hash of their workload."""


def _timed(workload: int, function: Callable[..., T], *arguments: Any) -> T:
    """Return ``function(*arguments)``, and record how long it took. A failure, which may be brief, is not recorded."""
    begun = time.thread_time()  # without the time that other threads take
    result = function(*arguments)
    seconds = time.thread_time() - begun
    _DURATIONS[workload] = (_DURATIONS.get(workload, seconds) + seconds) / 2
    return result


class SessionOptions(NamedTuple):
    """The options of a new session."""

    tenant: str = ANYONE.tenant
    name: str | None = None
    device: str = "cpu"
    dtype: dtypes.DType = dtypes.float32
    seed: int | None = None
    ttl_s: float | None = None
    peer: str = ""
    """The peer that creates the session, for the limit of sessions per peer."""
    heartbeats: bool = False
    durable: bool = False
    id: str | None = None
    """The id of a session that is restored; None for a new session."""


class Stream(Protocol):
    """The part of a stream's interface that the host uses."""

    sender: str
    """The name of the sender."""
    gone: bool
    """Whether its client has disconnected."""

    def stop(self, code: int, reason: str) -> None:
        """Close the stream soon, with a WebSocket close code and a reason."""


class SessionHandle:
    """A session of this process, durable or not."""

    account: SessionAccount
    """What the session has used; its host sets it."""
    worker: str | None = None
    """The id of the worker that has the session; None on a server without workers."""

    def __init__(
        self,
        number: int,
        options: SessionOptions,
        ttl_s: float,
        heartbeat_ttl_s: float | None,
        state: HostedSession | Durable,
        workers: Workers,
        activity: Activity,
        queue: Quota,
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
        """Seconds without a heartbeat after which the session ends; None if it needs no heartbeats."""
        self.created_at = self.last_used_at = time.time()
        """Times for users, by the system clock, which may jump."""
        self.last_used = self.last_heartbeat = time.monotonic()
        """The monotonic times of the last use and of the last sign of life."""
        self.durable = options.durable
        self.streams: set[Stream] = set()
        """The streams of the session."""
        self.streamed: set[CancellationToken] = set()
        """The cancellation tokens of programs that arrived on streams and have not ended."""
        self.feed = Feed()
        """The listeners to the session's events."""
        self.queue = queue
        """The quota of requests that run in the session or wait for it."""
        self._state = state
        self.actor = Actor(workers, "" if self.tenant == ANYONE.tenant else self.tenant)
        """Runs the calls."""
        self._activity = activity
        self._report: Report | None = None
        """What listeners learn of the last :meth:`run_at_once`, once its effects are complete."""
        self._recording = asyncio.Lock()
        """Held by a numbered request whose commands are written together with its answer."""

    @property
    def _session(self) -> HostedSession | None:
        """The session; None while it is only on the disk."""
        return self._state.session

    @property
    def state(self) -> Literal["idle", "running", "waiting", "unloaded"]:
        """What the session does now."""
        if self.actor.busy:
            return "running"
        if self._session is None:
            return "unloaded"
        return "waiting" if self._session.suspensions.waiting else "idle"

    @property
    def used_bytes(self) -> int:
        """The bytes of tensors that ids and the graph hold."""
        return 0 if self._session is None else self._session.accounts.used_bytes

    @property
    def programs(self) -> int:
        """The number of programs that ran since the session was loaded."""
        return 0 if self._session is None else self._session.programs

    @property
    def senders(self) -> SequenceRecords:
        """The records of numbered requests."""
        return self._state.senders

    @property
    def expires(self) -> float:
        """The monotonic time at which the session ends, unless it is used or a heartbeat arrives before."""
        idle = self.last_used + self.ttl_s
        if self.heartbeat_ttl_s is None or self.streams:  # an open connection is a sign of life
            return idle
        return min(idle, max(self.last_used, self.last_heartbeat) + self.heartbeat_ttl_s)

    @property
    def expires_at(self) -> float:
        """The same by the system clock."""
        return self.last_used_at + (self.expires - self.last_used)

    def use(self) -> None:
        """Record a use of the session."""
        self.last_used_at, self.last_used = time.time(), time.monotonic()

    @property
    def idle_s(self) -> float:
        """Seconds since the last use."""
        return time.monotonic() - self.last_used

    def continue_from(self, last_used_at: float) -> None:
        """Continue the idle time of a session that was last used at this time, before the server stopped.

        The system clock may have jumped: at least ``RETURN_S`` seconds of the time to live are left, and at most all of
        it.
        """
        most = max(0.0, self.ttl_s - RETURN_S)
        idle_s = min(max(0.0, time.time() - last_used_at), most)
        self.last_used_at, self.last_used = time.time() - idle_s, time.monotonic() - idle_s

    def beat(self) -> None:
        """Record a heartbeat of the session's client. It does not count as a use."""
        self.last_heartbeat = time.monotonic()

    def stop_streams(self, code: int, reason: str, sender: str | None = None) -> None:
        """Stop the session's streams, or those of one sender. A stream answers its programs before it closes."""
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

    async def ready(self) -> None:
        """Load a durable session from the disk if necessary. Raises SessionLost if it cannot be loaded."""
        state = self._state
        if isinstance(state, Durable) and state.session is None:
            await self.actor.call(state.load)

    async def call(self, function: Callable[Concatenate[HostedSession, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return ``function(session, …)``, run after all earlier calls. :data:`TOKEN` cancels it.

        ``function`` is a command or a query, and its arguments are plain data.
        """
        if kwargs:
            raise TypeError("a call has positional arguments: a journal keeps them so")
        self._activity.note(self.number)
        self.flush()
        try:
            return await self._called(function, args)
        finally:
            self.use()

    async def _called(self, function: Callable[..., T], arguments: Sequence[Any]) -> T:
        """Return ``function(session, *arguments)``, run after all earlier calls."""
        task: Callable[..., T] = function
        if self.feed.listeners:
            submission = Submission(self.feed, asyncio.get_running_loop(), kind_of(function), time.perf_counter())
            task = partial(run_published, submission, task)
        task = partial(run_for, REQUEST.get(), task)
        if not isinstance(self._state, Durable):
            workload = self._workload(self._state, function, arguments)
            if workload is not None:
                task = partial(_timed, workload, task)
                if _DURATIONS.get(workload, math.inf) <= BRIEF_S:
                    return self.actor.run_at_once(task, self._state, *arguments, token=TOKEN.get())
            return await self.actor.call(task, self._state, *arguments, token=TOKEN.get())
        holds = HOLDS.get()
        while not holds and self._recording.locked():
            async with self._recording:
                pass
        return await self.actor.call(self._state.run, function, arguments, task, holds, token=TOKEN.get())

    def _workload(self, session: HostedSession, function: Callable[..., T], arguments: Sequence[Any]) -> int | None:
        """The hash of what determines how long a call takes; None for a call that must run on a thread."""
        request, describe = REQUEST.get(), WORKLOADS.get(function)
        if describe is None or request is None or request.body_size > MAX_BODY or self.actor.busy:
            return None
        # To copy answers first, to wait for an accelerator, and to tell listeners is work for a thread.
        if session.lent or session.environment.device is not None or self.feed.listeners:
            return None
        if function not in QUERIES and not session.has_small_graphs:
            return None
        workload = describe(session, *arguments)
        return None if workload is None else hash(workload)

    @asynccontextmanager
    async def recording(self, sender: str, number: int) -> AsyncIterator[None]:
        """Run a numbered request within the block. A durable session writes its commands and its answer in one step."""
        if not isinstance(self._state, Durable):
            yield
            return
        async with self._recording:
            reset = HOLDS.set(True)
            try:
                yield
            finally:
                HOLDS.reset(reset)
                await self.actor.call(self._state.answer, sender, number)

    @property
    def alone(self) -> bool:
        """Whether no other session was used recently."""
        return self._activity.alone

    def flush(self) -> None:
        """Finish the work that the last :meth:`run_at_once` has deferred, before the session is used otherwise.

        This never raises an error: if the work fails, later programs get InternalError.
        """
        if not self.actor.busy and self._session is not None:  # a thread flushes the session by itself
            self._session.flush()
            if self._report is not None:
                report, self._report = self._report, None
                report.publish(self._session.has_small_graphs)

    def run_at_once(self, function: Callable[..., T], *args: Any) -> T:
        """Return ``function(session, …, within=…)``, run on the event loop for at most ``within`` seconds.

        The session must be flushed afterwards. Raises NotAtOnce, without an effect, if the function may take longer or
        the session is busy.
        """
        self._activity.note(self.number)
        within = AT_ONCE_S if self.alone else TINY_S
        session = self._session
        if session is None or self.actor.busy or session.last_s > within or self._recording.locked():
            raise NotAtOnce
        report = None
        if self.feed.listeners:
            self.flush()  # so that the report counts this program alone
            submission = Submission(self.feed, asyncio.get_running_loop(), kind_of(function), time.perf_counter())
            report = Report(submission, session)
        try:
            if isinstance(self._state, Durable):
                result: T = self._state.run_at_once(function, args, within)
            else:
                result = function(session, *args, within=within)
        except BaseException:
            session.observation = None
            raise
        if report is not None:
            report.end(result)
            self._report = report
        self.use()
        return result

    async def give_up_waiting(self) -> None:
        """Cancel the backward passes that wait for the client. This does not count as a use of the session."""
        session = self._session
        if session is not None and session.suspensions.waiting:
            program = [Instruction("cancel", attrs={"call": call}) for call in session.suspensions.waiting]
            await self._called(run_instructions, [program])

    def changed(self) -> None:
        """Save the session's name and time to live, after they have changed."""
        if isinstance(self._state, Durable):
            files = self._state.files
            files.manifest.name, files.manifest.ttl_s = self.name, self.ttl_s
            files.manifest.last_used_at = time.time() - self.idle_s
            self.actor.post(files.write_manifest)

    @property
    def owned(self) -> bool:
        """Whether this server still has the session, and no other one has taken it over."""
        return not isinstance(self._state, Durable) or self._state.files.owned

    def forget(self, reason: str) -> None:
        """Cancel the calls of a session that another server has, or will take over, and free its memory."""
        state = self._state
        if isinstance(state, Durable):
            state.files.give_up()  # first: the other server must not read that a program was cancelled, but run it
        self.actor.cancel(reason)
        if isinstance(state, Durable):
            self.actor.post(state.unload)

    def note_use(self) -> None:
        """Save the time of the last use, if the one on the disk is too old."""
        if isinstance(self._state, Durable):
            noted = self._state.files.manifest.last_used_at
            if abs(time.time() - self.idle_s - noted) > NOTED_S:
                self.changed()

    async def delete(self) -> None:
        """Delete the session on the disk: its manifest immediately, the other files after the cancelled calls."""
        if isinstance(self._state, Durable):
            await asyncio.to_thread(self._state.files.withdraw)
            self.actor.post(self._state.delete)

    async def put_away(self) -> None:
        """Save a durable session to the disk, and free its memory."""
        if isinstance(self._state, Durable) and self._state.session is not None and not self._recording.locked():
            self._state.files.manifest.last_used_at = time.time() - self.idle_s
            await self.actor.call(self._state.put_away)

    async def inspect(self, function: Callable[[HostedSession], T]) -> T:
        """Return ``function(session)`` for a session that is not durable. This does not count as a use."""
        return await self.actor.call(function, self._session)

    def abandon(self) -> None:
        """Fail all calls with ServerBusy. Only waiting calls had no effect, so only these may be repeated."""
        text = "the server stopped before this was finished"
        self.actor.abandon(ServerBusy(text, retry_after_s=None), ServerBusy(text))
