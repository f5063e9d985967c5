"""The chain of 200 small ops from the SDK over loopback, forward and backward, a value read each time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch

import telegrad as tg

from .chain import chain
from .compiling import session, settle, traced
from .timing import Call, Side, Timed


def value_and_gradient(tanh: Any, x: Any, w: Any) -> Any:
    """Return the sum of the chain's result; the gradient is in ``x.grad``."""
    x.grad = None
    total = chain(x, w, tanh).sum()
    total.backward()
    return total


def reading(function: Any, x: Any, w: Any) -> Call:
    """Return a call that computes and reads the value."""
    return lambda: function(x, w).item()


@contextmanager
def sides(compile: bool) -> Iterator[tuple[Side, Side]]:
    """The chain on a server and in torch."""
    a, b = np.random.default_rng(0).standard_normal((2, 8, 8)).astype(np.float32)
    theirs = partial(value_and_gradient, torch.tanh)
    x, w = torch.tensor(a, requires_grad=True), torch.tensor(b)
    with session() as opened:
        ours = partial(value_and_gradient, tg.tanh)
        call = reading(traced(ours) if compile else ours, tg.tensor(a, requires_grad=True), tg.tensor(b))
        settle(opened, call)
        yield call, reading(theirs, x, w)


WHAT = "chain of 200 small ops over loopback, forward and backward, a value read each time"
SUITES = [
    Timed(WHAT, "torch eager in-process", 1.2, lambda: sides(False)),
    Timed(f"{WHAT}, tg.compile", "torch eager in-process", 0.3, lambda: sides(True)),
]
