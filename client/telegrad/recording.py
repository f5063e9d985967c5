"""What was recorded: instructions, and the user's lines behind them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from telegrad_engine.program import Instruction

from .lines import Line


class Recording(NamedTuple):
    """Instructions as they were recorded, the user's line behind each, and the bytes that they upload."""

    program: list[Instruction]
    lines: list[Line | None]
    nbytes: int = 0


class Defined(NamedTuple):
    """A procedure that the session has: the user's lines behind its instructions, and how long its definition is."""

    lines: Sequence[Line]
    size: int


def joined(recordings: Iterable[Recording]) -> Recording:
    """Several as one, in their order."""
    programs, lines, sizes = zip(*recordings, strict=True)
    return Recording(list(chain.from_iterable(programs)), list(chain.from_iterable(lines)), sum(sizes))
