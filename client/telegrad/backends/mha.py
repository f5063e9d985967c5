"""``telegrad.backends.mha``: the fast path of attention in inference, which there is none of."""

from __future__ import annotations

from ..exclusions import attribute_of

_fastpath = True


def get_fastpath_enabled() -> bool:
    """What :func:`set_fastpath_enabled` was called with."""
    return _fastpath


def set_fastpath_enabled(value: bool) -> None:
    """Remember the setting; attention is computed in one way."""
    global _fastpath
    _fastpath = value


__getattr__ = attribute_of("backends.mha")
