"""Polls a connection for the client's next bytes without sleeping, as long as they arrive within a millisecond.

A process that sleeps takes time to wake, 70 µs on one virtual machine, and a client that reads every value waits for
that each time. The SDK polls for answers in the same way (telegrad/transport/websocket.py); see
docs/explanation/tuning.md.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from time import perf_counter

from ..process import usable_cores

POLL_S = 1e-3
"""Seconds to poll at most. Nothing else happens on the event loop meanwhile."""

POSSIBLE = hasattr(select, "poll") and hasattr(os, "sched_yield") and usable_cores() > 1
"""Whether this system can poll, and has a core for a client on the same machine."""


class BusyPoll:
    """Polls one connection, given its file descriptor; ``alone`` tells whether no other session waits."""

    def __init__(self, descriptor: int, alone: Callable[[], bool]) -> None:
        self._alone = alone
        self._waits_since = 0.0
        self._soon = False
        """Whether the last bytes came within ``POLL_S`` seconds."""
        if POSSIBLE:
            self._poll = select.poll()
            self._poll.register(descriptor, select.POLLIN)

    def arrived(self) -> None:
        """Note that a message, or a part of one, has arrived."""
        self._soon = POSSIBLE and perf_counter() - self._waits_since < POLL_S

    def wait(self) -> None:
        """Poll until the next bytes arrive, if they are likely to arrive soon."""
        self._waits_since = perf_counter()
        if not self._soon or not self._alone():
            return
        while not self._poll.poll(0) and perf_counter() - self._waits_since < POLL_S:
            os.sched_yield()  # the client may be waiting for this core
