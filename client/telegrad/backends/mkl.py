"""``telegrad.backends.mkl``: Intel's math library, which no session computes with."""

from __future__ import annotations


def is_available() -> bool:
    """False: no session computes with it."""
    return False
