"""``telegrad.backends.mkldnn``: oneDNN, which no session computes with."""

from __future__ import annotations

from ..exclusions import attribute_of

enabled = True
deterministic = False
allow_tf32 = True


def is_available() -> bool:
    """False: no session computes with it."""
    return False


__getattr__ = attribute_of("backends.mkldnn")
