"""``telegrad.backends.mha``: torch's fast path of attention in inference; attention has no fast path here."""

from __future__ import annotations

_fastpath = True


def get_fastpath_enabled() -> bool:
    """The value that :func:`set_fastpath_enabled` stored."""
    return _fastpath


def set_fastpath_enabled(value: bool) -> None:
    """Remember the setting; attention is computed in one way."""
    global _fastpath
    _fastpath = value
