"""A progress line on the terminal, or under a notebook's cell, for transfers that take longer than a moment.

It is written to stderr if that is a terminal or a notebook's, not if it is a file or a pipe. ``TELEGRAD_PROGRESS=0``
turns it off, and ``1`` turns it on everywhere.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

AFTER_S = 2.0
"""Shorter operations show no progress."""
EVERY_S = 0.2
MIB = 2**20
LARGE = MIB
"""Transfers of fewer bytes show no progress."""
_CLEAR = "\r\x1b[K"


def wanted() -> bool:
    """Whether progress is shown."""
    choice = os.environ.get("TELEGRAD_PROGRESS")
    if choice in ("0", "1"):
        return choice == "1"
    return "ipykernel" in sys.modules or bool(getattr(sys.stderr, "isatty", bool)())


class Line:
    """One progress line: the operation, its duration, and how much is done if that is known."""

    def __init__(self, what: str, total: int | None = None) -> None:
        self.what, self.total = what, total
        self._begun = self._written = time.monotonic()
        self._shown = False

    def update(self, done: int = 0) -> None:
        """Write the line, unless it is too early or the line was written just now; ``done`` counts bytes."""
        now = time.monotonic()
        if now - self._begun < AFTER_S or (self._shown and now - self._written < EVERY_S):
            return
        self._shown, self._written = True, now
        print(_CLEAR + self._text(done, now - self._begun), end="", file=sys.stderr, flush=True)

    def _text(self, done: int, seconds: float) -> str:
        if self.total is None or not done:
            return f"telegrad: {self.what}, {seconds:.0f} s"
        rate = done / max(seconds, 1e-3)
        amount = f"{done / MIB:.1f} of {self.total / MIB:.1f} MiB, {rate / MIB:.1f} MiB/s"
        return f"telegrad: {self.what}, {amount}, {(self.total - done) / rate:.0f} s left"

    def close(self) -> None:
        """Erase the line."""
        if self._shown:
            print(_CLEAR, end="", file=sys.stderr, flush=True)


@contextmanager
def moving(what: str, size: int, watched: bool) -> Iterator[Callable[[int], None]]:
    """Show a line while the block moves ``size`` bytes and reports to the yielded function how many are done."""
    if not watched or size < LARGE:
        yield lambda done: None
        return
    line = Line(what, size)
    try:
        yield line.update
    finally:
        line.close()


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show a line while the block waits in a call that reports no progress."""
    if not wanted():
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_tick, args=(Line(what), done), name="telegrad-progress", daemon=True)
    try:
        thread.start()  # where Ctrl-C may arrive
        yield
    finally:
        done.set()
        if thread.is_alive():
            thread.join()


def _tick(line: Line, done: threading.Event) -> None:
    while not done.wait(EVERY_S):
        line.update()
    line.close()
