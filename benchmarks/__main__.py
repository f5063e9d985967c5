"""``make bench``: every comparison in one run, as a table and as benchmarks/results.json."""

from __future__ import annotations

import json
import os
import platform
import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from . import chain, memory, mlp_http, nets
from .timing import Comparison

MODULES = (chain, nets, memory, mlp_http)
RESULTS = Path(__file__).parent / "results.json"


def measure(console: Console, wanted: str) -> list[Comparison]:
    """Run the comparisons whose name has ``wanted`` in it, one after the other."""
    results = []
    suites = [suite for module in MODULES for suite in module.SUITES if wanted.lower() in suite.name.lower()]
    with Progress(console=console, transient=True) as progress:
        for suite in suites:
            task = progress.add_task(f"{suite.name}, against {suite.against}", total=1)
            results.append(suite.measure(partial(progress.advance, task)))
            progress.remove_task(task)
    return results


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "processor": platform.processor() or platform.machine(),
        "cores": str(os.cpu_count()),
        "torch threads": str(torch.get_num_threads()),
    }


def table(results: list[Comparison]) -> Table:
    """The results as a person reads them."""
    shown = Table(title="Telegrad beside its peers: medians of interleaved repeats, one run")
    for heading in ("what", "against", "unit", "ours", "theirs", "ratio", "at most"):
        shown.add_column(heading, justify="left" if heading in ("what", "against", "unit") else "right")
    for r in results:
        style = "green" if r.holds else "red"
        shown.add_row(
            r.name,
            r.against,
            r.unit,
            f"{r.ours:.3f}",
            f"{r.theirs:.3f}",
            f"[{style}]{r.ratio:.2f}[/]",
            "for scale" if r.limit is None else f"{r.limit:g}",
        )
    return shown


def main(wanted: str = "") -> int:
    """Measure, print, write; 1 if a ratio is above its limit. ``python -m benchmarks lstm`` measures one thing."""
    console = Console(width=120 if not sys.stdout.isatty() else None)
    results = measure(console, wanted)
    console.print(table(results))
    console.print("  ".join(f"{k} {v}" for k, v in machine().items()), style="dim", highlight=False)
    record = {
        "machine": machine(),
        "results": [{**vars(r), "ratio": r.ratio, "holds": r.holds} for r in results],
    }
    if not wanted:
        RESULTS.write_text(json.dumps(record, indent=2) + "\n")
    return 0 if all(r.holds for r in results) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
