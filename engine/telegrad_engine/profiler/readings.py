"""The results of a profile: events and averages, as tables, traces and data."""

from __future__ import annotations

import ast
import gzip
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from .recorder import FunctionEvent, Recorder, Totals


class Readings:
    """The results of a recorder so far, with the interface of ``torch.profiler.profile``."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @property
    def size(self) -> int:
        """The number of events."""
        return len(self._recorder.events)

    def events(self) -> EventList:
        """The first ``max_events`` ranges that ended, in the order in which they began."""
        return EventList(sorted(self._recorder.events, key=lambda event: event.id))

    def key_averages(self, group_by_input_shape: bool = False) -> AveragedEvents:
        """Average the ranges by name, or by name and input shapes.

        Shapes are known if the profile was made with ``record_shapes``.
        """
        return AveragedEvents.of(self._recorder, group_by_input_shape)

    def total_average(self) -> FunctionEventAvg:
        """The totals of all ranges."""
        return self.key_averages().total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """The total time in ranges in microseconds, counting nested ranges once."""
        return self.key_averages().self_cpu_time_total

    def table(self, **options: Any) -> str:
        """The averages as a table; see :meth:`AveragedEvents.table`."""
        return self.key_averages().table(**options)

    def export_chrome_trace(self, path: str | Path) -> None:
        """Write the events as a Chrome trace, for Perfetto or chrome://tracing; gzipped if named ``*.gz``."""
        export_trace(self.events(), Path(path))

    def as_dict(self, group_by_input_shape: bool = False) -> dict[str, Any]:
        """The averages as JSON data with times in microseconds, sorted by self time in descending order."""
        averages = self.key_averages(group_by_input_shape)
        averages.sort(key=lambda average: -average.self_cpu_time_total)
        return {
            "self_cpu_time_total_us": averages.self_cpu_time_total,
            "events": sum(average.count for average in averages),
            "events_dropped": self._recorder.dropped,
            "averages": [average.as_dict() for average in averages],
        }

    def to_json(self, group_by_input_shape: bool = False) -> str:
        """:meth:`as_dict` as JSON text."""
        return json.dumps(self.as_dict(group_by_input_shape))


# As data, to read a profile where it was not recorded -----------------------------------------
#
# Times are in nanoseconds, so that no precision is lost; those of events are relative to the start of the profile.

EVENT = ("id", "name", "category", "input_shapes", "thread", "start_ns", "end_ns", "bytes")
"""The attributes of an event that its data has under the same names."""


def to_data(readings: Readings, events: bool) -> dict[str, Any]:
    """Return a profile's totals so far, with its events if ``events`` is True."""
    recorder = readings._recorder
    return {
        "record_shapes": recorder.shapes,
        "profile_memory": recorder.memory,
        "totals": [
            {"name": name, "category": category, "input_shapes": shapes}
            | {field: getattr(totals, field) for field in Totals.__slots__}
            for (name, category, shapes), totals in recorder.totals.items()
        ],
        "events": [_event(event) for event in readings.events()] if events else [],
        "events_dropped": recorder.dropped,
    }


def _event(event: FunctionEvent) -> dict[str, Any]:
    return {name: getattr(event, name) for name in EVENT} | {
        "parent": None if event.cpu_parent is None else event.cpu_parent.id,
        "inner_ns": event.total_ns - event.self_ns,
        "inner_bytes": event.bytes - event.self_bytes,
    }


def from_data(data: dict[str, Any]) -> Recorder:
    """Rebuild the recorder of a profile that was recorded elsewhere."""
    recorder = Recorder(shapes=data["record_shapes"], memory=data["profile_memory"], stacks=False, max_events=0)
    recorder.dropped = data["events_dropped"]
    for entry in data["totals"]:
        totals = recorder.totals[entry["name"], entry["category"], entry["input_shapes"]] = Totals()
        for field in Totals.__slots__:
            setattr(totals, field, entry[field])
    known: dict[int, FunctionEvent] = {}
    for entry in data["events"]:
        event = FunctionEvent(entry["id"], entry["name"], entry["category"], entry["input_shapes"], [])
        event.cpu_parent = known.get(entry["parent"])
        event.thread, event.start_ns, event.end_ns = entry["thread"], entry["start_ns"], entry["end_ns"]
        event.total_ns, event.bytes = event.end_ns - event.start_ns, entry["bytes"]
        event.self_ns, event.self_bytes = event.total_ns - entry["inner_ns"], event.bytes - entry["inner_bytes"]
        known[event.id] = event
        recorder.events.append(event)
    return recorder


CATEGORIES = {"op": "cpu_op", "backward": "cpu_op", "range": "user_annotation", "verb": "user_annotation"}
"""torch's names of the event categories, by which viewers colour and filter events."""


def export_trace(events: Sequence[FunctionEvent], path: Path) -> None:
    """Write events in the Chrome trace event format, gzipped if the path ends in ``.gz``.

    The format: complete events (``ph`` is ``X``) with ``ts`` and ``dur`` in microseconds, and metadata events (``M``)
    that name the process and its threads.
    """
    text = json.dumps(
        {
            "schemaVersion": 1,
            "displayTimeUnit": "ms",
            "traceEvents": [*_names(events), *map(_complete, events)],
        }
    )
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)


def _names(events: Sequence[FunctionEvent]) -> Iterator[dict[str, Any]]:
    pid = os.getpid()
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": "telegrad"}}
    for thread in sorted({event.thread for event in events}):
        name = f"thread {thread}"
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": thread, "ts": 0, "args": {"name": name}}


def _complete(event: FunctionEvent) -> dict[str, Any]:
    args: dict[str, Any] = {"External id": event.id}
    if event.input_shapes:
        args["Input Dims"] = event.input_shapes
    if event.bytes:
        args["Bytes"] = event.bytes
    if event.stack:
        args["Call stack"] = ";".join(event.stack)
    return {
        "ph": "X",
        "cat": CATEGORIES[event.category],
        "name": event.name,
        "pid": os.getpid(),
        "tid": event.thread,
        "ts": event.start_ns / 1000,
        "dur": (event.end_ns - event.start_ns) / 1000,
        "args": args,
    }


GAP = "  "
NARROWEST = 12


def render(columns: Mapping[str, Sequence[str]], header: str | None, footer: str) -> str:
    """Format a table with right-aligned columns, each as wide as its title and its cells, and a footer line."""
    widths = [max(NARROWEST, len(title), *map(len, cells)) if cells else NARROWEST for title, cells in columns.items()]
    rule = GAP.join("-" * width for width in widths)
    rows = [[*columns], *zip(*columns.values(), strict=True)]
    title, *body = [GAP.join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    above = [header.center(len(rule)).rstrip()] if header is not None else []
    return "\n".join([*above, rule, title, rule, *body, rule, footer, ""])


class FunctionEventAvg(Totals):
    """The totals and averages of all ranges of one name, or of one name and input shapes.

    ``key`` is the name, ``category`` says what it is, and ``input_shapes`` are those of its inputs. Times are in
    microseconds.

    Examples:
        >>> with tg.profiler.profile() as profile:
        ...     _ = tg.ones(2).sum().item()
        >>> [event.count for event in profile.key_averages() if event.key == "aten::sum"]
        [1]
    """

    def __init__(self, key: str, category: str, input_shapes: list[Any]) -> None:
        super().__init__()
        self.key = key
        self.category = category
        self.input_shapes = input_shapes

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total:.3f}us "
            f"cpu_time={self.cpu_time:.3f}us input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage}>"
        )

    def as_dict(self) -> dict[str, Any]:
        """The totals as JSON data."""
        return {
            "key": self.key,
            "category": self.category,
            "input_shapes": self.input_shapes,
            "count": self.count,
            "self_cpu_time_us": self.self_cpu_time_total,
            "cpu_time_us": self.cpu_time_total,
            "self_cpu_memory_bytes": self.self_cpu_memory_usage,
            "cpu_memory_bytes": self.cpu_memory_usage,
        }


class AveragedEvents(list[FunctionEventAvg]):
    """The averages of a profile.

    ``averages`` are the averages; ``memory`` and ``shapes`` add columns to the table.

    Examples:
        >>> with tg.profiler.profile() as profile:
        ...     _ = tg.ones(2).sum().item()
        >>> type(profile.key_averages()).__name__
        'AveragedEvents'
    """

    def __init__(
        self, averages: Iterable[FunctionEventAvg] = (), *, memory: bool = False, shapes: bool = False
    ) -> None:
        super().__init__(averages)
        self._memory, self._shapes = memory, shapes

    @classmethod
    def of(cls, recorder: Recorder, by_shapes: bool) -> Self:
        """Average a recorder's ranges by name, or by name and input shapes."""
        averages: dict[tuple[str, str, str], FunctionEventAvg] = {}
        for (name, category, shapes), totals in recorder.totals.items():
            key = (name, category, shapes if by_shapes else "")
            if key not in averages:
                averages[key] = FunctionEventAvg(name, category, ast.literal_eval(key[2]) if key[2] else [])
            averages[key].add(totals)
        return cls(averages.values(), memory=recorder.memory, shapes=by_shapes and recorder.shapes)

    def total_average(self) -> FunctionEventAvg:
        """The sum of all averages."""
        total = FunctionEventAvg("Total", "", [])
        for average in self:
            total.add(average)
        return total

    @property
    def self_cpu_time_total(self) -> float:
        """The total time in ranges in microseconds, counting nested ranges once."""
        return sum(average.self_cpu_time_total for average in self)

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_name_column_width: int = 55,
        header: str | None = None,
    ) -> str:
        """Format the averages as a table, sorted by ``sort_by`` in descending order.

        ``sort_by`` is an attribute: ``"self_cpu_time_total"``, ``"cpu_time_total"``, ``"cpu_time"``,
        ``"self_cpu_memory_usage"``, ``"cpu_memory_usage"``, ``"count"`` or ``"key"`` (ascending). At most ``row_limit``
        rows are shown, or all if it is -1. Raises AttributeError for another ``sort_by``.
        """
        rows: Sequence[FunctionEventAvg] = self
        if sort_by is not None:
            rows = sorted(self, key=lambda average: getattr(average, sort_by), reverse=sort_by != "key")
        rows = rows if row_limit < 0 else rows[:row_limit]
        whole = self.self_cpu_time_total
        columns = {
            "Name": [_shortened(row.key, max_name_column_width) for row in rows],
            "Self CPU %": [_share(row.self_cpu_time_total, whole) for row in rows],
            "Self CPU": [format_time(row.self_cpu_time_total) for row in rows],
            "CPU total %": [_share(row.cpu_time_total, whole) for row in rows],
            "CPU total": [format_time(row.cpu_time_total) for row in rows],
            "CPU time avg": [format_time(row.cpu_time) for row in rows],
        }
        if self._memory:
            columns["CPU Mem"] = [format_memory(row.cpu_memory_usage) for row in rows]
            columns["Self CPU Mem"] = [format_memory(row.self_cpu_memory_usage) for row in rows]
        columns["# of Calls"] = [str(row.count) for row in rows]
        if self._shapes:
            columns["Input Shapes"] = [_shortened(str(row.input_shapes), 80) for row in rows]
        return render(columns, header, f"Self CPU time total: {format_time(whole)}")


class EventList(list[FunctionEvent]):
    """The ranges of a profile, in the order in which they began.

    ``iterable`` has the ranges.

    Examples:
        >>> with tg.profiler.profile() as profile:
        ...     _ = tg.ones(2).sum().item()
        >>> type(profile.events()).__name__
        'EventList'
    """

    @property
    def self_cpu_time_total(self) -> float:
        """The total time in ranges in microseconds, counting nested ranges once."""
        return sum(event.self_cpu_time_total for event in self)


def format_time(microseconds: float) -> str:
    """Format a time in seconds, milliseconds or microseconds, such as ``1.234ms``."""
    if microseconds >= 1e6:
        return f"{microseconds / 1e6:.3f}s"
    return f"{microseconds / 1e3:.3f}ms" if microseconds >= 1e3 else f"{microseconds:.3f}us"


def format_memory(nbytes: int) -> str:
    """Format a size in units of 1024, such as ``1.50 KB``, with two decimals except for bytes."""
    for unit, factor in (("GB", 2**30), ("MB", 2**20), ("KB", 2**10)):
        if nbytes >= factor:
            return f"{nbytes / factor:.2f} {unit}"
    return f"{nbytes} B"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole if whole else 0.0:.2f}%"


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."
