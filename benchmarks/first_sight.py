"""New programs of 200 ops, each recorded, sent and run once, against torch in this process."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

import telegrad as tg

from .compiling import session
from .timing import Side, Timed

OPS, WARM_UP = 200, 10
Op = Callable[[Any, Any, Any], Any]
KINDS: tuple[Op, ...] = (
    lambda y, x, w: y * w,
    lambda y, x, w: y + x,
    lambda y, x, w: y - w,
    lambda y, x, w: y.tanh(),
    lambda y, x, w: y.sigmoid(),
    lambda y, x, w: y.relu(),
    lambda y, x, w: y.abs(),
    lambda y, x, w: y.square(),
)
"""Ops on 8x8 tensors. Squares grow, so each program bounds its values every few ops."""
BOUND_EVERY = 5


class Programs:
    """Calls that differ each time: random chains of ops."""

    def __init__(self, x: Any, w: Any) -> None:
        self._x, self._w = x, w
        self._random = random.Random(0)

    def _draw(self) -> list[Op]:
        ops = self._random.choices(KINDS, k=OPS)
        ops[BOUND_EVERY - 1 :: BOUND_EVERY] = [KINDS[3]] * (OPS // BOUND_EVERY)
        return ops

    def seconds(self, count: int) -> float:
        """Run ``count`` programs and return the seconds they took, from the first op to the value."""
        taken = 0.0
        for _ in range(count):
            ops, x, w = self._draw(), self._x, self._w
            start = time.perf_counter()
            y = x
            for op in ops:
                y = op(y, x, w)
            y.sum().item()
            taken += time.perf_counter() - start
        return taken


@contextmanager
def sides() -> Iterator[tuple[Side, Side]]:
    """The same programs, on a server and in torch."""
    a, b = np.random.default_rng(0).standard_normal((2, 8, 8)).astype(np.float32)
    with session():
        ours, theirs = Programs(tg.tensor(a), tg.tensor(b)), Programs(torch.tensor(a), torch.tensor(b))
        ours.seconds(WARM_UP)
        yield ours, theirs


SUITES = [
    Timed(
        f"first sight over loopback: programs of {OPS} ops that all differ, a value read each time",
        "torch eager in-process",
        2.0,
        sides,
        block=1,
        repeats=80,
    )
]
