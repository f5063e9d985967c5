"""Ctrl-C at a chosen moment: a KeyboardInterrupt before the n-th line of ours that a call runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

OURS = ("telegrad.", "telegrad_engine.")
UNTOUCHED = ("__del__", "release", "__enter__", "__exit__")
"""Python swallows what a finalizer raises; and a ``with`` statement that is interrupted on its way into ``__exit__``
is not left, in torch as little as here."""


class Interrupter:
    """Calls functions, and interrupts them before one of the lines that they run of our modules."""

    def __init__(self) -> None:
        self.count = 0
        """How many lines the last call ran."""
        self._at: int | None = None

    def call(self, function: Callable[[], Any], at: int | None = None) -> bool:
        """Call a function; whether it was interrupted before its line of this number, and not done by then."""
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
        if event == "line":
            self.count += 1
            if self.count == self._at:
                raise KeyboardInterrupt
        return self._line
