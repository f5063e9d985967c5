"""Looking for a client's next message, or the rest of one, without sleeping, as long as these come soon.

A process that sleeps takes a while to wake, 70 µs on a virtual machine that was measured: whoever reads each value
waits for that each time. The SDK looks for its answers in the same way (telegrad/websocket.py); docs/decisions/0020.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from time import perf_counter

from .machine import usable_cores

LOOK_S = 1e-3
"""Seconds to look. For so long nothing else happens on the event loop."""

POSSIBLE = hasattr(select, "poll") and hasattr(os, "sched_yield") and usable_cores() > 1
"""Whether this system lets a process look, and has a core for the client, which may be on this machine."""


class Lookout:
    """For what comes on one connection, by its file descriptor; ``alone`` tells if nobody else is kept waiting."""

    def __init__(self, descriptor: int, alone: Callable[[], bool]) -> None:
        self._alone = alone
        self._waits_since = 0.0
        self._soon = False
        """Whether looking found what came last, or would have."""
        if POSSIBLE:
            self._poll = select.poll()
            self._poll.register(descriptor, select.POLLIN)

    def found(self) -> None:
        """A message has come, or a part of one."""
        self._soon = POSSIBLE and perf_counter() - self._waits_since < LOOK_S

    def look(self) -> None:
        """Look for what comes next, which is waited for from now on, if that is likely to find it."""
        self._waits_since = perf_counter()
        if not self._soon or not self._alone():
            return
        while not self._poll.poll(0) and perf_counter() - self._waits_since < LOOK_S:
            os.sched_yield()  # whoever waits for this core may be the client
