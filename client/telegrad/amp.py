"""``telegrad.amp``: mixed precision. The client records the casts as ops, following the engine's autocast lists."""

from __future__ import annotations

from typing import Any

from telegrad_engine.amp import (
    GradScaler,
    autocast,
    clear_autocast_cache,
    custom_bwd,
    custom_fwd,
    get_autocast_dtype,
    is_autocast_cache_enabled,
    is_autocast_enabled,
)
from telegrad_engine.amp.autocast import DEFAULTS


def is_autocast_available(device_type: Any) -> bool:
    """Whether autocast supports this device type. Raises TypeError unless it is a string.

    ``device_type`` is the name.

    Examples:
        >>> tg.amp.is_autocast_available("cpu")
        True
    """
    if not isinstance(device_type, str):
        kind = type(device_type).__name__
        raise TypeError(f"is_autocast_available(): argument 'device_type' (position 1) must be str, not {kind}")
    return device_type in DEFAULTS


__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]
__all__ += ["clear_autocast_cache", "get_autocast_dtype"]
__all__ += ["is_autocast_available", "is_autocast_cache_enabled", "is_autocast_enabled"]
