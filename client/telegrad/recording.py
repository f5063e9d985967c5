"""What was recorded: instructions, and the user's lines behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from telegrad_engine.program import Instruction

from .lines import Line

Written = tuple[list[Instruction], list[Line | None]]
"""Instructions, and the user's line behind each."""


class Recording:
    """What was recorded and is sent, and the bytes that it uploads. It is written out if something goes wrong."""

    def __init__(self, write: Callable[[], Written], nbytes: int = 0) -> None:
        self._write, self.nbytes = write, nbytes
        self.sent_at = 0.0
        """When it was sent, by the monotonic clock."""

    @cached_property
    def _written(self) -> Written:
        return self._write()

    @property
    def program(self) -> list[Instruction]:
        """The instructions."""
        return self._written[0]

    @property
    def lines(self) -> list[Line | None]:
        """The user's line behind each."""
        return self._written[1]


class Defined(NamedTuple):
    """A procedure that the session has: the user's lines behind its instructions, and how long its definition is."""

    lines: Sequence[Line]
    size: int


def joined(recordings: Sequence[Recording]) -> Recording:
    """Several as one, in their order."""

    def write() -> Written:
        programs, lines = zip(*[(each.program, each.lines) for each in recordings], strict=True)
        return list(chain.from_iterable(programs)), list(chain.from_iterable(lines))

    return Recording(write, sum(each.nbytes for each in recordings))
