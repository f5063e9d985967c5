"""Cancellation of a running program: a token with a deadline, which any thread may cancel and the engine checks.

The engine checks it between instructions, between the nodes of a backward pass, in each iteration of a loop of a
registered function, and between the blocks of heavy kernels. A single call of BLAS or LAPACK is not interrupted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic

from .errors import Cancelled, LimitExceeded, TelegradError, TimeLimitExceeded

STOPPED = Cancelled, LimitExceeded, TimeLimitExceeded
"""The errors that :func:`check_cancelled` raises."""


class CancellationToken:
    """Tells a running program to stop. Any thread may cancel it; the thread that runs the program checks it.

    Each check counts as one instruction.
    """

    __slots__ = ("_deadline", "_error", "_instructions", "_left", "_seconds")

    def __init__(self) -> None:
        self._error: TelegradError | None = None
        self._deadline = self._seconds = self._instructions = self._left = inf

    @property
    def cancelled(self) -> bool:
        """Whether :meth:`cancel` was called."""
        return self._error is not None

    def cancel(self, reason: str = "the program was cancelled") -> None:
        """Make the next check raise Cancelled with this reason, unless the token is already cancelled."""
        if self._error is None:
            self._error = Cancelled(reason)

    def reset(self) -> None:
        """Clear the cancellation and the limits."""
        self._error = None
        self._deadline = self._left = inf

    def limit(self, seconds: float, instructions: float = inf) -> None:
        """Make checks raise TimeLimitExceeded after ``seconds``, and LimitExceeded after this many ``instructions``.

        Earlier limits stay if they are reached earlier.
        """
        deadline = monotonic() + seconds
        if deadline < self._deadline:
            self._seconds, self._deadline = seconds, deadline
        if instructions < self._left:
            self._instructions = self._left = instructions

    def check(self) -> None:
        """Raise Cancelled, TimeLimitExceeded or LimitExceeded if the program must stop."""
        self._left -= 1
        if self._left < 0:
            raise LimitExceeded(
                f"the program ran more than {self._instructions:.0f} instructions, those of its functions' loops and "
                "the nodes of its backward passes included, the most that one may run here"
            )
        if self._error is not None:
            raise Cancelled(self._error.detail)
        if monotonic() > self._deadline:
            raise TimeLimitExceeded(
                f"the program ran for more than {self._seconds:g} seconds, the most that one may run here"
            )


class _Running(threading.local):
    token: CancellationToken | None = None
    """The token of the program that this thread runs, or None."""


running = _Running()


def check_cancelled() -> None:
    """Raise Cancelled, TimeLimitExceeded or LimitExceeded if the program that this thread runs must stop."""
    token = running.token
    if token is not None:
        token.check()


@contextmanager
def cancelled_by(token: CancellationToken) -> Iterator[None]:
    """Within the block, check ``token`` in programs that this thread runs."""
    outer, running.token = running.token, token
    try:
        yield
    finally:
        running.token = outer
