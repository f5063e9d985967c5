"""A chain of 200 small ops, forward and backward, in the engine: what the tape itself costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

import telegrad_engine as engine

OPS = 200


def chain(x: Any, w: Any) -> None:
    """Four kinds of op on 8x8 tensors, 200 in all, and the gradient of their sum."""
    y = x
    for _ in range(OPS // 4):
        y = y * w
        y = y + x
        y = y.tanh()
        y = y - w
    y.sum().backward()
    x.grad = None


@contextmanager
def sides() -> Iterator[tuple[Callable[[], object], Callable[[], object]]]:
    """Ours and theirs, on the same values."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 8, 8)).astype(np.float32)
    x, w = engine.tensor(a, requires_grad=True), engine.tensor(b)
    torch_x, torch_w = torch.tensor(a, requires_grad=True), torch.tensor(b)
    yield lambda: chain(x, w), lambda: chain(torch_x, torch_w)


SUITES = [("chain of 200 small ops, forward and backward, in the engine", "torch eager", 1.2, sides)]
