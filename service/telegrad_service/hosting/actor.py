"""Actors on threads: each runs its calls one at a time and in order, off the event loop.

Every call passes from one thread to another twice: with a queue and ``call_soon_threadsafe`` this took 32 µs, with
``loop.run_in_executor`` 55 µs (uvloop, same run).
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import get_ident
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from telegrad_engine.cancellation import CancellationToken, cancelled_by

ALONE_S = 0.1
"""Seconds after which a session counts as alone if no other session is used."""


class Activity:
    """Tracks which of the server's sessions is used."""

    def __init__(self) -> None:
        self._latest, self._since = 0, math.inf

    def note(self, number: int) -> None:
        """Note that the session with this number is used."""
        if number != self._latest:
            self._latest, self._since = number, time.monotonic()

    @property
    def alone(self) -> bool:
        """Whether only the last used session has been used for ``ALONE_S`` seconds."""
        return time.monotonic() - self._since > ALONE_S


T = TypeVar("T")
Work = Callable[[], None]


class Workers:
    """A fixed number of daemon threads that run the work that :meth:`put` gets.

    The thread that became free last works next: its data is still in the core's cache, and the memory it freed is still
    in its arena.
    """

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._free: list[SimpleQueue[Work | None]] = []
        """The mailboxes of idle threads; that of the last one to become idle is at the end."""
        self._backlog: deque[Work | None] = deque()
        self._count = count
        self._started: dict[int, float] = {}
        """When each thread began its last work, by the thread's id."""
        self._threads = [threading.Thread(target=self._work, name=f"telegrad-{i}", daemon=True) for i in range(count)]
        for thread in self._threads:
            thread.start()

    def put(self, work: Work | None) -> None:
        """Run ``work``, which must not raise, on a free thread; None ends the thread."""
        with self._lock:
            if not self._free:
                self._backlog.append(work)
                return
            mailbox = self._free.pop()
        mailbox.put(work)

    @property
    def wanted(self) -> bool:
        """Whether work waits for a free thread."""
        return bool(self._backlog)

    @property
    def busy(self) -> bool:
        """Whether any thread runs work."""
        return len(self._free) < self._count

    def occupied(self, seconds: float) -> bool:
        """Whether no thread is free, and each has run the same work for at least ``seconds`` seconds."""
        latest = monotonic() - seconds
        with self._lock:
            return not self._free and all(started <= latest for started in self._started.values())

    def stop(self) -> None:
        """End the threads, each after its current work."""
        for _ in range(self._count):
            self.put(None)

    def ended(self, seconds: float) -> bool:
        """Whether all threads have ended after :meth:`stop`; waits for each at most ``seconds`` seconds."""
        for thread in self._threads:
            thread.join(seconds)
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        mailbox: SimpleQueue[Work | None] = SimpleQueue()
        while (work := self._next(mailbox)) is not None:
            self._started[get_ident()] = monotonic()
            work()
            del work  # a waiting thread must not keep tensors alive

    def _next(self, mailbox: SimpleQueue[Work | None]) -> Work | None:
        with self._lock:
            if self._backlog:
                return self._backlog.popleft()
            self._free.append(mailbox)
        return mailbox.get()


class _Call(NamedTuple):
    future: asyncio.Future[Any]
    token: CancellationToken
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class Actor:
    """A mailbox whose calls run one after another on the workers.

    The thread that ran a call continues with the next one without waiting for the event loop, which would take as long
    as a small program. If other work waits for a thread, that runs first.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._lock = threading.Lock()
        self._mailbox: deque[_Call] = deque()
        self._current: _Call | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def busy(self) -> bool:
        """Whether a call runs, or waits for those before it."""
        return self._current is not None

    async def call(self, function: Callable[..., T], *arguments: Any, token: CancellationToken | None = None) -> T:
        """Return ``function(*arguments)``, run after all earlier calls. It stops when ``token`` is cancelled.

        Cancelling the caller does not stop it.
        """
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        call = _Call(self._loop.create_future(), token or CancellationToken(), function, arguments)
        with self._lock:
            starts = self._current is None
            if starts:
                self._current = call
            else:
                self._mailbox.append(call)
        if starts:
            self._workers.put(partial(self._work, call))
        result: T = await call.future
        return result

    def cancel(self, reason: str) -> None:
        """Cancel all calls: the running one stops soon, a waiting one when its turn comes."""
        for call in self._calls():
            call.token.cancel(reason)

    def _calls(self) -> list[_Call]:
        """The running call and the waiting ones."""
        with self._lock:
            return [*self._mailbox] if self._current is None else [self._current, *self._mailbox]

    def abandon(self, error: Exception) -> None:
        """Answer all calls with ``error``. The running one may continue, but its result is dropped."""
        calls = self._calls()
        with self._lock:
            self._mailbox.clear()
        for call in calls:
            if not call.future.done():
                call.future.set_exception(error)

    def _work(self, call: _Call) -> None:
        """Run a call on a worker's thread, report its result, and continue with the next one."""
        while True:
            result: Any = None
            error: BaseException | None = None
            try:
                with cancelled_by(call.token):
                    result = call.function(*call.arguments)
            except BaseException as caught:  # every error is passed to the caller
                error = caught
            following = self._next()
            assert self._loop is not None
            with suppress(RuntimeError):  # the loop ended while this was running
                self._loop.call_soon_threadsafe(_done, call.future, result, error)
            result = error = None  # the error's traceback holds this frame, and so the call's arguments
            if following is None:
                return
            if self._workers.wanted:
                self._workers.put(partial(self._work, following))
                return
            call = following

    def _next(self) -> _Call | None:
        """The next call that was not cancelled or answered."""
        with self._lock:
            while self._mailbox:
                self._current = self._mailbox.popleft()
                if not self._current.future.done():
                    return self._current
            self._current = None
            return None


def _done(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
