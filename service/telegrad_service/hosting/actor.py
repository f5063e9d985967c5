"""Actors on threads: each runs its calls one at a time and in order, off the event loop.

A call costs two hand-overs between threads, and every program pays them: a bare queue and
``call_soon_threadsafe`` took 32 µs where ``loop.run_in_executor`` took 55 (uvloop, same run).
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
"""Seconds without use of any other session, after which a session counts as alone."""


class Activity:
    """The use of the server's sessions."""

    def __init__(self) -> None:
        self._latest, self._since = 0, math.inf

    def note(self, number: int) -> None:
        """Note that the session with this number is used."""
        if number != self._latest:
            self._latest, self._since = number, time.monotonic()

    @property
    def alone(self) -> bool:
        """Whether the session that was used last has been the only one for ``ALONE_S`` seconds."""
        return time.monotonic() - self._since > ALONE_S


T = TypeVar("T")
Work = Callable[[], None]


class Workers:
    """A fixed number of daemon threads that run what is put to them.

    The thread that was free last is the next to work: what it computed with is still in its core's cache, and what it
    freed is at hand in its share of the memory.
    """

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._free: list[SimpleQueue[Work | None]] = []
        """The mailboxes of idle threads, that of the latest at the end."""
        self._backlog: deque[Work | None] = deque()
        self._count = count
        self._started: dict[int, float] = {}
        """When each busy thread began what it runs, by the thread's id."""
        self._threads = [threading.Thread(target=self._work, name=f"telegrad-{i}", daemon=True) for i in range(count)]
        for thread in self._threads:
            thread.start()

    def put(self, work: Work | None) -> None:
        """Have a free thread run ``work``, which must not raise; None ends it."""
        with self._lock:
            if not self._free:
                self._backlog.append(work)
                return
            mailbox = self._free.pop()
        mailbox.put(work)

    @property
    def wanted(self) -> bool:
        """Whether work waits for a thread to be free."""
        return bool(self._backlog)

    @property
    def busy(self) -> bool:
        """Whether a thread has something to do."""
        return len(self._free) < self._count

    def occupied(self, seconds: float) -> bool:
        """Whether no thread is free, and each has run the same work for at least so many seconds."""
        latest = monotonic() - seconds
        with self._lock:
            return not self._free and all(started <= latest for started in self._started.values())

    def stop(self) -> None:
        """End the threads, each after what it is running."""
        for _ in range(self._count):
            self.put(None)

    def ended(self, seconds: float) -> bool:
        """Whether all threads have ended after :meth:`stop`, for which each has so many seconds."""
        for thread in self._threads:
            thread.join(seconds)
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        mailbox: SimpleQueue[Work | None] = SimpleQueue()
        while (work := self._next(mailbox)) is not None:
            self._started[get_ident()] = monotonic()
            work()
            del work  # a waiting thread holds nobody's tensors

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

    The thread that runs one goes on with the next, without a word to the event loop in between: to wait for that takes
    as long as a small program. Where others wait for a thread, it lets them go first.
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
        """``function(*arguments)``, after all calls before it. It stops when ``token`` is cancelled.

        A caller that gives up does not stop it.
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
        """Cancel all calls: the one that runs stops soon, those that wait as soon as it is their turn."""
        for call in self._calls():
            call.token.cancel(reason)

    def _calls(self) -> list[_Call]:
        """The call that runs and those that wait."""
        with self._lock:
            return [*self._mailbox] if self._current is None else [self._current, *self._mailbox]

    def abandon(self, error: Exception) -> None:
        """Answer all calls with ``error``. The one that runs may not stop, but nobody waits for it."""
        calls = self._calls()
        with self._lock:
            self._mailbox.clear()
        for call in calls:
            if not call.future.done():
                call.future.set_exception(error)

    def _work(self, call: _Call) -> None:
        """On a worker's thread: run a call, report back, and go on."""
        while True:
            result: Any = None
            error: BaseException | None = None
            try:
                with cancelled_by(call.token):
                    result = call.function(*call.arguments)
            except BaseException as caught:  # it belongs to the caller, whatever it is
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
        """The next call that somebody still waits for."""
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
