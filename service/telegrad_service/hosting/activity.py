"""Tracks which sessions are in use: work on the event loop makes other sessions wait."""

from __future__ import annotations

import math
import time

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
