"""A server to load, its memory, and the figures of a run."""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ..servers import peak_bytes, running

KIB, MIB = 2**10, 2**20


class Figure(NamedTuple):
    """One figure of a run, and the most that it may be."""

    name: str
    value: float
    unit: str
    most: float = math.inf

    @property
    def held(self) -> bool:
        """Whether it is within its bound."""
        return self.value <= self.most

    def __str__(self) -> str:
        bound = "" if self.most == math.inf else f"  at most {self.most:g}{'' if self.held else '  EXCEEDED'}"
        return f"{self.name:58} {self.value:10.2f} {self.unit:9}{bound}"


class Loaded(NamedTuple):
    """A running server."""

    url: str
    process: subprocess.Popen[str]

    def rss(self) -> int:
        """The bytes of memory that it takes."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def peak(self) -> int:
        """The most bytes that it took since :meth:`reset_peak`."""
        return peak_bytes(self.process)

    def reset_peak(self) -> int:
        """Forget the peak, and return the bytes of memory that it takes now."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        return self.rss()

    def settled(self, below: float = -math.inf, seconds: float = 5.0) -> int:
        """The bytes that it takes when that is ``below``, or ``seconds`` have passed."""
        deadline = time.monotonic() + seconds
        while (now := self.rss()) > below and time.monotonic() < deadline:
            time.sleep(0.1)
        return now


@contextmanager
def loaded(*flags: str) -> Iterator[Loaded]:
    """Run a server with these flags."""
    with running(*flags) as (url, process):
        yield Loaded(url, process)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of the values lies."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]
