"""Actors on threads: each runs its calls one at a time and in order, off the event loop.

Every call passes from one thread to another twice. A queue and ``call_soon_threadsafe`` take 32 µs for that,
``loop.run_in_executor`` takes 55 µs (uvloop, same run).
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import get_ident
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from telegrad_engine.cancellation import CancellationToken, running
from telegrad_engine.program.registered_functions import permissions

from ..tenants.principal import PRINCIPAL, Principal, refusals

logger = logging.getLogger(__name__)
T = TypeVar("T")
Work = Callable[[], None]
_Job = tuple[str, Work]
"""A tenant and its work."""
ALONE_S = 0.1
"""Seconds without use of another session after which a session counts as alone."""


class Activity:
    """Tracks which session of the server was used last."""

    def __init__(self) -> None:
        self._latest, self._since = 0, math.inf

    def note(self, number: int) -> None:
        """Record a use of the session with this number."""
        if number != self._latest:
            self._latest, self._since = number, time.monotonic()

    @property
    def alone(self) -> bool:
        """Whether no other session than the last one was used for ``ALONE_S`` seconds."""
        return time.monotonic() - self._since > ALONE_S


class Workers:
    """A fixed number of daemon threads that run the work that :meth:`put` gets.

    The thread that became idle last works next: its data is still in the core's cache, and the memory it freed is still
    in its arena. Tenants take turns, and one tenant never takes the last thread, so that its long programs cannot block
    the others. Work without a tenant may take all threads.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._lock = threading.Lock()
        self._free: list[SimpleQueue[_Job | None]] = []
        """The mailboxes of idle threads. The one of the thread that became idle last is at the end."""
        self._backlog: OrderedDict[str, deque[Work]] = OrderedDict()
        """The waiting work by tenant. The tenant whose turn is next comes first."""
        self._running: Counter[str] = Counter()
        """The number of threads that work for each tenant."""
        self._stopping = False
        self._started: dict[int, float] = {}
        """When each thread began its last work, by the id of the thread."""
        self._threads = [threading.Thread(target=self._work, name=f"telegrad-{i}", daemon=True) for i in range(count)]
        for thread in self._threads:
            thread.start()

    def put(self, work: Work, tenant: str = "") -> None:
        """Run ``work``, which must not raise, on a free thread."""
        with self._lock:
            if not self._free or not self._may_run(tenant):
                self._backlog.setdefault(tenant, deque()).append(work)
                return
            mailbox = self._free.pop()
            self._running[tenant] += 1
        mailbox.put((tenant, work))

    def _may_run(self, tenant: str) -> bool:
        """Whether another thread may work for this tenant."""
        return not tenant or self._running[tenant] < max(1, self.count - 1)

    @property
    def wanted(self) -> bool:
        """Whether work waits for a free thread."""
        return bool(self._backlog)

    @property
    def busy_count(self) -> int:
        """How many threads run work."""
        return self.count - len(self._free)

    @property
    def backlog(self) -> int:
        """The number of works that wait for a free thread."""
        with self._lock:
            return sum(map(len, self._backlog.values()))

    def occupied(self, seconds: float) -> bool:
        """Whether every thread has run the same work for at least ``seconds`` seconds."""
        latest = monotonic() - seconds
        with self._lock:
            return not self._free and all(started <= latest for started in self._started.values())

    def stop(self) -> None:
        """End the threads once no work waits."""
        with self._lock:
            self._stopping = True
            for mailbox in self._free:
                mailbox.put(None)
            self._free.clear()

    def ended(self, seconds: float) -> bool:
        """Whether all threads have ended after :meth:`stop`; waits for each at most ``seconds`` seconds."""
        for thread in self._threads:
            thread.join(seconds)
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        mailbox: SimpleQueue[_Job | None] = SimpleQueue()
        job = self._next(mailbox)
        while job is not None:
            tenant, work = job
            self._started[get_ident()] = monotonic()
            work()
            del work, job  # a waiting thread must not keep tensors alive
            job = self._next(mailbox, tenant)

    def _next(self, mailbox: SimpleQueue[_Job | None], finished: str | None = None) -> _Job | None:
        """Wait for the next work, after work of the tenant ``finished``; None ends the thread."""
        with self._lock:
            if finished is not None:
                self._running[finished] -= 1
                if not self._running[finished]:
                    del self._running[finished]
            tenant = next(filter(self._may_run, self._backlog), None)
            if tenant is not None:
                waiting = self._backlog.pop(tenant)
                work = waiting.popleft()
                if waiting:
                    self._backlog[tenant] = waiting  # at the end
                self._running[tenant] += 1
                return tenant, work
            if self._stopping:
                return None
            self._free.append(mailbox)
        return mailbox.get()


class _QueuedCall(NamedTuple):
    future: asyncio.Future[Any]
    token: CancellationToken
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    principal: Principal
    """The principal of the request that made the call."""


class Actor:
    """A mailbox whose calls run one after another on the workers.

    The thread that ran a call continues with the next one, without waiting for the event loop, which would take as long
    as a small program. If other work waits for a thread, the thread runs that first.
    """

    def __init__(self, workers: Workers, tenant: str = "") -> None:
        self._workers, self._tenant = workers, tenant
        self._lock = threading.Lock()
        self._mailbox: deque[_QueuedCall] = deque()
        self._current: _QueuedCall | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def busy(self) -> bool:
        """Whether a call runs or waits."""
        return self._current is not None

    @property
    def waiting(self) -> int:
        """The number of calls that wait for earlier ones."""
        return len(self._mailbox)

    async def call(self, function: Callable[..., T], *arguments: Any, token: CancellationToken | None = None) -> T:
        """Return ``function(*arguments)``, run after all earlier calls, until ``token`` is cancelled.

        Cancelling the task that awaits this does not stop the call.
        """
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        call = _QueuedCall(
            self._loop.create_future(), token or CancellationToken(), function, arguments, PRINCIPAL.get()
        )
        with self._lock:
            starts = self._current is None
            if starts:
                self._current = call
            else:
                self._mailbox.append(call)
        if starts:
            self._workers.put(self._work, self._tenant)
        try:
            result: T = await call.future
            return result
        finally:
            del call  # an error in its future has this frame in its traceback

    def run_at_once(self, function: Callable[..., T], *arguments: Any, token: CancellationToken | None = None) -> T:
        """Return ``function(*arguments)``, run on this thread. The actor must not be busy."""
        return _run(function, arguments, token or CancellationToken(), PRINCIPAL.get())

    def post(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Run ``function(*arguments)`` after all earlier calls, without a result. An error is logged."""
        running = asyncio.ensure_future(self.call(function, *arguments))
        running.add_done_callback(_log_error)

    def cancel(self, reason: str) -> None:
        """Cancel all calls. The running one stops soon, a waiting one when its turn comes."""
        with self._lock:
            calls = [*self._mailbox] if self._current is None else [self._current, *self._mailbox]
        for call in calls:
            call.token.cancel(reason)

    def abandon(self, running: Exception, waiting: Exception) -> None:
        """Fail the running call and the waiting ones with these errors.

        The running call may continue, but its result is dropped.
        """
        with self._lock:
            current, calls = self._current, [*self._mailbox]
            self._mailbox.clear()
        answers = [(call, waiting) for call in calls] + ([] if current is None else [(current, running)])
        for call, error in answers:
            if not call.future.done():
                call.future.set_exception(error)

    def _work(self) -> None:
        """Run the current call on a worker's thread, report its result, and continue with the next one."""
        call = self._current
        while call is not None:
            result: Any = None
            error: BaseException | None = None
            try:
                result = _run(call.function, call.arguments, call.token, call.principal)
            except BaseException as caught:  # every error is passed to the caller
                error = caught
            following, future = self._next(), call.future
            del call  # before its result is known: then nothing here may refer to its session
            assert self._loop is not None
            with suppress(RuntimeError):  # the loop ended while this was running
                self._loop.call_soon_threadsafe(_done, future, result, error)
            result = error = None  # the error's traceback holds this frame
            del future
            if following is not None and self._workers.wanted:
                del following  # as above
                self._workers.put(self._work, self._tenant)
                return
            call = following

    def _next(self) -> _QueuedCall | None:
        """The next call whose future is not done."""
        with self._lock:
            while self._mailbox:
                self._current = self._mailbox.popleft()
                if not self._current.future.done():
                    return self._current
            self._current = None
            return None


def _run(function: Callable[..., T], arguments: Sequence[Any], token: CancellationToken, principal: Principal) -> T:
    """Return ``function(*arguments)``, run on this thread for a principal, until ``token`` is cancelled."""
    permissions.refusals = refusals(principal.scopes)
    outer, running.token = running.token, token
    try:
        return function(*arguments)
    finally:
        running.token = outer


def _log_error(done: asyncio.Future[Any]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        logger.error("work of a session failed: %s", error)


def _done(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
