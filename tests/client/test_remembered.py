"""A loop's templates are sent once, then named by their digest, and sent again to a server that forgot them.

Internals: an instruction that the SDK never makes names its tensors by their ids.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

from ..servers import running_server
from .cutting import UP, Cutter

STEPS = 12
BATCHES = np.random.default_rng(0).standard_normal((STEPS, 4, 6)).astype(np.float32)


def losses(lib: Any) -> list[float]:
    """Run a loop that reads its loss after every step, and return the losses."""
    layer = lib.nn.Linear(6, 3)
    with lib.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(0.5)
    optimizer = lib.optim.SGD(layer.parameters(), lr=0.05)
    seen = []
    for step in range(STEPS):
        optimizer.zero_grad()
        x = lib.tensor(BATCHES[step][: 4 if step != 5 else 3])  # one batch is smaller
        loss = (layer(x).tanh() - 1.0).square().mean()
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
        assert lib.ones(2).sum().item() == 2  # another program
    return seen


@pytest.mark.parametrize(
    "options", [{}, {"plan_after": 0}, {"remembered_programs": 1}, {"remembered_programs": 0}], ids=str
)
def test_a_loop_is_the_same_whatever_the_server_remembers_and_plans(options: dict[str, int]) -> None:
    expected = losses(torch)
    with running_server(**options) as url, tg.connect(url) as session:
        assert losses(tg) == pytest.approx(expected, rel=1e-5)
        assert session.requests == 2 * STEPS
        assert any(report["planned_runs"] > 3 for report in session.compiled()) == (not options)


def test_what_is_sent_gets_short(server: str) -> None:
    with Cutter(server) as proxy, tg.connect(proxy.url, stream=True):
        x = tg.ones(3)
        sizes = []
        for _ in range(4):
            before = proxy.passed[UP]
            y = x
            for _ in range(30):
                y = y.softmax(-1)
            y.tolist()
            sizes.append(proxy.passed[UP] - before)
    assert max(sizes[2:]) < sizes[0] / 3


def cosine(lib: Any, optimizer: Any) -> Any:
    return lib.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)


def one_cycle(lib: Any, optimizer: Any) -> Any:
    """A schedule that changes the momentum, or the first beta, together with the rate."""
    return lib.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=40)


@pytest.mark.parametrize(("name", "schedule"), [("SGD", cosine), ("AdamW", one_cycle)])
def test_a_schedule_makes_no_other_programs(server: str, name: str, schedule: Any) -> None:
    def train(lib: Any) -> list[float]:
        w = lib.tensor([0.5, -1.5, 2.0], requires_grad=True)
        optimizer = getattr(lib.optim, name)([w], lr=0.1, weight_decay=0.01)
        scheduler = schedule(lib, optimizer)
        losses = []
        for step in range(30):
            optimizer.zero_grad()
            loss = ((w - lib.tensor([1.0, 2.0, float(step % 3)])) ** 2).sum()
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
        return losses

    with tg.connect(server) as session:
        assert train(tg) == pytest.approx(train(torch), rel=1e-5)
        assert sum(report["planned_runs"] for report in session.compiled()) >= 15


def test_rates_that_are_none(server: str) -> None:
    with tg.connect(server) as session:
        w = tg.tensor([1.0, 2.0], requires_grad=True)
        w.sum().backward()

        def step(numbers: list[float], names: list[str]) -> None:
            given = tg.tensor(numbers, dtype=tg.float64)
            attrs = {"algorithm": "sgd", "settings": {}, "scheduled": names}
            session.recorder.emit("optim_step", [(w._id,), (), given._id], (), attrs)
            w.tolist()

        for bad in (-0.5, float("nan"), float("inf")):
            with pytest.raises(ValueError, match=f"Invalid lr value: {bad}"):
                step([bad], ["lr"])
        for numbers, names in [([0.1, 0.2], ["lr"]), ([], ["lr"]), ([0.1], [])]:
            with pytest.raises(TypeError, match="numbers of float64, one after the other"):
                step(numbers, names)
        for names in (["rate"], ["maximize"], ["lr", "lr"]):
            with pytest.raises(TypeError, match="not all different settings that are numbers"):
                step([0.1] * len(names), names)
        assert w.tolist() == [1.0, 2.0]
        step([0.0], ["lr"])
        step([0.5], ["lr"])
        assert w.tolist() == [0.5, 1.5]


# What keeps a loop from being planned ---------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["http", "local"])
def test_a_batch_of_another_size_is_named(server: str, place: str) -> None:
    with tg.connect(server if place == "http" else "local://") as session:
        layer = tg.nn.Linear(4, 2)

        def turn(rows: int) -> float:
            return layer(tg.ones(rows, 4) * 1.0).square().mean().item()  # type: ignore[no-any-return]

        for rows in [8] * 6 + [3]:
            turn(rows)
        x, y = tg.ones(8, 4), tg.ones(3, 4)
        for data in [x] * 6 + [y]:
            (layer(data) * 2.0).sum().item()
        reasons = [report["reason"] for report in session.compiled()]
    wanted = "the shape of a tensor that instruction 0, linear, takes is (3, 4), and was (8, 4)"
    assert any(reason and reason.endswith(wanted) for reason in reasons), reasons


@pytest.mark.parametrize("place", ["http", "local"])
def test_a_new_program_says_what_is_new_about_it(server: str, place: str) -> None:
    with tg.connect(server if place == "http" else "local://") as session:
        x = tg.ones(3)
        session.flush()
        for _ in range(4):
            x.sin().sum().item()
        x.exp().sum().item()
        newest = session.compiled()[-1]
        assert newest["digest"] is None and newest["runs"] == 1 and newest["planned_runs"] == 0
        assert newest["reason"].startswith("it was sent for the first time; unlike program ")
        assert newest["reason"].endswith("instruction 0 is exp, and not sin")
        x.sin().sum(dim=0, keepdim=True).item()
        assert 'instruction 1, sum, has {"dim":[0],"keepdim":true}, and not ' in session.compiled()[-1]["reason"]
        (x.sin().sum() + 1.0).item()
        assert "ends before instruction 2, add" in session.compiled()[-1]["reason"]
        with tg.no_grad():
            x.sin().sum().item()
        assert session.compiled()[-1]["reason"].endswith("instruction 0, sin, is recorded in another grad mode")
        (x + x).sum().item()
        for _ in range(3):
            (x + tg.ones(3)).sum().item()
        assert (
            "takes other tensors" in session.compiled()[-1]["reason"] or "is ones" in session.compiled()[-1]["reason"]
        )


def test_a_session_in_which_nothing_is_new_says_nothing() -> None:
    with tg.connect("local://") as session:
        assert session.compiled() == []
