"""``telegrad.profiler``: the time and memory of each op in the session, as ``torch.profiler``.

The session records itself between two instructions. The client fetches the record when the profile ends, and shows it
with the engine's own classes. Times are the session's: they include neither recording on the client nor the network.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Self

from telegrad_engine.errors import InvalidOperation, TelegradError
from telegrad_engine.profiler import (
    AveragedEvents,
    EventList,
    FunctionEvent,
    FunctionEventAvg,
    ProfilerActivity,
    Readings,
    check_activities,
    from_data,
)
from telegrad_engine.profiler import record_function as engine_record_function
from telegrad_engine.profiler.recorder import Recorder as Ranges

from .sessions.session import current
from .tape.recorder import Recorder


class ProfilerAction(Enum):
    """The action of a profile in a step.

    Examples:
        >>> [action.name for action in tg.profiler.ProfilerAction]
        ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE']
    """

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3
    """Record, and call ``on_trace_ready`` when the step ends."""

    @property
    def records(self) -> bool:
        """Whether the action records."""
        return self in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


Schedule = Callable[[int], ProfilerAction]


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Schedule:
    """Return a schedule: ``skip_first``, then ``wait`` and ``warmup`` steps unrecorded and ``active`` steps recorded.

    The cycle of the last three runs ``repeat`` times, or forever if it is 0; with ``skip_first_wait`` the first cycle
    has no ``wait`` steps. Raises AssertionError for invalid numbers.

    Examples:
        >>> plan = tg.profiler.schedule(wait=1, warmup=1, active=2)
        >>> [plan(step).name for step in range(4)]
        ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE']
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


_profiled: Recorder | None = None
"""The recorder of the session that is being profiled, or None."""


class profile(Readings):
    """Record what the current session executes inside a ``with`` block, or from ``start`` to ``stop``.

    An op is recorded as ``aten::`` and its name, a node of a backward pass under its ``grad_fn``'s name, any other
    instruction as ``telegrad::`` and its name. ``record_shapes`` records the input shapes, ``profile_memory`` the bytes
    of allocated arrays. With a ``schedule`` only some of the steps, separated by ``step()``, are recorded.
    ``on_trace_ready`` is called with the profile when a record is complete. ``with_stack`` is ignored with a warning:
    the session does not know your lines. The first ``max_events`` ranges are kept individually; the averages cover all.
    Raises InvalidOperation if another profile is running. Starting a record takes no message, ending it takes two.

    Args:
        activities: Only the CPU.
        schedule: A function that gives the action of each step, such as ``schedule`` makes.
        on_trace_ready: A function that is called with the profile when a cycle ends.

    Examples:
        >>> with tg.profiler.profile(record_shapes=True) as profile:
        ...     _ = (tg.ones(2, 3) @ tg.ones(3, 4)).sum().item()
        >>> "aten::matmul" in [event.key for event in profile.key_averages()]
        True
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Schedule | None = None,
        on_trace_ready: Callable[[Any], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        max_events: int = 20_000,
    ) -> None:
        check_activities(activities)
        super().__init__(Ranges(shapes=record_shapes, memory=profile_memory, stacks=False, max_events=0))
        if with_stack:
            warnings.warn("with_stack is ignored: lines of code are not known where it is profiled", stacklevel=2)
        self._schedule = schedule
        self._on_trace_ready = on_trace_ready
        self._options = {"record_shapes": record_shapes, "profile_memory": profile_memory, "max_events": max_events}
        self._session: Recorder | None = None
        self._step: record_function | None = None
        self._running = False
        self.step_num = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        # An exception raised in the block matters more than an error of the profile.
        with contextlib.nullcontext() if kind is None else contextlib.suppress(TelegradError):
            self.stop()

    def start(self) -> None:
        """Start recording, now or at the step that the schedule sets."""
        if _profiled is not None and not _profiled.closed:
            raise InvalidOperation("Profiler context manager is not reentrant")
        self._running = True
        self._go_on()

    def step(self) -> None:
        """End a step of the profiled loop."""
        ended = None if self._schedule is None else self._schedule(self.step_num)
        self.step_num += 1
        if ended is None or not self._running:
            return
        self._end_range()
        if ended is ProfilerAction.RECORD_AND_SAVE:
            self._finish()
        self._go_on()

    def stop(self) -> None:
        """Stop recording and fetch the record. Raises InvalidOperation if the profile is not running."""
        if not self._running:
            raise InvalidOperation("Profiler is not running")
        self._running = False
        self._end_range()
        if self._session is not None:
            self._finish()

    def _go_on(self) -> None:
        """Record the next step if the schedule says so."""
        if self._schedule is not None and not self._schedule(self.step_num).records:
            return
        if self._session is None:
            global _profiled
            self._session = _profiled = current().recorder
            _profiled.emit("start_profile", (), (), self._options)
        if self._schedule is not None:
            self._step = record_function("ProfilerStep*").__enter__()

    def _end_range(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.__exit__()

    def _finish(self) -> None:
        """Fetch the record."""
        global _profiled
        session, self._session, _profiled = self._session, None, None
        assert session is not None, "there is a record to finish"
        session.emit("stop_profile")
        session.flush()
        self._recorder = from_data(session.transport.profile())
        if self._on_trace_ready is not None:
            self._on_trace_ready(self)


class record_function(engine_record_function):
    """A labelled range inside a ``with`` block or a decorated function; without effect while no profile runs.

    ``name`` is the label, and ``args`` is as in torch.

    Examples:
        >>> with tg.profiler.profile() as profile:
        ...     with tg.profiler.record_function("mine"):
        ...         _ = tg.ones(2).sum().item()
        >>> "mine" in [event.key for event in profile.key_averages()]
        True
    """

    def __enter__(self) -> Self:
        self._ranges = [*getattr(self, "_ranges", []), _profiled]
        if _profiled is not None:
            _profiled.emit("begin_range", (), (), {"name": self.name})
        return self

    def __exit__(self, *exc: object) -> None:
        began: Recorder | None = self._ranges.pop()
        if began is not None and began is _profiled:
            began.emit("end_range")


__all__ = ["AveragedEvents", "EventList", "FunctionEvent", "FunctionEventAvg"]
__all__ += ["ProfilerAction", "ProfilerActivity", "profile", "record_function", "schedule"]
