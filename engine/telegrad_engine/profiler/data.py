"""Convert a profile to JSON data and back, to read a profile that was recorded elsewhere.

Times are in nanoseconds, so that no precision is lost; those of events are relative to the start of the profile.
"""

from __future__ import annotations

from typing import Any

from .readings import Readings
from .recorder import FunctionEvent, Recorder, Totals


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
    return {
        "id": event.id,
        "name": event.name,
        "category": event.category,
        "input_shapes": event.input_shapes,
        "parent": None if event.cpu_parent is None else event.cpu_parent.id,
        "thread": event.thread,
        "start_ns": event.start_ns,
        "end_ns": event.end_ns,
        "inner_ns": event.total_ns - event.self_ns,
        "bytes": event.bytes,
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
