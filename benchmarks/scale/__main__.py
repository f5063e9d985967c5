"""``python -m benchmarks.scale``: simulate, and print what docs/explanation/scale.md shows.

``python -m benchmarks.scale measure`` measures the costs and writes them. ``compare`` kills workers of a real cluster,
and prints the times to resume beside those of a simulation of the same cluster.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from . import report
from .parameters import COMMITTED, Workload, costs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("action", nargs="?", choices=("simulate", "measure", "compare"), default="simulate")
    parser.add_argument("--costs", type=Path, default=COMMITTED, help="the file of measured costs")
    parser.add_argument("--workers", type=int, nargs="+", default=report.SIZES, help="the sizes that are simulated")
    chosen = parser.parse_args(arguments)
    if chosen.action == "measure":
        from .measure import write  # needs a server and a database

        return write(chosen.costs)
    if chosen.action == "compare":
        from . import comparison  # needs workers and a database

        print(*report.table(report.COMPARISON_HEADINGS, []), sep="\n")
        for seconds in (5.0, 1.0):
            times = comparison.real(seconds), comparison.simulated(costs(chosen.costs), seconds)
            print(report.comparison_row(seconds, *times), flush=True)
        return 0
    given, workload = costs(chosen.costs), Workload()
    print(report.per_worker(given, workload), "", sep="\n")
    print(*report.saturation(given, workload), "", sep="\n")
    print(*report.table(report.SIZE_HEADINGS, [], texts=3), sep="\n")
    results = []
    for name, result in report.sizes(given, workload, chosen.workers):
        print(report.size_row(name, result), flush=True)
        results.append((name, result))
    print("", *report.per_size(results), "", sep="\n")
    print(*report.table(report.RECOVERY_HEADINGS, []), *report.recoveries(given, workload), sep="\n")
    print("", *report.measured(chosen.costs), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
