"""Parts of pages in Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc|doc|ref):`~?([^`]+)`")
"""A reference as docstrings write it."""


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; nothing if it has no rows."""
    lines = [" | ".join(cell(each) for each in row) for row in rows]
    if not lines:
        return ""
    return "\n".join(["| " + " | ".join(columns) + " |", "| --- " * len(columns) + "|", *(f"| {x} |" for x in lines)])


def cell(text: str) -> str:
    """A text in one cell of a table."""
    return " ".join(text.replace("|", "\\|").split())


def code(text: object) -> str:
    """A text as code within a line; nothing for an empty one."""
    shown = " ".join(str(text).split())
    fence = "``" if "`" in shown else "`"
    return f"{fence}{shown}{fence}" if shown else ""


def block(language: str, text: str) -> str:
    """A block of code."""
    return f"```{language}\n{text.rstrip()}\n```"


def prose(docstring: str) -> str:
    """A docstring as Markdown."""
    return ROLE.sub(lambda role: f"`{role[1]}`", docstring).strip()


def joined(*parts: str) -> str:
    """Paragraphs, tables and blocks, one below another; empty ones are left out."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def summary(entries: Iterable[tuple[str, str]]) -> str:
    """The navigation of a folder, from titles and the paths of pages."""
    return "".join(f"* [{title}]({path})\n" for title, path in entries)


def compact(value: Any) -> str:
    """A value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False)
