"""A server that plans the programs of a loop: the values match torch's, and it reports what runs planned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

from ..servers import running_server


def loop(lib: Any) -> Callable[..., float]:
    """A training step whose program recurs."""
    net = lib.nn.Sequential(lib.nn.Linear(6, 8), lib.nn.Tanh(), lib.nn.Linear(8, 3))
    with lib.no_grad():
        for seed, parameter in enumerate(net.parameters()):
            values = np.random.default_rng(seed).standard_normal(tuple(parameter.shape)) * 0.4
            parameter.copy_(lib.tensor(values.astype(np.float32)))
    optimizer = lib.optim.Adam(net.parameters(), lr=0.01)

    def step(number: int, label: int = 2) -> float:
        rng = np.random.default_rng(number)
        optimizer.zero_grad()
        x = lib.tensor(rng.standard_normal((4, 6)).astype(np.float32))
        loss = lib.nn.functional.cross_entropy(net(x), lib.tensor([0, 1, 1, label]))
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def test_a_loop_runs_planned_with_torch_s_numbers() -> None:
    with running_server() as url, tg.connect(url) as session:
        ours, theirs = loop(tg), loop(torch)
        losses = [ours(number) for number in range(12)]
        assert losses == pytest.approx([theirs(number) for number in range(12)], rel=1e-4)
        report = max(session.compiled(), key=lambda r: r["runs"])
        assert report["instructions"] > 8 and report["runs"] > report["planned_runs"] > 5
        with pytest.raises(IndexError, match="Target 3 is out of bounds"):
            ours(0, 3)
        assert ours(12) == pytest.approx(theirs(12), rel=1e-4)


def test_every_server_plans_and_the_numbers_are_the_same() -> None:
    def losses(plan_after: int) -> tuple[list[float], int]:
        with running_server(plan_after=plan_after) as url, tg.connect(url) as session:
            step = loop(tg)
            return [step(number) for number in range(12)], sum(r["planned_runs"] for r in session.compiled())

    (planned, runs), (plain, none) = losses(2), losses(0)
    assert planned == plain
    assert runs >= 5 and none == 0
