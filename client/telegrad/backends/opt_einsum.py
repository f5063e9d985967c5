"""``telegrad.backends.opt_einsum``: the order of contractions, which ``einsum`` chooses itself."""

from __future__ import annotations

enabled = False
strategy: str | None = None


def is_available() -> bool:
    """False: no session computes with it."""
    return False


def get_opt_einsum() -> None:
    """None: the package is not used."""
    return None
