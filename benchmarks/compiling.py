"""Sessions for benchmarks, and their warm-up until programs are planned."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import telegrad as tg
from telegrad_service.launch import running_server

from .timing import Call, Unavailable

TURNS, MAX_EAGER, MAX_S = 50, 0.1, 20.0
"""A loop is warm when at most this share of the programs of this many turns ran eagerly, or after this many seconds."""


@contextmanager
def session() -> Iterator[tg.Session]:
    """A session on a new loopback server."""
    with running_server() as url, tg.connect(url) as opened:
        yield opened


def settle(opened: tg.Session, turn: Call) -> None:
    """Run turns of a loop until most of its programs run planned, or for ``MAX_S`` seconds.

    The server does not use a plan if the program runs faster one instruction at a time.
    """
    deadline = time.monotonic() + MAX_S
    while time.monotonic() < deadline:
        before = _runs(opened)
        for _ in range(TURNS):
            turn()
        runs, planned = (now - then for now, then in zip(_runs(opened), before, strict=True))
        if runs - planned <= MAX_EAGER * runs:
            break


def _runs(opened: tg.Session) -> tuple[int, int]:
    """The number of runs of recurring programs, and how many of them were planned."""
    reports = opened.compiled()
    return sum(report["runs"] for report in reports), sum(report["planned_runs"] for report in reports)


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``tg.compile(function)``. Raises Unavailable if there is no ``tg.compile``."""
    compile = getattr(tg, "compile", None)
    if compile is None:
        raise Unavailable("there is no tg.compile yet")
    result: Callable[..., Any] = compile(function)
    return result
