"""HTML for notebooks: properties, tables and preformatted text.

All text is escaped. There are no scripts and no external resources. Colours are those of the surrounding page, so that
the output suits light and dark ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice

MAX_ROWS = 200
"""The most rows of a table."""
_CELL = "padding:0 1.2em 0 0;text-align:left;border:none;vertical-align:top"
_ITEM = "display:inline-block;margin-right:1.2em"
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def block(kind: str, *parts: str) -> str:
    """Return parts of HTML as one element, whose class names its ``kind``."""
    return f'<div class="telegrad-{kind}">{"".join(parts)}</div>'


def properties(title: str, values: Iterable[tuple[str, str]]) -> str:
    """Return a title with names and values beside it."""
    found = "".join(
        f'<span style="{_ITEM}"><span style="opacity:0.6">{escape(name)}</span> {escape(value)}</span>'
        for name, value in values
    )
    return f'<div style="margin:0.2em 0"><b style="{_ITEM}">{escape(title)}</b>{found}</div>'


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with its first rows, and a sentence that says how many more there are."""
    found = iter(rows)
    shown = [*islice(found, MAX_ROWS)]
    omitted = sum(1 for _ in found)
    head = "".join(f'<th style="{_CELL};opacity:0.6;font-weight:normal">{escape(name)}</th>' for name in header)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in shown)
    rest = f"<div>{omitted} more rows are not shown</div>" if omitted else ""
    return f'<table style="border:none;border-collapse:collapse;margin:0.3em 0"><tr>{head}</tr>{body}</table>{rest}'


def _cell(text: str) -> str:
    return f'<td style="{_CELL}">{escape(text)}</td>'


def preformatted(text: str) -> str:
    """Return text as it is, in a monospaced font."""
    return f'<pre style="margin:0.3em 0;font-family:monospace">{escape(text)}</pre>'


def dimensions(shape: Iterable[int]) -> str:
    """Format a shape, as in ``2 × 3``."""
    return " × ".join(map(str, shape)) or "a single number"


def amount(nbytes: int) -> str:
    """Format a number of bytes with its unit."""
    power = min((max(nbytes, 1).bit_length() - 1) // 10, len(_UNITS) - 1)
    return f"{nbytes / 1024**power:.1f} {_UNITS[power]}" if power else f"{nbytes} bytes"
