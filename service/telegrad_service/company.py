"""Who else uses the server: what is done on the event loop keeps the others waiting, if there are any."""

from __future__ import annotations

import math
import time

ALONE_S = 0.1
"""Seconds in which no other session was used, before one has the server to itself."""


class Company:
    """Whether a session has the server to itself, so that nobody waits for what is done on the event loop."""

    def __init__(self) -> None:
        self._latest, self._since = 0, math.inf

    def meet(self, number: int) -> None:
        """The session of this number is used."""
        if number != self._latest:
            self._latest, self._since = number, time.monotonic()

    @property
    def alone(self) -> bool:
        """Whether the session that was used last has been the only one for a while."""
        return time.monotonic() - self._since > ALONE_S
