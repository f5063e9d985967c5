"""Stopping a running program: a token with a deadline that any thread may cancel, and that the engine checks.

The engine checks between instructions, between the nodes of a backward pass, at each turn of a loop of a registered
function, and between the blocks of heavy kernels. A single call into BLAS or LAPACK is not interrupted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic

from .errors import Cancelled, TelegradError, TimeLimitExceeded


class CancellationToken:
    """Whether the program that runs under it is to stop. Any thread may cancel it; one thread checks it."""

    __slots__ = ("_deadline", "_error", "_seconds")

    def __init__(self) -> None:
        self._error: TelegradError | None = None
        self._deadline = self._seconds = inf

    @property
    def cancelled(self) -> bool:
        """Whether :meth:`cancel` was called."""
        return self._error is not None

    def cancel(self, reason: str = "the program was cancelled") -> None:
        """Have the next check raise Cancelled with this reason, unless it is cancelled already."""
        if self._error is None:
            self._error = Cancelled(reason)

    def reset(self) -> None:
        """Be as new."""
        self._error, self._deadline = None, inf

    def limit(self, seconds: float) -> None:
        """Have a check more than so many seconds from now raise TimeLimitExceeded, unless one has to earlier."""
        deadline = monotonic() + seconds
        if deadline < self._deadline:
            self._seconds, self._deadline = seconds, deadline

    def check(self) -> None:
        """Raise Cancelled or TimeLimitExceeded if the program is to stop."""
        if self._error is not None:
            raise Cancelled(self._error.detail)
        if monotonic() > self._deadline:
            raise TimeLimitExceeded(
                f"the program ran for more than {self._seconds:g} seconds, the most that one may run here"
            )


class _Running(threading.local):
    token: CancellationToken | None = None
    """What stops the program that this thread runs, if anything may."""


running = _Running()


def check_cancelled() -> None:
    """Raise Cancelled or TimeLimitExceeded if the program that this thread runs is to stop."""
    token = running.token
    if token is not None:
        token.check()


@contextmanager
def cancelled_by(token: CancellationToken) -> Iterator[None]:
    """Within, what this thread runs stops when ``token`` says so."""
    outer, running.token = running.token, token
    try:
        yield
    finally:
        running.token = outer
