"""Results as a table for people to read."""

from __future__ import annotations

from rich.table import Table

from .timing import Comparison, Result


def table(results: list[Result]) -> Table:
    """The results as a table."""
    shown = Table(title="Telegrad beside its peers: medians of interleaved repeats, one run")
    for heading in ("what", "against", "unit", "ours", "theirs", "ratio", "at most"):
        shown.add_column(heading, justify="left" if heading in ("what", "against", "unit") else "right")
    for r in results:
        figures = figures_of(r) if isinstance(r, Comparison) else (f"[yellow]{r.why}[/]", "", "", "")
        shown.add_row(r.name, r.against, *figures, "for scale" if r.limit is None else f"{r.limit:g}")
    return shown


def figures_of(r: Comparison) -> tuple[str, str, str, str]:
    """The table's cells for unit, ours, theirs and ratio."""
    style = "green" if r.holds else "red"
    return r.unit, f"{r.ours:.3f}", f"{r.theirs:.3f}", f"[{style}]{r.ratio:.2f}[/]"
