"""The user's line that recorded an instruction: cheap to note, spelled out only when something goes wrong."""

from __future__ import annotations

import sys
from types import CodeType
from typing import NamedTuple

OURS = ("telegrad.", "telegrad_engine.")
_own: set[int] = set()
"""The globals of our modules, by identity: they live as long as the process."""


class Line(NamedTuple):
    """A place in a function; the number of its line takes longer to work out than to record it."""

    code: CodeType
    offset: int

    def __str__(self) -> str:
        lines = (line for start, end, line in self.code.co_lines() if start <= self.offset < end)
        return f"{self.code.co_filename}:{next(lines, None) or self.code.co_firstlineno}"


def users_line() -> Line:
    """The innermost line on the stack that is not in this package."""
    frame = sys._getframe(1)
    while True:
        space = frame.f_globals
        if id(space) not in _own:
            if not space.get("__name__", "").startswith(OURS):
                break
            _own.add(id(space))
        if frame.f_back is None:
            break
        frame = frame.f_back
    return Line(frame.f_code, frame.f_lasti)


def depth_of_user(without: CodeType) -> int:
    """How many frames above the caller that line is, not counting frames that run the code ``without``."""
    line, frame, depth = users_line(), sys._getframe(1), 0
    while (frame.f_code is not line.code or frame.f_lasti != line.offset) and frame.f_back is not None:
        depth += frame.f_code is not without
        frame = frame.f_back
    return depth
