"""The events of a session, for its listeners.

Without listeners, no events are made. A listener that reads too slowly loses events, and learns how many.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from telegrad_engine.errors import LimitExceeded
from telegrad_engine.inspection.observation import Observation, Scalar
from telegrad_engine.inspection.step import Step

MAX_EVENTS = 256
"""The most events that wait for one listener."""
MAX_LISTENERS = 16
"""The most listeners of one session."""

OBSERVED = frozenset({"graph", "scalars", "step"})
"""Events for listeners that ask for them."""
GATHERED_S = 0.25
"""The least seconds between two batches of events, so that a listener beside a fast loop seldom wakes."""
SOON_S = 0.01
"""Seconds that the first event after a pause waits for others."""
WARNING_S = 60.0
"""Seconds before the end of a session at which its listeners are warned."""


class Event(NamedTuple):
    """Something that happened in a session."""

    name: str
    data: dict[str, Any]


class EndedCall(NamedTuple):
    """A call that ran a program, or that failed. Its events are made when they are published, many calls together."""

    sequence: int | None
    kind: str
    instructions: int
    queued_s: float
    seconds: float
    planned: bool
    digest: str | None
    used_bytes: int
    error: str | None
    request_id: str | None
    at: float
    """The POSIX time of its end."""
    scalars: Sequence[Scalar]
    """The numbers that it fetched."""
    step: Step | None
    """The step that was observed in it."""
    revision: int
    """That of the graph after it."""
    nodes: int | None
    """The number of nodes in the graph; None if they were not counted."""

    def events(self) -> Iterator[Event]:
        """``program``, and those of :data:`OBSERVED` that there are."""
        yield Event("program", dict(zip(PROGRAM, self, strict=False)))
        if self.scalars:
            at = datetime.fromtimestamp(self.at, UTC).isoformat()
            values = [each._asdict() for each in self.scalars]
            yield Event("scalars", {"sequence": self.sequence, "at": at, "values": values})
        if self.step is not None:
            data = {"sequence": self.sequence, "revision": self.step.revision, "nodes": len(self.step.record)}
            yield Event("step", data)
        if self.nodes is not None:
            yield Event("graph", {"revision": self.revision, "nodes": self.nodes})


PROGRAM = EndedCall._fields[: EndedCall._fields.index("at")]
"""What the event ``program`` has."""


class Listener:
    """One client that listens. All methods are called on the event loop."""

    def __init__(self, size: int = MAX_EVENTS, observes: bool = False) -> None:
        self.observes = observes
        """Whether it wants steps and numbers, too."""
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

    async def next(self, seconds: float) -> list[Event]:
        """The events that wait, or the next one; none after ``seconds`` seconds without one, and after the last one."""
        if not self._events and not self._ended:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
        self._changed.clear()
        self._tell_lost()
        found = list(self._events)
        self._events.clear()
        return found

    @property
    def ended(self) -> bool:
        """Whether the last event was read."""
        return self._ended and not self._events


class Feed:
    """The listeners of one session."""

    def __init__(self) -> None:
        self.listeners: set[Listener] = set()
        self.observation: Observation | None = None
        """The observation of the session; None before the first listener."""
        self._warned = 0.0
        self._submitted: deque[EndedCall] = deque()
        """Calls, also of other threads, whose events are not published yet."""
        self._scheduled = False
        """Whether they will be."""
        self._published = -math.inf
        """When the last batch was published, by ``time.monotonic``."""

    def listen(self, observes: bool = False) -> Listener:
        """Add a listener, which wants steps and numbers if ``observes``. Raises LimitExceeded if there are too many."""
        if len(self.listeners) >= MAX_LISTENERS:
            raise LimitExceeded(f"the session has {MAX_LISTENERS} listeners, as many as it may")
        listener = Listener(observes=observes)
        self.listeners.add(listener)
        self._update()
        return listener

    def leave(self, listener: Listener) -> None:
        """Remove a listener."""
        self.listeners.discard(listener)
        self._update()

    def _update(self) -> None:
        self.observation = self.observation or Observation()
        self.observation.observes = any(listener.observes for listener in self.listeners)
        if not self.observation.observes:
            self.observation.end_step()

    @property
    def observes(self) -> bool:
        """Whether any listener wants steps and numbers."""
        return self.observation is not None and self.observation.observes

    def publish(self, events: Iterable[Event]) -> None:
        """Send events to all listeners; those of :data:`OBSERVED`, to those who want them."""
        for event in events:
            for listener in self.listeners:
                if listener.observes or event.name not in OBSERVED:
                    listener.offer(event)

    def submit(self, loop: asyncio.AbstractEventLoop, call: EndedCall) -> None:
        """Publish the events of a call soon, those of several together. Any thread may call this."""
        self._submitted.append(call)
        if not self._scheduled:
            self._scheduled = True
            wait_s = max(SOON_S, self._published + GATHERED_S - time.monotonic())
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(loop.call_later, wait_s, self._publish_submitted)

    def _publish_submitted(self) -> None:
        self._published = time.monotonic()
        self._scheduled = False  # first: another thread may submit meanwhile
        while self._submitted:
            self.publish(self._submitted.popleft().events())

    def warn_before(self, expires_at: float, now: float) -> None:
        """Publish ``expiring`` in the last ``WARNING_S`` seconds, once for each time at which the session expires."""
        if expires_at - now < WARNING_S and expires_at != self._warned:
            self._warned = expires_at
            self.publish([Event("expiring", {"expires_at": datetime.fromtimestamp(expires_at, UTC).isoformat()})])

    def end(self, name: str, reason: str) -> None:
        """Send the last event to all listeners."""
        self._publish_submitted()
        for listener in self.listeners:
            listener.offer(Event(name, {"reason": reason}), is_last=True)
