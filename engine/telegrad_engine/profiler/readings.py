"""The results of a profile: events and averages, as tables, traces and data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from . import trace
from .averages import AveragedEvents, EventList, FunctionEventAvg
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
        trace.export(self.events(), Path(path))

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
