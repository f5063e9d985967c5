"""``telegrad.autograd.profiler``: the older way into ``telegrad.profiler``."""

from __future__ import annotations

from typing import Any

from .. import profiler
from ..profiler import record_function


class profile(profiler.profile):
    """As ``telegrad.profiler.profile``; nothing is recorded unless ``enabled``."""

    def __init__(self, enabled: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.enabled = enabled

    def start(self) -> None:
        """Record from now on."""
        if self.enabled:
            super().start()

    def stop(self) -> None:
        """Record no more, and bring back what was recorded."""
        if self.enabled:
            super().stop()


__all__ = ["profile", "record_function"]
