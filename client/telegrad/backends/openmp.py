"""``telegrad.backends.openmp``: threads inside torch's kernels, which are not used here."""

from __future__ import annotations

from ..exclusions import attribute_of


def is_available() -> bool:
    """False: no session computes with it."""
    return False


__getattr__ = attribute_of("backends.openmp")
