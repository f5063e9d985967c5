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

from . import chain, mlp_http
from .timing import Comparison, compare

MODULES = (chain, mlp_http)
REPEATS = 40
RESULTS = Path(__file__).parent / "results.json"


def measure(console: Console) -> list[Comparison]:
    """Run the comparisons one after the other."""
    results = []
    with Progress(console=console, transient=True) as progress:
        for name, against, limit, sides in [suite for module in MODULES for suite in module.SUITES]:
            task = progress.add_task(name, total=REPEATS)
            with sides() as (ours, theirs):
                times = compare(ours, theirs, repeats=REPEATS, progress=partial(progress.advance, task))
            results.append(Comparison(name, against, limit, *times))
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
    for heading in ("what", "against", "ours ms", "theirs ms", "ratio", "at most"):
        shown.add_column(heading, justify="left" if heading in ("what", "against") else "right")
    for r in results:
        style = "green" if r.holds else "red"
        shown.add_row(
            r.name,
            r.against,
            f"{r.ours_ms:.3f}",
            f"{r.theirs_ms:.3f}",
            f"[{style}]{r.ratio:.2f}[/]",
            f"{r.limit:g}",
        )
    return shown


def main() -> int:
    """Measure, print, write; 1 if a ratio is above its limit."""
    console = Console(width=120 if not sys.stdout.isatty() else None)
    results = measure(console)
    console.print(table(results))
    console.print("  ".join(f"{k} {v}" for k, v in machine().items()), style="dim", highlight=False)
    record = {
        "machine": machine(),
        "results": [{**vars(r), "ratio": r.ratio, "holds": r.holds} for r in results],
    }
    RESULTS.write_text(json.dumps(record, indent=2) + "\n")
    return 0 if all(r.holds for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
