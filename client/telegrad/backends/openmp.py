"""``telegrad.backends.openmp``: threads inside torch's kernels, which are not used here."""

from __future__ import annotations


def is_available() -> bool:
    """False: no session computes with it."""
    return False
