"""A chain of 200 small ops, forward and backward, in the engine, which measures the overhead of the tape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import autograd
import autograd.numpy
import mygrad
import numpy as np
import torch

import telegrad_engine as engine

from .timing import Call, Timed

OPS = 200


def chain(x: Any, w: Any, tanh: Callable[[Any], Any]) -> Any:
    """Four kinds of op on 8x8 tensors, 200 in all."""
    y = x
    for _ in range(OPS // 4):
        y = y * w
        y = y + x
        y = tanh(y)
        y = y - w
    return y


def backward(x: Any, w: Any, tanh: Callable[[Any], Any]) -> None:
    """Compute the chain and the gradient of its sum with respect to ``x``, then clear the gradient."""
    chain(x, w, tanh).sum().backward()
    x.grad = None


def _ours(a: Any, b: Any) -> Call:
    x, w = engine.tensor(a, requires_grad=True), engine.tensor(b)
    return lambda: backward(x, w, type(x).tanh)


def _torch(a: Any, b: Any) -> Call:
    x, w = torch.tensor(a, requires_grad=True), torch.tensor(b)
    return lambda: backward(x, w, torch.Tensor.tanh)


def _autograd(a: Any, b: Any) -> Call:
    np_ = autograd.numpy
    gradient = autograd.grad(lambda x: np_.sum(chain(x, b, np_.tanh)))
    return lambda: gradient(a)


def _mygrad(a: Any, b: Any) -> Call:
    def step() -> None:
        chain(mygrad.tensor(a), b, mygrad.tanh).sum().backward()

    return step


@contextmanager
def sides(theirs: Callable[[Any, Any], Call]) -> Iterator[tuple[Call, Call]]:
    """Ours and theirs, on the same values."""
    a, b = np.random.default_rng(0).standard_normal((2, 8, 8)).astype(np.float32)
    yield _ours(a, b), theirs(a, b)


WHAT = "chain of 200 small ops, forward and backward, in the engine"
SUITES = [
    Timed(WHAT, "torch eager", 0.8, lambda: sides(_torch)),
    Timed(WHAT, "HIPS autograd", 0.25, lambda: sides(_autograd)),
    Timed(WHAT, "MyGrad", 0.25, lambda: sides(_mygrad)),
]
