"""``telegrad.backends.mkl``: Intel's math library, which no session computes with."""

from __future__ import annotations

from ..exclusions import attribute_of


def is_available() -> bool:
    """False: no session computes with it."""
    return False


__getattr__ = attribute_of("backends.mkl")
