"""A session that lives in this process: its calls run on the worker threads, short ones on the event loop."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from typing_extensions import override

from telegrad_engine.errors import ServerBusy
from telegrad_engine.lru import LRU
from telegrad_engine.program import Instruction
from telegrad_engine.session.quota import Quota
from telegrad_engine.session.session import NotAtOnce

from ..observability.request import REQUEST
from ..observability.tracing import run_for
from ..tenants.principal import ANYONE
from . import work
from .actor import Activity, Actor, Workers
from .commands import QUERIES, WORKLOADS
from .durable import Durable
from .host import AT_ONCE_S, HOLDS, TINY_S, TOKEN, SessionHandle, SessionOptions
from .sequence import HostedSession, SequenceRecords

NOTED_S = 60.0
"""Seconds by which the last use that is noted on the disk may differ from the last one."""
BRIEF_S = 3e-4
"""Seconds that a request's call may block the event loop; to hand it to a thread and back takes a third of that."""
MAX_BODY = 2048
"""The longest body, in bytes, of a request whose call may run on the event loop."""
P = ParamSpec("P")
T = TypeVar("T")
_DURATIONS: LRU[int, float] = LRU(4096)
"""How long the last call of each workload took, by the workload's hash."""


def _timed(workload: int, function: Callable[..., T], *arguments: Any) -> T:
    """Return ``function(*arguments)``, and remember how long it took, unless it failed, which may be brief."""
    begun = time.perf_counter()
    result = function(*arguments)
    _DURATIONS[workload] = time.perf_counter() - begun
    return result


class LocalSession(SessionHandle):
    """A session of this process, durable or not."""

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
        super().__init__(number, options, ttl_s, heartbeat_ttl_s)
        self.queue = queue
        self._state = state
        self._actor = Actor(workers, "" if self.tenant == ANYONE.tenant else self.tenant)
        self._activity = activity
        self._recording = asyncio.Lock()
        """Held by the numbered request whose commands are written together with its answer."""

    @property
    def _session(self) -> HostedSession | None:
        """The session; None if it is only on the disk."""
        return self._state.session

    @property
    @override
    def senders(self) -> SequenceRecords:
        return self._state.senders

    @override
    async def ready(self) -> None:
        state = self._state
        if isinstance(state, Durable) and state.session is None:
            await self._actor.call(state.load)

    @override
    async def call(self, function: Callable[Concatenate[HostedSession, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
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
        if self.feed:
            task = partial(work.run_published, self.feed, asyncio.get_running_loop(), task)
        task = partial(run_for, REQUEST.get(), task)
        if not isinstance(self._state, Durable):
            workload = self._workload(self._state, function, arguments)
            if workload is not None:
                task = partial(_timed, workload, task)
                if _DURATIONS.get(workload, math.inf) <= BRIEF_S:
                    return self._actor.run_at_once(task, self._state, *arguments, token=TOKEN.get())
            return await self._actor.call(task, self._state, *arguments, token=TOKEN.get())
        holds = HOLDS.get()
        while not holds and self._recording.locked():
            async with self._recording:
                pass
        return await self._actor.call(self._state.run, function, arguments, task, holds, token=TOKEN.get())

    def _workload(self, session: HostedSession, function: Callable[..., T], arguments: Sequence[Any]) -> int | None:
        """What decides how long a call takes that may run on the event loop; None for any other call."""
        request, describe = REQUEST.get(), WORKLOADS.get(function)
        if describe is None or request is None or request.body_size > MAX_BODY or self._actor.busy:
            return None
        # Answers that must be copied first, an accelerator to wait for, and listeners are work for a thread.
        if session.lent or session.environment.device is not None or self.feed.listeners:
            return None
        if function not in QUERIES and not session.has_small_graphs:
            return None
        workload = describe(session, *arguments)
        return None if workload is None else hash(workload)

    @asynccontextmanager
    @override
    async def recording(self, sender: str, number: int) -> AsyncIterator[None]:
        if not isinstance(self._state, Durable):
            yield
            return
        async with self._recording:
            reset = HOLDS.set(True)
            try:
                yield
            finally:
                HOLDS.reset(reset)
                await self._actor.call(self._state.answer, sender, number)

    @property
    @override
    def alone(self) -> bool:
        return self._activity.alone

    @override
    def flush(self) -> None:
        if not self._actor.busy and self._session is not None:  # a thread flushes the session itself
            self._session.flush()

    @override
    def run_at_once(self, function: Callable[..., T], *args: Any) -> T:
        self._activity.note(self.number)
        within = AT_ONCE_S if self.alone else TINY_S
        session = self._session
        if (
            session is None
            or self._actor.busy
            or session.last_s > within
            or self._recording.locked()
            or self.feed.listeners
        ):
            raise NotAtOnce
        if isinstance(self._state, Durable):
            result: T = self._state.run_at_once(function, args, within)
        else:
            result = function(session, *args, within=within)
        self.use()
        return result

    @property
    def busy(self) -> bool:
        """Whether a call runs or waits."""
        return self._actor.busy

    @property
    def waiting(self) -> int:
        """How many calls wait for earlier ones."""
        return self._actor.waiting

    async def give_up_waiting(self) -> None:
        """Cancel the backward passes that wait for the client. It does not count as a use of the session."""
        session = self._session
        if session is not None and session.suspensions.waiting:
            program = [Instruction("cancel", attrs={"call": call}) for call in session.suspensions.waiting]
            await self._called(work.run, [program])

    @override
    def changed(self) -> None:
        if isinstance(self._state, Durable):
            files = self._state.files
            files.manifest.name, files.manifest.ttl_s = self.name, self.ttl_s
            files.manifest.last_used_at = time.time() - self.idle_s
            self._actor.post(files.write_manifest)

    @property
    def owned(self) -> bool:
        """Whether no other server has taken the session over."""
        return not isinstance(self._state, Durable) or self._state.files.owned

    def forget(self) -> None:
        """Free the memory of a session that another server has taken over."""
        if isinstance(self._state, Durable):
            self._actor.post(self._state.unload)

    def note_use(self) -> None:
        """Note the last use on the disk, if it is newer than the one that is noted there."""
        if isinstance(self._state, Durable):
            noted = self._state.files.manifest.last_used_at
            if abs(time.time() - self.idle_s - noted) > NOTED_S:
                self.changed()

    async def delete(self) -> None:
        """Delete what is on the disk: at once what makes it a session, and the rest after the cancelled calls."""
        if isinstance(self._state, Durable):
            await asyncio.to_thread(self._state.files.withdraw)
            self._actor.post(self._state.delete)

    async def put_away(self) -> None:
        """Save the session to the disk, if it is durable, and free its memory."""
        if isinstance(self._state, Durable) and self._state.session is not None and not self._recording.locked():
            self._state.files.manifest.last_used_at = time.time() - self.idle_s
            await self._actor.call(self._state.put_away)

    async def inspect(self, function: Callable[[HostedSession], T]) -> T:
        """Return ``function(session)`` of a session that is not durable. It does not count as a use of the session."""
        return await self._actor.call(function, self._session)

    def cancel(self, reason: str) -> None:
        """Cancel all running and waiting calls."""
        self._actor.cancel(reason)

    def abandon(self) -> None:
        """Answer all calls with ServerBusy. Only those that wait had no effect, so only these may be repeated."""
        text = "the server stopped before this was finished"
        self._actor.abandon(ServerBusy(text, retry_after_s=None), ServerBusy(text))
