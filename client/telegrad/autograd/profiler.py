"""``telegrad.autograd.profiler``: the older interface of ``telegrad.profiler``."""

from __future__ import annotations

from typing import Any

from .. import profiler
from ..profiler import record_function


class profile(profiler.profile):
    """Like ``telegrad.profiler.profile``, but records nothing unless ``enabled``.

    The ``options`` are its arguments.

    Examples:
        >>> with tg.autograd.profiler.profile() as profile:
        ...     _ = tg.ones(2).sum().item()
        >>> [event.key for event in profile.key_averages() if event.key == "aten::sum"]
        ['aten::sum']
    """

    def __init__(self, enabled: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.enabled = enabled

    def start(self) -> None:
        """Start recording."""
        if self.enabled:
            super().start()

    def stop(self) -> None:
        """Stop recording and fetch the recorded events."""
        if self.enabled:
            super().stop()


__all__ = ["profile", "record_function"]
