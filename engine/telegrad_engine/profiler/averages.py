"""Events of a profile, their averages and the table of averages."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from .recorder import FunctionEvent, Recorder, Totals

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
    """The totals and averages of all ranges of one name, or of one name and input shapes."""

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
    """The averages of a profile."""

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
    """The ranges of a profile, in the order in which they began."""

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
