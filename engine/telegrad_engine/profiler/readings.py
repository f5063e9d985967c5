"""The results of a profile: events and averages, as tables, traces and data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from . import trace
from .averages import AveragedEvents, EventList, FunctionEventAvg
from .recorder import Recorder


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
