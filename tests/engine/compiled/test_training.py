"""Training loops whose programs run as one plan have torch's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

from .nets import conv, embedded, lstm, mlp
from .remembering import Remembering, array, connect, numbers, runs_planned

STEPS = 14
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


def train(lib: Any, model: Any, name: str, options: dict[str, Any], steps: int = STEPS) -> list[np.ndarray]:
    """Losses, and then the parameters and their gradients."""
    parameters, loss_of = model(lib)
    optimizer = getattr(lib.optim, name)(parameters, lr=0.02, **options)
    losses = []
    for step in range(steps):
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


def test_float64_stays_so(session: Remembering) -> None:
    def run(lib: Any) -> list[float]:
        w = numbers(lib, (4, 4), 1, "float64").requires_grad_()
        optimizer = lib.optim.Adam([w], lr=0.1)
        seen = []
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = (numbers(lib, (4, 4), step, "float64") @ w).exp().mean()
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        return seen

    np.testing.assert_allclose(run(tg), run(torch), rtol=1e-12)
    assert runs_planned(session)


def test_rates_and_shapes_that_change(session: Remembering) -> None:
    def run(lib: Any) -> list[float]:
        parameters, _ = mlp(lib)
        w = parameters[0]
        optimizer = lib.optim.SGD([w], lr=0.5)
        schedule = lib.optim.lr_scheduler.StepLR(optimizer, 10, 0.1)
        seen = []
        for step in range(30):
            optimizer.zero_grad()
            x = numbers(lib, (6, 3 if step % 10 == 7 else 2), step)
            loss = (w @ x - 1).square().mean()
            loss.backward()
            optimizer.step()
            schedule.step()
            seen.append(loss.item())
        return seen

    np.testing.assert_allclose(run(tg), run(torch), rtol=1e-4)
    assert sum(report.planned_runs for report in session.reports) >= 15
