"""``profile`` and ``record_function``: the profiler's user API."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Self, TypeVar

from ..context import observe, observer_of, stop_observing
from ..errors import InvalidOperation
from .observer import Timing
from .readings import Readings
from .recorder import FunctionEvent, Recorder

_F = TypeVar("_F", bound=Callable[..., Any])


class ProfilerActivity(Enum):
    """The activity that is timed: CPU work only."""

    CPU = 0


def check_activities(activities: Iterable[ProfilerActivity] | None) -> None:
    """Raise AssertionError, as torch does, for an empty or invalid collection of activities."""
    chosen = {ProfilerActivity.CPU} if activities is None else set(activities)
    assert chosen and all(isinstance(a, ProfilerActivity) for a in chosen), "No valid profiler activities found"


class profile(Readings):
    """Records what the engine executes on this thread inside a ``with`` block, or from start to stop.

    Ops are named ``aten::<name>``, nodes of a backward pass after their ``grad_fn``, and a session's verbs
    ``telegrad::<name>``. Times are the host's: on an accelerator, which computes asynchronously, they measure the
    launch.

    ``activities`` may only contain ``ProfilerActivity.CPU``. ``record_shapes`` records the input shapes,
    ``profile_memory`` the bytes of the allocated arrays, and ``with_stack`` the lines of the user's code. Only the
    first ``max_events`` ranges are kept as events; the averages include all ranges.

    Unlike torch's, a profile may be entered again after it was left, and then adds to its totals. Raises
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
        check_activities(activities)
        super().__init__(
            Recorder(shapes=record_shapes, memory=profile_memory, stacks=with_stack, max_events=max_events)
        )
        self._running = threading.Lock()
        self._timing = Timing(self._recorder)
        self._outer: Timing | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start or resume recording, and suspend a profile that already runs on this thread."""
        if not self._running.acquire(blocking=False):
            raise InvalidOperation("Profiler context manager is not reentrant")
        self._thread = threading.get_ident()
        self._outer = observer_of(Timing)
        if self._outer is not None:
            self._outer.resting = True
        observe(self._timing)

    def stop(self) -> None:
        """Stop recording and close all open ranges. Raises InvalidOperation if not running on this thread."""
        self.pause()
        self._recorder.close_all()

    def pause(self) -> None:
        """Stop recording until the next start. Open ranges stay open, and their time keeps running."""
        if not self._running.locked() or self._thread != threading.get_ident():
            raise InvalidOperation("Profiler is not running on this thread")
        stop_observing(self._timing)
        if self._outer is not None:
            self._outer.resting = False
        self._outer = None
        self._running.release()


class record_function:
    """A labelled range for a ``with`` block or a decorated function; does nothing if no profile runs."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args
        self._opened: list[tuple[Recorder, FunctionEvent] | None] = []

    def __enter__(self) -> Self:
        timing = observer_of(Timing)
        self._opened.append(None if timing is None else (timing.recorder, timing.recorder.open(self.name, "range")))
        return self

    def __exit__(self, *exc: object) -> None:
        opened = self._opened.pop()
        if opened is not None:
            recorder, event = opened
            recorder.close(event)

    def __call__(self, function: _F) -> _F:
        """Decorate ``function`` so that every call is a range."""

        @functools.wraps(function)
        def labelled(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.name, self.args):
                return function(*args, **kwargs)

        return labelled  # type: ignore[return-value]
