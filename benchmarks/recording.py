"""What the SDK does without the server: how often a training loop talks to it, and what recording an op costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

import telegrad as tg

from .compiling import session
from .mlp_http import fresh, loop, network
from .timing import Counted, Side, Timed

STEPS, WARM_UP = 200, 20
NEVER = 10**9
OPS = 500
"""Fewer than are sent ahead: nothing but recording happens."""


def per_step(read_every: int, what: Callable[[tg.Session], int]) -> float:
    """How often something happens in a step."""
    with session() as opened:
        _, step = network(tg)
        turn = loop(step, fresh(tg), read_every)
        for _ in range(WARM_UP):
            turn()
        before = what(opened)
        for _ in range(STEPS):
            turn()
        return (what(opened) - before) / STEPS


def messages() -> float:
    """Programs sent a step, where each step's loss is read: more may not travel at once, nor may less."""
    return per_step(1, lambda opened: opened.requests)


def waits() -> float:
    """Answers waited for a step, where no loss is read."""
    return per_step(NEVER, lambda opened: opened.recorder.waits)


class Recording:
    """Small adds, recorded and not sent while the clock runs."""

    def __init__(self, opened: tg.Session, array: np.ndarray) -> None:
        self._session = opened
        self._x, self._w = tg.tensor(array, requires_grad=True), tg.tensor(array)

    def seconds(self, count: int) -> float:
        """How long recording took; what was recorded is sent when the clock has stopped."""
        taken = 0.0
        for _ in range(count):
            self._session.flush()
            x, w = self._x, self._w
            start = time.perf_counter()
            for _ in range(OPS):
                x = x + w
            taken += time.perf_counter() - start
        return taken


@contextmanager
def sides() -> Iterator[tuple[Side, Side]]:
    """Recorded adds, and NumPy's."""
    array = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)

    def added() -> None:
        x = array
        for _ in range(OPS):
            x = x + array

    with session() as opened:
        yield Recording(opened, array), added


SUITES = [
    Counted("messages per training step, loss read every step", "one a step", 1.0, 1.0, messages, "messages"),
    Counted("waits per training step, loss not read", "one a step", 0.0, 1.0, waits, "waits"),
    Timed(f"overhead of the SDK, {OPS} recorded adds of 8x8", "as many adds in NumPy", 8.0, sides),
]
