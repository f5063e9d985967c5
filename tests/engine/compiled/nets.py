"""Small nets in either library: their parameters, filled alike, and the loss of each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .remembering import numbers


def fill(lib: Any, parameters: Any) -> list[Any]:
    """The same starting values in both libraries."""
    kept = list(parameters)
    with lib.no_grad():
        for seed, parameter in enumerate(kept):
            parameter.copy_(numbers(lib, tuple(parameter.shape), seed))
    return kept


def mlp(lib: Any) -> tuple[list[Any], Callable[[int], Any]]:
    net = lib.nn.Sequential(lib.nn.Linear(6, 8), lib.nn.ReLU(), lib.nn.Linear(8, 3))

    def loss(step: int) -> Any:
        classes = lib.tensor(np.random.default_rng(step).integers(0, 3, 5))
        return lib.nn.functional.cross_entropy(net(numbers(lib, (5, 6), 100 + step)), classes)

    return fill(lib, net.parameters()), loss


def lstm(lib: Any) -> tuple[list[Any], Callable[[int], Any]]:
    weights = [numbers(lib, shape, seed).requires_grad_() for seed, shape in enumerate([(3, 16), (4, 16), (16,)])]
    w, u, b = weights

    def loss(step: int) -> Any:
        xs = numbers(lib, (5, 2, 3), 100 + step)
        h = c = lib.zeros(2, 4)
        for t in range(5):
            i, f, g, o = (xs[t] @ w + h @ u + b).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h.square().mean()

    return weights, loss


def conv(lib: Any) -> tuple[list[Any], Callable[[int], Any]]:
    F = lib.nn.functional
    first, second = lib.nn.Conv2d(1, 4, 3, padding=1), lib.nn.Linear(36, 3)

    def loss(step: int) -> Any:
        x = F.max_pool2d(F.relu(first(numbers(lib, (2, 1, 6, 6), 100 + step))), 2)
        x = second(x.flatten(1))
        return F.mse_loss(x, numbers(lib, (2, 3), 200 + step))

    return fill(lib, [*first.parameters(), *second.parameters()]), loss


def embedded(lib: Any) -> tuple[list[Any], Callable[[int], Any]]:
    table, out = lib.nn.Embedding(7, 4), lib.nn.Linear(4, 7)

    def loss(step: int) -> Any:
        words = lib.tensor(np.random.default_rng(step).integers(0, 7, (3, 5)))
        logits = out(lib.nn.functional.layer_norm(table(words), (4,)))
        return -logits.log_softmax(-1).gather(-1, words.unsqueeze(-1)).mean()

    return fill(lib, [*table.parameters(), *out.parameters()]), loss
