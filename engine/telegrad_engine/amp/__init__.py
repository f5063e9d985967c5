"""Automatic mixed precision, as in ``torch.amp``: autocast and gradient scaling."""

from .autocast import (
    autocast,
    clear_autocast_cache,
    custom_bwd,
    custom_fwd,
    get_autocast_dtype,
    is_autocast_cache_enabled,
    is_autocast_enabled,
)
from .scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]
__all__ += ["clear_autocast_cache", "get_autocast_dtype", "is_autocast_cache_enabled", "is_autocast_enabled"]
