"""The SDK's side of a training loop: how often it communicates with the server, and the cost of recording an op."""

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
"""Few enough that nothing is sent while they are recorded."""


def per_step(read_every: int, what: Callable[[tg.Session], int]) -> float:
    """The mean increase of the counter ``what`` per training step."""
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
    """Programs sent per step if each step's loss is read, which should be exactly one."""
    return per_step(1, lambda opened: opened.requests)


def waits() -> float:
    """Waits for answers per step if no loss is read."""
    return per_step(NEVER, lambda opened: opened.recorder.waits)


class Recording:
    """Small adds that are recorded, but not sent while they are timed."""

    def __init__(self, opened: tg.Session, array: np.ndarray) -> None:
        self._session = opened
        self._x, self._w = tg.tensor(array, requires_grad=True), tg.tensor(array)

    def seconds(self, count: int) -> float:
        """Return the seconds that recording took, without the time to send."""
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
    """Recorded adds, and NumPy's adds."""
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
