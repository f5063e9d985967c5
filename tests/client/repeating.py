"""A loop in torch or Telegrad whose rounds are equal unless a test changes them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

import telegrad as tg

LEARNED = 5
"""The number of equal rounds after which the next one is recorded by prepared calls."""


def templates(session: tg.Session) -> int:
    """The number of different programs that the session has sent."""
    return len(session.recorder.templates)


def held(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert ours.requires_grad == theirs.requires_grad and ours.is_leaf == theirs.is_leaf
    assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]


def chain(x: Any, w: Any, v: Any) -> Any:
    """A chain in which every op saves something, inputs, outputs, a leaf, and its sum."""
    y = ((x @ w + v).tanh() * w).exp()
    return y, y.sum()


class Loop:
    """A small layer with the state of a training loop, in torch or Telegrad; ``chain`` may be registered."""

    def __init__(self, lib: Any, chain: Callable[..., Any] = chain) -> None:
        self.lib, self._chain = lib, chain
        self.w = lib.tensor([[0.5, -1.0, 2.0]] * 3, requires_grad=True)
        self.v = lib.tensor([[1.0, 0.25, -0.5]] * 3)
        self.optimizer = lib.optim.SGD([self.w], lr=0.1, momentum=0.5)
        self.numbers = itertools.count()

    def data(self, *shape: int, dtype: str = "float32") -> Any:
        start = next(self.numbers)
        values = np.sin(np.arange(start, start + int(np.prod(shape)))).reshape(shape)
        return self.lib.tensor(values.astype(dtype))

    def chain(self, x: Any = None) -> tuple[Any, Any]:
        """The chain's result and sum, of new data unless ``x`` is given."""
        return self._chain(self.data(3, 3) if x is None else x, self.w, self.v)  # type: ignore[no-any-return]

    def step(self) -> Any:
        """Run the recurring round."""
        self.optimizer.zero_grad()
        y = (self.data(3, 3) @ self.w + self.v).tanh() * 2.0
        loss = (y[1:] - 0.5).square().mean(dim=-1).sum()
        loss.backward()
        self.optimizer.step()
        return loss
