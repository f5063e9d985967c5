"""Simulates Ctrl-C: raises KeyboardInterrupt before the n-th line of the SDK or the engine that a call runs."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

OURS = ("telegrad.", "telegrad_engine.")
UNTOUCHED = ("__del__", "release", "__enter__", "__exit__")
"""Functions that are not interrupted. Python ignores exceptions in finalizers, and a ``with`` statement interrupted on
entry to ``__exit__`` is not cleaned up, in torch either."""


@cache
def uninterrupted(file: str) -> frozenset[int]:
    """The lines before which Python handles no signals, because it does at calls and loops only.

    They are those of assignments without calls in ``finally`` blocks, and of ``with``, whose line comes once more
    before ``__exit__`` is called.
    """
    nodes = [*ast.walk(ast.parse(Path(file).read_text()))]
    ends = [end for node in nodes if isinstance(node, ast.Try) for end in node.finalbody if isinstance(end, ast.Assign)]
    found = [end for end in ends if not any(isinstance(node, ast.Call) for node in ast.walk(end))]
    return frozenset(each.lineno for each in (*found, *[node for node in nodes if isinstance(node, ast.With)]))


class Interrupter:
    """Calls functions and interrupts them before a given line of our modules."""

    def __init__(self) -> None:
        self.count = 0
        """The number of lines that the last call ran."""
        self._at: int | None = None

    def call(self, function: Callable[[], Any], at: int | None = None) -> bool:
        """Call a function and interrupt it before its ``at``-th line. Return whether that happened before it ended."""
        self.count, self._at = 0, at
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            function()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        name, function = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        return self._line if name.startswith(OURS) and function not in UNTOUCHED else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and frame.f_lineno not in uninterrupted(frame.f_code.co_filename):
            self.count += 1
            if self.count == self._at:
                raise KeyboardInterrupt
        return self._line
