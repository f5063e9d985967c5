"""After Ctrl-C at any moment, the session is usable and its values are right."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

from .interrupting import Interrupter

MOMENTS = 60
INPUTS = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
LABELS = np.arange(8) % 3

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def network(lib: Any) -> Any:
    return lib.nn.Sequential(lib.nn.Linear(4, 5), lib.nn.Tanh(), lib.nn.Linear(5, 3))


def loss_of(lib: Any, model: Any) -> Any:
    return lib.nn.functional.cross_entropy(model(lib.tensor(INPUTS)), lib.tensor(LABELS))


def check(model: Any) -> None:
    """Check that the loss and the gradients are right for the current parameters."""
    twin = network(torch)
    with torch.no_grad():
        for theirs, ours in zip(twin.parameters(), model.parameters(), strict=True):
            theirs.copy_(torch.from_numpy(ours.detach().numpy()))
    for p in model.parameters():
        p.grad = None
    ours, theirs = loss_of(tg, model), loss_of(torch, twin)
    ours.backward()
    theirs.backward()
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-4)
    for mine, its in zip(model.parameters(), twin.parameters(), strict=True):
        np.testing.assert_allclose(mine.grad.numpy(), its.grad.numpy(), atol=1e-5)


@pytest.mark.parametrize("way", ["local", "stream", "requests"])
def test_a_training_step_interrupted_before_any_line(server: str, way: str) -> None:
    url = "local://" if way == "local" else server
    moments, interrupted = random.Random(0), 0
    with tg.connect(url, seed=0, stream=None if way == "local" else way == "stream"):
        model = network(tg)
        optimizer = tg.optim.SGD(model.parameters(), lr=0.05)

        def step() -> float:
            optimizer.zero_grad()
            loss = loss_of(tg, model)
            loss.backward()
            optimizer.step()
            return float(loss.item())

        for _ in range(12):
            step()
        interrupter = Interrupter()
        assert not interrupter.call(step)
        lines = interrupter.count
        for _ in range(MOMENTS):
            interrupted += interrupter.call(step, at=moments.randrange(1, lines))
            check(model)
            step()  # the loop is recognized again
        assert interrupted > MOMENTS / 2
