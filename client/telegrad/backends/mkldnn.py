"""``telegrad.backends.mkldnn``: oneDNN, which no session computes with."""

from __future__ import annotations

enabled = True
deterministic = False
allow_tf32 = True


def is_available() -> bool:
    """False: no session computes with it."""
    return False
