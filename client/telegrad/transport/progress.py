"""A progress bar of tqdm's, on the terminal or in a notebook, for transfers and waits that take longer than a moment.

On a terminal it is written to stderr, beside the bars of the user's own loops. It is not written to a file or a pipe.
``TELEGRAD_PROGRESS=0`` turns it off, and ``1`` turns it on everywhere.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

AFTER_S = 2.0
"""Shorter operations show no progress."""
EVERY_S = 0.2
MIB = 2**20
LARGE = MIB
"""Transfers of fewer bytes show no progress."""
_WAIT = "{desc}, {elapsed}"
"""The format of a wait of unknown length."""


def wanted() -> bool:
    """Whether progress is shown."""
    choice = os.environ.get("TELEGRAD_PROGRESS")
    if choice in ("0", "1"):
        return choice == "1"
    return "ipykernel" in sys.modules or bool(getattr(sys.stderr, "isatty", bool)())


class Bar:
    """The progress of one operation: its duration, and how many of ``total`` bytes are done if that is known."""

    def __init__(self, what: str, total: int | None = None) -> None:
        self.what, self.total = what, total
        self._begun = self._drawn = time.monotonic()
        self._bar: Any = None

    def update(self, done: int = 0) -> None:
        """Draw the bar, unless it is too early or it was drawn just now; ``done`` counts bytes."""
        now = time.monotonic()
        if now - self._begun < AFTER_S or (self._bar is not None and now - self._drawn < EVERY_S):
            return
        if self._bar is None:
            self._bar = _tqdm()(
                desc=f"telegrad: {self.what}",
                total=self.total,
                bar_format=_WAIT if self.total is None else None,
                unit="B",
                unit_scale=True,
                unit_divisor=1024,
                dynamic_ncols=True,
                leave=False,
            )
            self._bar.start_t -= now - self._begun
        self._drawn, self._bar.n = now, done
        self._bar.refresh()

    def close(self) -> None:
        """Erase the bar."""
        if self._bar is not None:
            self._bar.close()


def _tqdm() -> Any:
    """The class of bars that suits the terminal or notebook; imported here, as most processes never need it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in a notebook without ipywidgets it is a line of text, which is fine
        from tqdm.auto import tqdm
    return tqdm


@contextmanager
def moving(what: str, size: int, watched: bool) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block moves ``size`` bytes and reports to the yielded function how many are done."""
    if not watched or size < LARGE:
        yield lambda done: None
        return
    bar = Bar(what, size)
    try:
        yield bar.update
    finally:
        bar.close()


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show a bar while the block waits in a call that reports no progress."""
    if not wanted():
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_tick, args=(Bar(what), done), name="telegrad-progress", daemon=True)
    try:
        thread.start()  # where Ctrl-C may arrive
        yield
    finally:
        done.set()
        if thread.is_alive():
            thread.join()


def _tick(bar: Bar, done: threading.Event) -> None:
    while not done.wait(EVERY_S):
        bar.update()
    bar.close()
