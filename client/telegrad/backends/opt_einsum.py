"""``telegrad.backends.opt_einsum``: the order of contractions, which ``einsum`` chooses itself."""

from __future__ import annotations

from ..exclusions import attribute_of

enabled = False
strategy: str | None = None


def is_available() -> bool:
    """False: no session computes with it."""
    return False


def get_opt_einsum() -> None:
    """None: the package is not used."""
    return None


__getattr__ = attribute_of("backends.opt_einsum")
