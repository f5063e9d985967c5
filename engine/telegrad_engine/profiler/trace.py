"""The events of a profile in the Chrome trace event format, which Perfetto and chrome://tracing open.

The format: complete events (``ph`` is ``X``) with ``ts`` and ``dur`` in microseconds, and metadata events
(``M``) that name the process and its threads.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .recorder import FunctionEvent

CATEGORIES = {"op": "cpu_op", "backward": "cpu_op", "range": "user_annotation", "verb": "user_annotation"}
"""torch's names of the event categories, by which viewers colour and filter events."""


def export(events: Sequence[FunctionEvent], path: Path) -> None:
    """Write the trace, gzipped if the path ends in ``.gz``."""
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
