"""A training step over loopback with a Python float that changes in each step, against one with a constant float."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import telegrad as tg

from .compiling import session, settle
from .mlp_http import Step, fresh, loop
from .timing import Call, Side, Timed


def weighted(weights: Iterator[float]) -> Step:
    """The training step of a small network whose loss is multiplied by the next weight."""
    nn = tg.nn
    net = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = tg.optim.SGD(net.parameters(), lr=0.01)
    loss_function = nn.CrossEntropyLoss()

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_function(net(x), y) * next(weights)
        loss.backward()
        optimizer.step()
        return loss

    return step


def annealed() -> Iterator[float]:
    """Weights that are all different."""
    return (1 / (1 + i / 1000) for i in itertools.count())


@contextmanager
def sides() -> Iterator[tuple[Side, Side]]:
    """The step with changing and with constant weights, each with its own network, in one session."""
    with session() as opened:

        def turns(weights: Iterator[float]) -> Call:
            turn = loop(weighted(weights), fresh(tg), 10)
            settle(opened, turn)
            return turn

        yield turns(annealed()), turns(itertools.repeat(0.9))


SUITES = [
    Timed(
        "MLP 784-128-10 step over loopback, loss times a float that differs each time",
        "a float that stays the same",
        1.05,
        sides,
        block=50,
    )
]
