"""The open ranges of one thread as a stack, and the totals of the closed ones.

Totals are updated as ranges close, so a profile of any length uses bounded memory: only the first
``max_events`` ranges are kept as events.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter_ns
from types import FrameType
from typing import Any, NamedTuple

INNER = (str(Path(__file__).parents[1]), contextlib.__file__)
"""Path prefixes of stack frames that do not belong to the user."""
MAX_FRAMES = 32


class TimeRange(NamedTuple):
    """The start and end of a range, in microseconds since the profile began."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """The duration in microseconds."""
        return self.end - self.start


class Totals:
    """The time and memory of ranges: of one, or of all with one name (and the same input shapes).

    Times are in microseconds; memory is in bytes of allocated arrays, and 0 unless the profile was made with
    ``profile_memory``.
    """

    __slots__ = ("bytes", "count", "self_bytes", "self_ns", "total_ns")

    def __init__(self) -> None:
        self.count = self.total_ns = self.self_ns = self.bytes = self.self_bytes = 0

    def add(self, other: Totals) -> None:
        """Add the totals of ``other``."""
        self.count += other.count
        self.total_ns += other.total_ns
        self.self_ns += other.self_ns
        self.bytes += other.bytes
        self.self_bytes += other.self_bytes

    @property
    def cpu_time_total(self) -> float:
        """The total time of the ranges; a range inside another of the same name counts twice."""
        return self.total_ns / 1000

    @property
    def self_cpu_time_total(self) -> float:
        """The total time of the ranges, excluding the ranges inside them."""
        return self.self_ns / 1000

    @property
    def cpu_time(self) -> float:
        """The average time of a range."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def cpu_memory_usage(self) -> int:
        """The bytes allocated in the ranges."""
        return self.bytes

    @property
    def self_cpu_memory_usage(self) -> int:
        """The bytes allocated in the ranges, excluding the ranges inside them."""
        return self.self_bytes


class FunctionEvent(Totals):
    """One range: an op, a node of a backward pass, a user's label or a session's instruction.

    ``id`` is its number, ``name`` and ``category`` say what it is, ``input_shapes`` are those of its inputs, and
    ``stack`` are the user's lines. Times are in microseconds.

    Examples:
        >>> with tg.profiler.profile() as profile:
        ...     _ = tg.ones(2).sum().item()
        >>> "aten::sum" in [event.name for event in profile.events()]
        True
    """

    __slots__ = ("category", "cpu_parent", "end_ns", "id", "input_shapes", "name", "stack", "start_ns", "thread")

    def __init__(self, id: int, name: str, category: str, input_shapes: list[Any], stack: list[str]) -> None:
        self.count, self.total_ns, self.self_ns, self.bytes, self.self_bytes = 1, 0, 0, 0, 0  # without a call: hot
        self.id = id
        self.name = name
        self.category = category
        self.input_shapes = input_shapes
        self.stack = stack
        self.thread = threading.get_ident()
        self.cpu_parent: FunctionEvent | None = None
        self.start_ns = self.end_ns = 0

    def __repr__(self) -> str:
        return f"<FunctionEvent name={self.name} cpu_time={self.cpu_time_total:.3f}us>"

    @property
    def key(self) -> str:
        """The name of the range."""
        return self.name

    @property
    def time_range(self) -> TimeRange:
        """The start and end of the range."""
        return TimeRange(self.start_ns / 1000, self.end_ns / 1000)


class Recorder:
    """Records ranges as they open and close, on one thread at a time."""

    def __init__(self, *, shapes: bool, memory: bool, stacks: bool, max_events: int) -> None:
        self.shapes = shapes
        self.memory = memory
        self.stacks = stacks
        self.max_events = max_events
        self.began_ns = perf_counter_ns()
        self.events: list[FunctionEvent] = []
        self.dropped = 0
        """The number of ranges that are in the totals but not kept as events."""
        self.totals: dict[tuple[str, str, str], Totals] = {}
        """The totals by name, category and input shapes as text."""
        self._open: list[FunctionEvent] = []
        self._opened = 0
        self._counted: list[Any] = []

    def open(self, name: str, category: str, inputs: Sequence[Any] = ()) -> FunctionEvent:
        """Open a range inside the innermost open one."""
        self._opened += 1
        shapes = [shape_of(x) for x in inputs] if self.shapes else []
        event = FunctionEvent(self._opened, name, category, shapes, user_stack() if self.stacks else [])
        if self._open:
            event.cpu_parent = self._open[-1]
        self._open.append(event)
        event.start_ns = perf_counter_ns() - self.began_ns
        return event

    def close(self, event: FunctionEvent) -> None:
        """Close a range and any still open inside it; ignore a range that is already closed."""
        now = perf_counter_ns() - self.began_ns
        if event not in self._open:
            return
        while True:
            last = self._open.pop()
            last.end_ns = now
            self._account(last)
            if last is event:
                break
        if not self._open or event.category == "backward":
            self._counted.clear()

    def close_all(self) -> None:
        """Close all open ranges at the end of the profile."""
        if self._open:
            self.close(self._open[0])

    def discard(self, event: FunctionEvent) -> None:
        """Remove a range in which nothing was executed."""
        self._open.remove(event)

    def _account(self, event: FunctionEvent) -> None:
        event.total_ns = elapsed = event.end_ns - event.start_ns
        event.self_ns += elapsed
        parent = event.cpu_parent
        if parent is not None:
            parent.self_ns -= elapsed
            parent.bytes += event.bytes
        key = (event.name, event.category, str(event.input_shapes) if self.shapes else "")
        totals = self.totals.get(key)
        if totals is None:
            totals = self.totals[key] = Totals()
        totals.add(event)
        if len(self.events) < self.max_events:
            self.events.append(event)
        else:
            self.dropped += 1

    def allocated(self, arrays: Sequence[Any], given: Sequence[Any] = ()) -> None:
        """Count arrays that the innermost range allocated: those that own their memory and are not in ``given``.

        Each array is counted once, even if a kernel and the derivative that called it both return it.
        """
        if not self.memory or not self._open:
            return
        for array in arrays:
            if getattr(array, "base", None) is not None or not getattr(array, "nbytes", 0):
                continue
            if any(array is known for known in (*given, *self._counted)):
                continue
            self._counted.append(array)
            self._open[-1].bytes += array.nbytes
            self._open[-1].self_bytes += array.nbytes

    @contextlib.contextmanager
    def range(self, name: str, category: str, inputs: Sequence[Any] = ()) -> Iterator[None]:
        """Record a range for the duration of a ``with`` block."""
        event = self.open(name, category, inputs)
        try:
            yield
        finally:
            self.close(event)


def shape_of(value: Any) -> list[Any]:
    """The shape of a tensor or array, a list of shapes for a list of them, or an empty list."""
    if isinstance(value, (tuple, list)):
        return [shape_of(v) for v in value] if any(hasattr(v, "shape") for v in value) else []
    shape = getattr(value, "shape", None)
    return [] if shape is None else list(shape)


def user_stack() -> list[str]:
    """The stack's lines of user code, innermost first."""
    found: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(found) < MAX_FRAMES:
        code = frame.f_code
        if not code.co_filename.startswith(INNER):
            found.append(f"{code.co_filename}({frame.f_lineno}): {code.co_name}")
        frame = frame.f_back
    return found
