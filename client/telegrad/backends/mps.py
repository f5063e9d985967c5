"""``telegrad.backends.mps``: Apple's GPUs, which no session computes on."""

from __future__ import annotations

from ..exclusions import attribute_of


def is_available() -> bool:
    """False: no session computes with it."""
    return False


def is_built() -> bool:
    """False: there is no kernel for them."""
    return False


__getattr__ = attribute_of("backends.mps")
