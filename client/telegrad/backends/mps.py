"""``telegrad.backends.mps``: Apple's GPUs, which no session computes on."""

from __future__ import annotations


def is_available() -> bool:
    """False: no session computes with it."""
    return False


def is_built() -> bool:
    """False: there is no kernel for them."""
    return False
