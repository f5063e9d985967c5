"""``telegrad.amp``: mixed precision. The casts are recorded here, as ops; the engine's lists say which."""

from __future__ import annotations

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

__all__ = [
    "GradScaler",
    "autocast",
    "clear_autocast_cache",
    "custom_bwd",
    "custom_fwd",
    "get_autocast_dtype",
    "is_autocast_cache_enabled",
    "is_autocast_enabled",
]
