"""Everyday loops against torch in this process: over loopback and in a session of this process.

A turn is one iteration of a loop (benchmarks/everyday). A number that the loop does not read itself is read after every
tenth turn. Both sides are warm after ten turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import torch

import telegrad as tg

from .compiling import session
from .everyday import LARGE, LOOPS, Loop
from .timing import Call, GeometricMean, Side, Timed

AGAINST = "torch eager in-process"
WARM_UP, READ_EVERY, REPEATS = 10, 10, 15
WORST, WORST_WITH_SIX_WAITS = 2.0, 4.0
Session = Callable[[], AbstractContextManager[Any]]


class Row(NamedTuple):
    """A loop to time, with the number of turns in a block."""

    name: str
    block: int = 10
    limit: float = WORST


ROWS = [
    Row("fresh batches"),
    Row("slices, 80 offsets"),
    Row("randperm and index"),
    Row("DataLoader, shuffled"),
    Row("KL weight"),
    Row("lr schedule through 0 and back"),
    Row(".item() before backward"),
    Row("accumulation"),
    Row("LSTM written out", block=8),  # each length once
    Row("early exit, six waits", limit=WORST_WITH_SIX_WAITS),
    Row("deep equilibrium", limit=WORST_WITH_SIX_WAITS),
    Row("Kalman filter", block=2, limit=2.9),
    Row("HMC", limit=3.15),
    Row("BatchNorm"),
    Row("gradient scaler and clipping"),
    Row("MAML"),
    Row("PINN"),
    Row("padded targets"),
]


def turns(loop: Loop, library: Any) -> Call:
    """Warm up a loop and return a call that runs one turn."""
    run, numbers = loop.start(library, LARGE), count(1)
    next(run)

    def turn() -> None:
        value = next(run)
        if next(numbers) % READ_EVERY == 0 and not isinstance(value, float):
            value.item()

    for _ in range(WARM_UP):
        turn()
    return turn


@contextmanager
def sides(loop: Loop, opened: Session) -> Iterator[tuple[Side, Side]]:
    """The loop in a session and in torch."""
    with opened():
        yield turns(loop, tg), turns(loop, torch)


def suites(where: str, opened: Session, mean: float) -> list[Timed | GeometricMean]:
    """A row for each loop, and one for their mean."""
    rows = [
        Timed(
            f"loops {where}: {row.name}",
            AGAINST,
            row.limit,
            partial(sides, LOOPS[row.name], opened),
            row.block,
            REPEATS,
        )
        for row in ROWS
    ]
    return [*rows, GeometricMean(f"loops {where}: geometric mean", AGAINST, mean, tuple(row.name for row in rows))]


SUITES = [
    *suites("over loopback", session, mean=1.2),
    *suites("local", partial(tg.connect, "local://"), mean=1.1),
]
