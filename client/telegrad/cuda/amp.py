"""``telegrad.cuda.amp``: mixed precision under its old name, with torch's warning about it."""

from __future__ import annotations

import warnings
from typing import Any

from telegrad_engine.amp import GradScaler as _GradScaler
from telegrad_engine.amp import autocast as _autocast
from telegrad_engine.amp import custom_bwd, custom_fwd


def _warn(name: str) -> None:
    warnings.warn(
        f"`torch.cuda.amp.{name}(args...)` is deprecated. Please use `torch.amp.{name}('cuda', args...)` instead.",
        FutureWarning,
        stacklevel=3,
    )


class autocast(_autocast):
    """As :class:`telegrad.amp.autocast` for GPUs."""

    def __init__(self, enabled: bool = True, dtype: Any = None, cache_enabled: bool = True) -> None:
        _warn("autocast")
        super().__init__("cuda", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(_GradScaler):
    """As :class:`telegrad.amp.GradScaler` for GPUs."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        _warn("GradScaler")
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]
