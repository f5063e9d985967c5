"""Columns of text as a table with ruled header and foot, as torch prints a profile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

GAP = "  "
NARROWEST = 12


class Column(NamedTuple):
    """A title and a cell for each row."""

    title: str
    cells: list[str]


def render(columns: Sequence[Column], header: str | None, footer: str) -> str:
    """The table, each column as wide as it needs, right-aligned, and a line of text beneath it."""
    widths = [max(NARROWEST, len(c.title), *map(len, c.cells)) if c.cells else NARROWEST for c in columns]
    rule = GAP.join("-" * width for width in widths)
    rows = [[c.title for c in columns], *([c.cells[i] for c in columns] for i in range(len(columns[0].cells)))]
    title, *body = [GAP.join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    above = [header.center(len(rule)).rstrip()] if header is not None else []
    return "\n".join([*above, rule, title, rule, *body, rule, footer, ""])
