"""A training loop over loopback while a console watches its session, against the same loop while nobody does."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import telegrad as tg
from telegrad_service.launch import running_server

from .compiling import settle
from .mlp_http import fresh, loop, network
from .timing import Call, Side, Timed, Unavailable

SHARE = 0.98
"""The least pace of the watched loop, as a share of the other's."""
OPENING = 200
"""Steps that are not timed after the reader has begun: it reads a first picture, and a first step is observed."""


class Watched:
    """A call while another process reads what an open console reads."""

    def __init__(self, call: Call, reader: subprocess.Popen[str]) -> None:
        self._call, self._reader = call, reader

    def seconds(self, count: int) -> float:
        """Run ``count`` calls beside the reader and return the seconds they took."""
        self._tell("open")
        for _ in range(OPENING):
            self._call()
        begun = time.perf_counter()
        for _ in range(count):
            self._call()
        taken = time.perf_counter() - begun
        self._tell("closed")
        return taken

    def _tell(self, expected: str) -> None:
        assert self._reader.stdin is not None and self._reader.stdout is not None
        self._reader.stdin.write("\n")
        self._reader.stdin.flush()
        if self._reader.stdout.readline().strip() != expected:
            raise Unavailable("the reader of the session's events ended")


@contextmanager
def sides() -> Iterator[tuple[Side, Side]]:
    """Steps of one loop, watched and not."""
    with running_server() as url, tg.connect(url) as opened:
        turn = loop(network(tg)[1], fresh(tg), 1)
        settle(opened, turn)
        command = [sys.executable, "-m", "benchmarks.console_listener", url, opened.id]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
            try:
                yield Watched(turn, reader), turn
            finally:
                assert reader.stdin is not None
                reader.stdin.close()
                reader.wait()


SUITES = [
    Timed(
        "MLP 784-128-10 step over loopback, loss read every step, beside an open console",
        "without a console",
        1 / SHARE,
        sides,
        block=500,
        repeats=30,
        settled_s=0,
    )
]
