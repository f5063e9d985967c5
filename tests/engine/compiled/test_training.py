"""Training loops whose programs run as one plan have torch's numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

from .remembering import Remembering, array, connect, numbers, runs_planned

STEPS = 18
OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("Adam", {}),
    ("Adam", {"amsgrad": True}),
    ("AdamW", {}),
    ("Adamax", {}),
    ("NAdam", {}),
    ("RAdam", {}),
    ("ASGD", {}),
    ("Rprop", {}),
    ("Adafactor", {"weight_decay": 0.1}),
    ("RMSprop", {"momentum": 0.5, "centered": True}),
    ("Adagrad", {"lr_decay": 0.1}),
    ("Adadelta", {}),
]


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


def train(lib: Any, model: Any, name: str, options: dict[str, Any], steps: int = STEPS) -> list[np.ndarray]:
    """Losses, and then the parameters and their gradients."""
    parameters, loss_of = model(lib)
    optimizer = getattr(lib.optim, name)(parameters, lr=0.02, **options)
    losses = []
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = max(0.0, 0.02 * math.cos(step / 3))  # through zero and back
        optimizer.zero_grad()
        loss = loss_of(step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [np.array(losses), *[array(t) for p in parameters for t in (p, p.grad)]]


def assert_same(ours: list[np.ndarray], theirs: list[np.ndarray]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=3e-4, atol=3e-5)


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=lambda value: str(value))
def test_a_training_loop_is_torch_s(session: Remembering, name: str, options: dict[str, Any]) -> None:
    assert_same(train(tg, mlp, name, options), train(torch, mlp, name, options))
    assert runs_planned(session, 5)


@pytest.mark.parametrize("model", [lstm, conv, embedded])
def test_so_is_that_of_other_nets(session: Remembering, model: Any) -> None:
    ours = train(tg, model, "SGD", {"momentum": 0.9})
    assert_same(ours, train(torch, model, "SGD", {"momentum": 0.9}))
    assert runs_planned(session, 5)
    connect(None)
    for a, b in zip(ours, train(tg, model, "SGD", {"momentum": 0.9}), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_by_hand_with_views_in_place_and_gradients_that_add_up(session: Remembering) -> None:
    def run(lib: Any) -> list[Any]:
        w, velocity = numbers(lib, (4, 3), 0).requires_grad_(), lib.zeros(4, 3)
        rows = w.detach()
        seen = []
        for step in range(STEPS):
            x = numbers(lib, (5, 4), step)
            y = x @ w
            y[1:3] *= 2.0
            y.t().add_(x.sum(1))
            ((y - 1.0).square().mean() + w.norm()).backward()
            with lib.no_grad():
                velocity.mul_(0.5).add_(w.grad)
                w -= 0.1 * velocity
                w[0].clamp_(-0.5, 0.5)
                if step % 2 == 1 or step > 3:
                    w.grad.zero_()
            seen += [y.detach().sum().item(), rows.sum().item()]
        return [*seen, *w.tolist()]

    np.testing.assert_allclose(np.hstack(run(tg)), np.hstack(run(torch)), rtol=1e-4, atol=1e-5)
    assert any(r.planned_runs for r in session.reports), session.reports


def test_how_gradients_lie_in_memory_makes_no_other_program(session: Remembering) -> None:
    w = numbers(tg, (4, 6), 0).requires_grad_()
    optimizer = tg.optim.SGD([w], lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        (numbers(tg, (5, 6), step) @ w.t()).square().mean().backward()
        optimizer.step()
        w.detach().sum().item()
    report = max(session.reports, key=lambda r: r.runs)
    assert report.planned_runs >= report.runs - 3
