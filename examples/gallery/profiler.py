"""A profile counts and times operations, forward and backward, where they run: here or on the server."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from library import Library, fill, normal, run, show


def main(lib: Library) -> None:
    model = fill(lib, lib.nn.Linear(4, 3), 0)
    x = normal(lib, 1, 5, 4)
    with lib.profiler.profile(record_shapes=True) as profile:
        for _ in range(3):
            with lib.profiler.record_function("step"):
                loss = model(x).sigmoid().sum()
                loss.backward()
    show("loss", loss)
    averages = {average.key.rpartition(": ")[2]: average.count for average in profile.key_averages()}
    for name in ("step", "aten::sigmoid", "SigmoidBackward0", "SumBackward0"):
        print(f"{name}: {averages[name]} times")
    table = profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=5)
    print("the table has", [title for title in ("Name", "Self CPU", "# of Calls") if title in table])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    print("steps in the trace:", sum(event["name"] == "step" and event["ph"] == "X" for event in events))


if __name__ == "__main__":
    run(main)
