"""Sessions for benchmarks, and their warm-up until programs are planned or compiled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import telegrad as tg
from telegrad_service.launch import running_server

from .timing import Call, Unavailable

PLANNED, COMPILED = "planned_runs", "compiled_runs"
"""The fields of a session's report that count planned and compiled runs."""
TURNS, MAX_EAGER, MAX_S = 50, 0.1, 20.0
"""A loop is warm when at most this share of the programs of this many turns ran eagerly, or after this many seconds."""


@contextmanager
def session(compile: bool = False) -> Iterator[tg.Session]:
    """A session on a new loopback server, which compiles recurring programs if ``compile`` is true."""
    with running_server() as url, tg.connect(url, compile=compile) as opened:
        yield opened


def settle(opened: tg.Session, turn: Call, *ways: str) -> None:
    """Run turns of a loop until most of its programs run planned or compiled, or for ``MAX_S`` seconds.

    The server does not use an executable if the program runs faster one instruction at a time.
    """
    deadline = time.monotonic() + MAX_S
    while time.monotonic() < deadline:
        before = _runs(opened, ways)
        for _ in range(TURNS):
            turn()
        runs, as_one = (now - then for now, then in zip(_runs(opened, ways), before, strict=True))
        if runs - as_one <= MAX_EAGER * runs:
            break


def need_compiled(opened: tg.Session) -> None:
    """Raise Unavailable, with the reasons, if no program of a session has run compiled."""
    if not _runs(opened, [COMPILED])[1]:
        reasons = {str(report["reason"]) for report in opened.compiled() if report["reason"]}
        raise Unavailable(f"nothing was compiled: {'; '.join(sorted(reasons))}")


def _runs(opened: tg.Session, ways: Sequence[str]) -> tuple[int, int]:
    """The number of runs of recurring programs, and how many of them ran in one of the ``ways``."""
    reports = opened.compiled()
    return sum(report["runs"] for report in reports), sum(report[way] for report in reports for way in ways)


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``tg.compile(function)``. Raises Unavailable if there is no ``tg.compile``."""
    compile = getattr(tg, "compile", None)
    if compile is None:
        raise Unavailable("there is no tg.compile yet")
    result: Callable[..., Any] = compile(function)
    return result
