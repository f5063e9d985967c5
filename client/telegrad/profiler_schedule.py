"""Which steps of a loop a profile records: ``telegrad.profiler.schedule``."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from enum import Enum


class ProfilerAction(Enum):
    """What a profile does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3
    """Record, and hand over what was recorded when the step ends."""

    @property
    def records(self) -> bool:
        """Whether it records."""
        return self in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


Schedule = Callable[[int], ProfilerAction]


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Schedule:
    """After ``skip_first`` steps, ``wait`` steps and ``warmup`` steps without, then ``active`` steps with a record.

    This ``repeat`` times, or for ever if it is 0; with ``skip_first_wait`` the first time begins without waiting.
    Raises AssertionError for numbers that make no sense.
    """
    assert min(wait, warmup, repeat, skip_first) >= 0 and active > 0, (
        f"Invalid profiler schedule arguments. Got wait={wait} (need >= 0), warmup={warmup} (need >= 0), "
        f"active={active} (need > 0), repeat={repeat} (need >= 0), skip_first={skip_first} (need >= 0)."
    )
    if warmup == 0:
        warnings.warn("Profiler won't be using warmup, this can skew profiler results", stacklevel=2)
    length = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        if skip_first_wait:
            step += wait
        cycle, place = divmod(step, length)
        if (repeat and cycle >= repeat) or place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if place < length - 1 else ProfilerAction.RECORD_AND_SAVE

    return action
