"""A training step over loopback in a durable session, whose journal has each program before it is answered, against one
in a session that is only in memory, of the same server."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any

import telegrad as tg
from telegrad_service.launch import running_server

from .compiling import settle
from .mlp_http import WHAT, Pairs, fresh, loop, network, resident_ours
from .timing import Call, Side, Timed

VOLATILE = "a session that is not durable"


@contextmanager
def sides(batches: Callable[[], Pairs], fsync: str) -> Iterator[tuple[Side, Side]]:
    """The step in a durable session and in another one, each in a context of its own."""
    with ExitStack() as ending:
        folder = ending.enter_context(tempfile.TemporaryDirectory())
        url = ending.enter_context(running_server(data_dir=folder, fsync=fsync))

        def turns(durable: bool) -> Call:
            context = copy_context()
            turn = context.run(_prepared, url, durable, batches, ending)
            return partial(context.run, turn)

        yield turns(True), turns(False)


def _prepared(url: str, durable: bool, batches: Callable[[], Pairs], ending: ExitStack) -> Call:
    opened = tg.connect(url, durable=durable)
    ending.callback(opened.close)
    turn = loop(network(tg)[1], batches(), 10)
    settle(opened, turn)
    return turn


def suite(how: str, limit: float | None, batches: Callable[[], Any], fsync: str = "everysec") -> Timed:
    """A row."""
    return Timed(f"durable {WHAT}, {how}", VOLATILE, limit, partial(sides, batches, fsync))


SUITES = [
    suite("fresh batch", 1.15, partial(fresh, tg)),
    suite("dataset uploaded once", 1.15, resident_ours),
    suite("dataset uploaded once, fsync before each answer", None, resident_ours, "always"),
]
