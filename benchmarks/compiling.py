"""Sessions on servers, and how the rows that measure compiled programs get there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import telegrad as tg
from telegrad_service.launch import running_server

from .timing import Call, Unavailable

PLANNED, COMPILED = "planned_runs", "compiled_runs"
"""The ways to run as one executable, as a session reports them."""
TURNS, MAX_EAGER, MAX_S = 50, 0.1, 20.0
"""Warm until of the programs of so many turns no larger part runs eagerly, or for so many seconds."""


@contextmanager
def session(compile: bool = False) -> Iterator[tg.Session]:
    """A server on loopback and a session there, in which programs that recur are compiled if asked for."""
    with running_server() as url, tg.connect(url, compile=compile) as opened:
        yield opened


def settle(opened: tg.Session, turn: Call, *ways: str) -> None:
    """Take turns of a loop until the server has planned, or compiled, what it will of it.

    The server may find that a program runs faster one instruction at a time, and then does not use its executable.
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
    """Raise Unavailable, saying why, if nothing in a session has run compiled."""
    if not _runs(opened, [COMPILED])[1]:
        reasons = {str(report["reason"]) for report in opened.compiled() if report["reason"]}
        raise Unavailable(f"nothing was compiled: {'; '.join(sorted(reasons))}")


def _runs(opened: tg.Session, ways: Sequence[str]) -> tuple[int, int]:
    """How often programs ran that recur, and how often of these in one of the ways."""
    reports = opened.compiled()
    return sum(report["runs"] for report in reports), sum(report[way] for report in reports for way in ways)


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """What ``tg.compile`` makes of a function. Raises Unavailable where there is no such thing."""
    compile = getattr(tg, "compile", None)
    if compile is None:
        raise Unavailable("there is no tg.compile yet")
    result: Callable[..., Any] = compile(function)
    return result
