"""The tables of docs/explanation/scale.md and of the pages beside it, as Markdown."""

from __future__ import annotations

import gc
import json
import statistics
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from . import sizing
from .counts import Counts
from .parameters import Costs, Layout, Workload
from .simulation import Cluster

SIZES = (1, 10, 100, 1000, 10_000)
RUNS = 1000
"""A cluster with fewer workers is simulated several times, so that a row is of at least so many workers."""
KINDS = ("workers", "gateways", "directories", "stores")
LAYOUTS: dict[str, Callable[[Costs, Workload, int], Layout]] = {
    "one of each": lambda costs, workload, workers: Layout(workers),
    "enough gateways": lambda costs, workload, workers: sizing.enough(costs, workload, workers, direct=False),
    "direct": lambda costs, workload, workers: sizing.enough(costs, workload, workers, direct=True),
}
RECOVERIES: dict[str, dict[str, float]] = {
    "lease of 5 s, `--snapshot-after-s 5`": {},
    "`--worker-timeout-s 3`": {"lease_s": 3.0},
    "`--snapshot-after-s 1`": {"snapshot_after_s": 1.0},
    "both": {"lease_s": 3.0, "snapshot_after_s": 1.0},
}
RECOVERY_WORKERS, RECOVERY_SHARE, RECOVERY_RUNS = 100, 0.1, 20
"""The size of the cluster in the table of recoveries, the share of its workers that fail at once, and its runs."""


class Result(NamedTuple):
    """The runs of one layout."""

    layout: Layout
    counts: list[Counts]
    utilization: dict[str, float]
    seconds: float
    """Of each run, the time in which rates are counted."""
    undisturbed_s: float
    """A step that meets no other work, on average."""

    def all(self, of: Callable[[Counts], Sequence[float]]) -> list[float]:
        """A list of all runs."""
        return [value for counts in self.counts for value in of(counts)]

    @property
    def steps_per_s(self) -> float:
        """Acknowledged steps per second, all sessions together."""
        return sum(counts.steps for counts in self.counts) / len(self.counts) / self.seconds


def simulated(costs: Costs, workload: Workload, layout: Layout, times: int) -> Result:
    """Simulate a layout ``times`` times."""
    with _without_collections():
        runs = [Cluster(costs, layout, workload, seed).run() for seed in range(times)]
    steps = [run.step_s for run in runs]
    share = workload.fresh_share
    return Result(
        layout,
        [run.counts for run in runs],
        {kind: statistics.fmean(run.utilization(kind) for run in runs) for kind in KINDS},
        workload.ends_s - workload.counts_from_s,
        share * steps[0][True] + (1.0 - share) * steps[0][False],
    )


@contextmanager
def _without_collections() -> Iterator[None]:
    """Keep Python from looking for garbage, which takes a third of the time with 80,000 sessions."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> list[str]:
    """A Markdown table, whose first columns are text and whose others are numbers."""
    ruler = ["---" if index < texts else "---:" for index in range(len(headings))]
    return [_row(headings), _row(ruler), *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def sizes(
    costs: Costs, workload: Workload, workers: Iterable[int] = SIZES, layouts: Iterable[str] = LAYOUTS
) -> Iterator[tuple[str, Result]]:
    """Simulate layouts in several sizes; yields the layout's name and the result."""
    for count in workers:
        for name in layouts:
            layout = LAYOUTS[name]
            yield name, simulated(costs, workload, layout(costs, workload, count), max(1, RUNS // count))


SIZE_HEADINGS = (
    "workers", "layout", "gateways, directories, stores", "steps/s", "use of workers, gateways, directories, stores",
    "late leases", "a step takes", "a new session takes", "a session resumes after",
)  # fmt: skip


def size_row(name: str, result: Result) -> str:
    """A row in the table of sizes."""
    layout = result.layout
    renewals = sum(counts.renewals for counts in result.counts)
    late = sum(counts.lapsed for counts in result.counts) / renewals if renewals else 1.0
    created = result.all(lambda counts: counts.create_s)
    steps = result.all(lambda counts: counts.step_times)
    cells = [
        f"{layout.workers:,}",
        name,
        f"{layout.gateways}, {layout.directories}, {layout.stores}",
        f"{result.steps_per_s:,.0f}",
        ", ".join(f"{result.utilization[kind]:.0%}" for kind in KINDS),
        f"{late:.0%}",
        f"{statistics.median(steps) / result.undisturbed_s:.1f}×" if steps else "–",
        f"{seconds(statistics.median(created))}" if created else "–",
        spread(result.all(lambda counts: counts.resume_s + counts.resume_hung_s)),
    ]
    return _row(cells)


def spread(values: Sequence[float]) -> str:
    """A median and the longest of some times."""
    return f"{statistics.median(values):.1f} s, at most {max(values):.1f}" if values else "–"


def seconds(value: float) -> str:
    """A time, with a unit that suits it."""
    return f"{value * 1e3:.0f} ms" if value < 1.0 else f"{value:.1f} s"


def recoveries(costs: Costs, workload: Workload, names: Iterable[str] = RECOVERIES) -> Iterator[str]:
    """Rows of the table of recoveries."""
    workload = replace(workload, incident_share=RECOVERY_SHARE)
    for name in names:
        enough = sizing.enough(costs, workload, RECOVERY_WORKERS, direct=True)
        result = simulated(costs, workload, replace(enough, **RECOVERIES[name]), RECOVERY_RUNS)  # type: ignore[arg-type]
        times = [
            result.all(lambda counts: counts.resume_s),
            result.all(lambda counts: counts.resume_hung_s),
            result.all(lambda counts: counts.move_s),
        ]
        refused = sum(counts.refused for counts in result.counts)
        yield _row([name, *map(spread, times), f"{refused}"])


RECOVERY_HEADINGS = (
    "setting", "the process ended", "the process hangs", "drained", "late answers, refused",
)  # fmt: skip


COMPARISON_HEADINGS = ("`--snapshot-after-s`", "measured", "simulated")


def comparison_row(seconds: float, real: Sequence[float], simulated: Sequence[float]) -> str:
    """A row of the table that compares times to resume with those of a real cluster."""
    return _row([f"{seconds:g}", spread(real), spread(simulated)])


# Where each resource saturates -------------------------------------------------------------------


def saturation(costs: Costs, workload: Workload) -> list[str]:
    """At how many workers one gateway process, one directory and one disk are used completely."""
    mixes = {"dataset uploaded once": 0.0, "the mix": workload.fresh_share, "a new batch each step": 1.0}
    loads = [replace(workload, fresh_share=share) for share in mixes.values()]
    durable = [replace(load, durable_share=1.0) for load in loads]

    def gateways_for(load: Workload) -> Callable[[int], Layout]:
        """As many gateways as the workers need, all of which read the list of workers from one directory."""

        def layout(workers: int) -> Layout:
            return replace(sizing.enough(costs, load, workers, direct=False), directories=1, scanners=None)

        return layout

    rows = {
        "one gateway process (one core)": [sizing.most(costs, load, "gateways", Layout) for load in loads],
        "the same, clients connect to workers": [
            sizing.most(costs, load, "gateways", partial(Layout, direct=True)) for load in loads
        ],
        "one PostgreSQL (two cores), as many gateways as needed": [
            sizing.most(costs, load, "directories", gateways_for(load)) for load in loads
        ],
        "the same, one gateway reads the list of workers for all": [
            sizing.most(costs, load, "directories", partial(Layout, scanners=1)) for load in loads
        ],
        "SQLite, which has one writer": [int(Layout(1).renew_s / costs.sqlite_compare_and_set_s)] * len(loads),
        "one disk, all sessions durable": [sizing.most(costs, load, "stores", Layout) for load in durable],
    }
    cells = [[name, *(f"{workers:,}" for workers in values)] for name, values in rows.items()]
    return table(("enough for so many workers", *mixes), cells)


def per_worker(costs: Costs, workload: Workload) -> str:
    """What the sessions of one worker do."""
    each = sizing.demand(costs, workload, Layout(1))
    text = (
        f"Of a worker's {workload.sessions_per_worker:g} sessions, {each.training:.1f} train at a time. They take "
        f"{each.steps:,.0f} steps a second: {each.worker:.0%} of a worker's core, {each.gateway:.1%} of a gateway's "
        f"core, {each.store:.1%} of a disk, and {each.directory / 2:.3%} of a directory with two cores."
    )
    return textwrap.fill(text, 125)


def per_size(results: Sequence[tuple[str, Result]]) -> list[str]:
    """Steps per second and worker by the number of workers, a row for each layout."""
    counts = sorted({result.layout.workers for _, result in results})
    paces = {name: [r.steps_per_s / r.layout.workers for n, r in results if n == name] for name in LAYOUTS}
    rows = [[name, *(f"{pace:,.0f}" for pace in found)] for name, found in paces.items()]
    return table(("steps/s and worker, for so many workers", *(f"{count:,}" for count in counts)), rows)


def measured(path: Path) -> list[str]:
    """A file of costs as a table."""
    found = json.loads(path.read_text())["costs"]
    rows = [[f"`{name}`", quantity(each["value"], each["unit"]), each["of"]] for name, each in found.items()]
    return table(("cost", "measured", "of"), rows, texts=3)


def quantity(value: float, unit: str) -> str:
    """A cost with three digits and a unit that suits it."""
    if unit.startswith("s"):
        for name, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
            if value * scale >= 1.0 or name == "µs":
                return f"{value * scale:.3g} {name}{unit[1:]}"
    return f"{value:,.0f} {unit}" if unit == "B" else f"{value:.3g}"
