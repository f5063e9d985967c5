"""Repeats requests that a server refused, before it did anything, because it is busy or a quota is used up.

Such an answer is a 429 or a 503 with ``Retry-After``. Other errors are never repeated here, nor is a program that the
server stopped for lack of memory, since parts of it have run.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from . import progress

RETRY_S = 60.0
"""Seconds, by default, in which requests are repeated."""
QUOTA_S = 10.0
"""The most seconds of that if memory or sessions of the user's own are too many: only the user can free them."""
FIRST_S, MAX_S = 0.25, 15.0
"""The first and the longest random delay beyond the seconds that the server asks for."""
USED_UP = 429
REFUSED = frozenset({USED_UP, 503})
JITTER = random.SystemRandom()
"""Draws random delays, and leaves the state of the user's ``random`` alone."""
T = TypeVar("T")


class Refusal(NamedTuple):
    """The refusal of a request that may be repeated."""

    after_s: float
    """The seconds after which it may be repeated."""
    is_own_quota: bool = False
    """Whether memory or sessions of the user's own are too many."""


def refusal(status: int, headers: Mapping[str, str], body: bytes | memoryview) -> Refusal | None:
    """The refusal in an answer; None if the request was not refused, or must not be repeated.

    A date in ``Retry-After``, which our servers never send, counts as one second.
    """
    asked = headers.get("retry-after")
    if status not in REFUSED or asked is None:
        return None
    try:
        problem = json.loads(bytes(body))
    except ValueError:
        problem = None
    found = problem if isinstance(problem, dict) else {}
    if "sequence" in found:  # its number is used up: it has been recorded with this answer
        return None
    own = status == USED_UP and found.get("quota") in ("memory", "sessions")
    return Refusal(float(asked) if asked.isdecimal() else 1.0, own)


def repeated(attempt: Callable[[], T], refused: Callable[[T], Refusal | None], where: str, seconds: float) -> T:
    """Return the result of ``attempt()``, repeated as long as ``refused(result)`` is not None.

    It is repeated for at most ``seconds``, or at most ``QUOTA_S`` seconds if a quota of the user's own is used up. The
    pauses are at least as long as the refusal says, and longer by a random time that grows exponentially. While it
    waits, a progress line says so.
    """
    begun, found, most_further = time.monotonic(), attempt(), FIRST_S
    if refused(found) is None:
        return found
    with progress.waiting(f"{where} is busy, waiting"):
        while (refusal := refused(found)) is not None:
            delay = refusal.after_s + JITTER.uniform(0.0, most_further)
            most = min(seconds, QUOTA_S) if refusal.is_own_quota else seconds
            if time.monotonic() - begun + delay >= most:
                break
            time.sleep(delay)
            most_further = min(MAX_S, 2 * most_further)
            found = attempt()
    return found
