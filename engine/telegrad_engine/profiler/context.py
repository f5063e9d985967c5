"""``profile`` and ``record_function``: what a user writes around code to see where its time goes."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Any, Self, TypeVar

from ..errors import InvalidOperation
from . import instrument, trace
from .averages import AveragedEvents, EventList, FunctionEventAvg
from .recorder import FunctionEvent, Recorder, active

_F = TypeVar("_F", bound=Callable[..., Any])


class ProfilerActivity(Enum):
    """What is timed: the host's work alone."""

    CPU = 0


class profile:
    """Records what the engine executes on this thread inside a ``with`` block, or from start to stop.

    An op is ``aten::`` and its name, a node of a backward pass its ``grad_fn``'s name, a session's
    verb ``telegrad::`` and its name. A range's time is the host's: on an accelerator, which computes
    behind the host's back, it is the time of the launch.

    ``activities`` has ``ProfilerActivity.CPU`` and may be left out. ``record_shapes`` keeps the input
    shapes, ``profile_memory`` the bytes of the arrays allocated, ``with_stack`` the lines of the
    user's code. The first ``max_events`` ranges are kept one by one; the averages have all of them.

    Unlike torch's, it may be entered again once it was left, and goes on adding up. Raises
    InvalidOperation if it is entered while it runs.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        max_events: int = 200_000,
    ) -> None:
        chosen = {ProfilerActivity.CPU} if activities is None else set(activities)
        assert chosen and all(isinstance(a, ProfilerActivity) for a in chosen), "No valid profiler activities found"
        self._recorder = Recorder(shapes=record_shapes, memory=profile_memory, stacks=with_stack, max_events=max_events)
        self._running = threading.Lock()
        self._outer: Recorder | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Record from now on. A profile that already runs on this thread rests meanwhile."""
        if not self._running.acquire(blocking=False):
            raise InvalidOperation("Profiler context manager is not reentrant")
        self._thread = threading.get_ident()
        self._outer, active.recorder = active.recorder, self._recorder
        instrument.install()

    def stop(self) -> None:
        """Record no more. Raises InvalidOperation if it does not run on this thread."""
        if not self._running.locked() or self._thread != threading.get_ident():
            raise InvalidOperation("Profiler is not running on this thread")
        instrument.uninstall()
        self._recorder.close_all()
        active.recorder, self._outer = self._outer, None
        self._running.release()

    def events(self) -> EventList:
        """Every range, in the order in which they began: the first ``max_events`` of them that ended."""
        return EventList(sorted(self._recorder.events, key=lambda event: event.id))

    def key_averages(self, group_by_input_shape: bool = False) -> AveragedEvents:
        """What the ranges of each name, or of each name and input shapes, add up to.

        Shapes are known if the profile was made with ``record_shapes``.
        """
        return AveragedEvents.of(self._recorder, group_by_input_shape)

    def total_average(self) -> FunctionEventAvg:
        """What all ranges add up to."""
        return self.key_averages().total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds spent in ranges, each moment counted once."""
        return self.key_averages().self_cpu_time_total

    def table(self, **options: Any) -> str:
        """The averages as a table; see :meth:`AveragedEvents.table`."""
        return self.key_averages().table(**options)

    def export_chrome_trace(self, path: str | Path) -> None:
        """Write the events as a Chrome trace, for Perfetto or chrome://tracing; gzipped if named ``*.gz``."""
        trace.export(self.events(), Path(path))

    def as_dict(self, group_by_input_shape: bool = False) -> dict[str, Any]:
        """The averages as JSON data, times in microseconds, the longest self time first."""
        averages = self.key_averages(group_by_input_shape)
        averages.sort(key=lambda average: -average.self_cpu_time_total)
        return {
            "self_cpu_time_total_us": averages.self_cpu_time_total,
            "events": sum(average.count for average in averages),
            "events_dropped": self._recorder.dropped,
            "averages": [average.as_dict() for average in averages],
        }

    def to_json(self, group_by_input_shape: bool = False) -> str:
        """:meth:`as_dict` as text."""
        return json.dumps(self.as_dict(group_by_input_shape))


class record_function:
    """A labelled range inside a ``with`` block or a decorated function; nothing where no profile runs."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args
        self._opened: list[tuple[Recorder, FunctionEvent] | None] = []

    def __enter__(self) -> Self:
        recorder = active.recorder
        self._opened.append(None if recorder is None else (recorder, recorder.open(self.name, "range")))
        return self

    def __exit__(self, *exc: object) -> None:
        opened = self._opened.pop()
        if opened is not None:
            recorder, event = opened
            recorder.close(event)

    def __call__(self, function: _F) -> _F:
        """Decorate: every call is a range."""

        @functools.wraps(function)
        def labelled(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return labelled  # type: ignore[return-value]
