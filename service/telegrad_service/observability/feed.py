"""The events of a session, for its listeners.

Without listeners, no events are made. A listener that reads too slowly loses events, and learns how many.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from telegrad_engine.errors import LimitExceeded

MAX_EVENTS = 256
"""The most events that wait for one listener."""
MAX_LISTENERS = 16
"""The most listeners of one session."""

WARNING_S = 60.0
"""Seconds before the end of a session at which its listeners are warned."""


class Event(NamedTuple):
    """Something that happened in a session."""

    name: str
    data: dict[str, Any]


class Listener:
    """One client that listens. All methods are called on the event loop."""

    def __init__(self, size: int = MAX_EVENTS) -> None:
        self._size = size
        self._events: deque[Event] = deque()
        self._lost = 0
        """The number of events that were lost after the last event in the queue."""
        self._changed = asyncio.Event()
        self._ended = False

    def offer(self, event: Event, is_last: bool = False) -> None:
        """Queue an event. It is lost if the queue is full, unless it is the last event."""
        if len(self._events) >= self._size and not is_last:
            self._lost += 1
            return
        self._tell_lost()
        self._events.append(event)
        self._ended |= is_last
        self._changed.set()

    def _tell_lost(self) -> None:
        if self._lost:
            self._events.append(Event("lost", {"count": self._lost}))
            self._lost = 0

    async def next(self, seconds: float) -> Event | None:
        """The next event; None after ``seconds`` seconds without an event, and after the last one."""
        if not self._events and not self._ended:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
        self._changed.clear()
        if not self._events:
            self._tell_lost()
        return self._events.popleft() if self._events else None

    @property
    def ended(self) -> bool:
        """Whether the last event was read."""
        return self._ended and not self._events


class Feed:
    """The listeners of one session."""

    def __init__(self) -> None:
        self.listeners: set[Listener] = set()
        self._warned = 0.0

    def listen(self) -> Listener:
        """Add a listener. Raises LimitExceeded if there are too many."""
        if len(self.listeners) >= MAX_LISTENERS:
            raise LimitExceeded(f"the session has {MAX_LISTENERS} listeners, as many as it may")
        listener = Listener()
        self.listeners.add(listener)
        return listener

    def publish(self, name: str, **data: Any) -> None:
        """Send an event to all listeners."""
        event = Event(name, data)
        for listener in self.listeners:
            listener.offer(event)

    def warn_before(self, expires_at: float, now: float) -> None:
        """Publish ``expiring`` in the last ``WARNING_S`` seconds, once for each time at which the session expires."""
        if expires_at - now < WARNING_S and expires_at != self._warned:
            self._warned = expires_at
            self.publish("expiring", expires_at=datetime.fromtimestamp(expires_at, UTC).isoformat())

    def end(self, name: str, reason: str) -> None:
        """Send the last event to all listeners."""
        for listener in self.listeners:
            listener.offer(Event(name, {"reason": reason}), is_last=True)
