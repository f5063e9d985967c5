"""``make bench``: every comparison in one run, as a table and as benchmarks/results.json.

``make bench ARGS=scale`` runs the simulation of ``benchmarks.scale`` instead.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from . import (
    authentication_http,
    chain,
    chain_http,
    cluster_http,
    console_http,
    durable_http,
    far_http,
    first_sight,
    float_operands,
    gradient_http,
    loops,
    memory,
    mlp_http,
    nets,
    recording,
    rest_http,
    sessions_http,
    transfers,
    wait_http,
)
from .machine import machine
from .report import table
from .scale.__main__ import main as simulate
from .timing import Comparison, GeometricMean, Result

MODULES = (
    chain,
    nets,
    memory,
    mlp_http,
    far_http,
    chain_http,
    durable_http,
    gradient_http,
    transfers,
    recording,
    wait_http,
    float_operands,
    first_sight,
    sessions_http,
    rest_http,
    authentication_http,
    cluster_http,
    console_http,
    loops,
)
RESULTS = Path(__file__).parent / "results.json"


def measure(console: Console, wanted: str) -> list[Result]:
    """Run the comparisons whose names or peers contain ``wanted``, one after the other.

    Raises SystemExit if there are none.
    """
    results: list[Result] = []
    every = [suite for module in MODULES for suite in module.SUITES]
    suites = [suite for suite in every if wanted.lower() in f"{suite.name}, against {suite.against}".lower()]
    if not suites:
        raise SystemExit(f"nothing that is measured has {wanted!r} in its name; `make bench` measures all of it")
    with Progress(console=console, transient=True) as progress:
        for suite in suites:
            if isinstance(suite, GeometricMean):
                results.append(suite.computed(results))
                continue
            task = progress.add_task(f"{suite.name}, against {suite.against}", total=1)
            results.append(suite.measure(partial(progress.advance, task)))
            progress.remove_task(task)
    return results


def data(r: Result) -> dict[str, object]:
    """A result as JSON data."""
    return {**vars(r), "ratio": r.ratio, "holds": r.holds} if isinstance(r, Comparison) else dict(vars(r))


def main(wanted: str = "") -> int:
    """Measure, print and write the results. Return 1 if a ratio exceeds its limit.

    ``python -m benchmarks lstm`` runs only the comparisons with that name. A comparison that cannot be measured is a
    row with the reason, not a failure.
    """
    console = Console(width=120 if not sys.stdout.isatty() else None)
    results = measure(console, wanted)
    console.print(table(results))
    console.print("  ".join(f"{k} {v}" for k, v in machine().items()), style="dim", highlight=False)
    record = {
        "machine": machine(),
        "results": [data(r) for r in results],
    }
    if not wanted:
        RESULTS.write_text(json.dumps(record, indent=2) + "\n")
    return 0 if all(r.holds for r in results if isinstance(r, Comparison)) else 1


if __name__ == "__main__":
    sys.exit(simulate(sys.argv[2:]) if sys.argv[1:2] == ["scale"] else main(" ".join(sys.argv[1:])))
