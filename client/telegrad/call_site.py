"""The user's line that recorded an instruction: cheap to note, and formatted only when an error needs it."""

from __future__ import annotations

import sys
from types import CodeType
from typing import NamedTuple

OURS = ("telegrad.", "telegrad_engine.")
_own: set[int] = set()
"""The ids of our modules' globals, which live as long as the process."""


class Line(NamedTuple):
    """A position in a function; the line number is computed only when it is printed."""

    code: CodeType
    offset: int

    def __str__(self) -> str:
        lines = (line for start, end, line in self.code.co_lines() if start <= self.offset < end)
        return f"{self.code.co_filename}:{next(lines, None) or self.code.co_firstlineno}"


def users_line() -> Line:
    """Return the innermost line on the stack outside this package."""
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
    """The number of frames from the caller up to that line, not counting frames that run the code ``without``."""
    line, frame, depth = users_line(), sys._getframe(1), 0
    while (frame.f_code is not line.code or frame.f_lasti != line.offset) and frame.f_back is not None:
        depth += frame.f_code is not without
        frame = frame.f_back
    return depth
