"""A server that compiles the programs of a loop: the values match torch's, and it reports what runs compiled."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
import torch

import telegrad as tg
from tests.servers import running

from ..servers import running_server

WAIT_S = 60.0


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


def until_compiled(session: Any, step: Callable[..., float]) -> list[float]:
    """Run steps until some programs have run compiled, and return the losses."""
    losses: list[float] = []
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        losses.append(step(len(losses)))
        if sum(report["compiled_runs"] for report in session.compiled()) > 5:
            return losses
    raise AssertionError(f"nothing was compiled: {session.compiled()}")


def test_a_loop_runs_compiled_with_torch_s_numbers() -> None:
    pytest.importorskip("jax")
    with running_server(compile_after=3) as url, tg.connect(url, compile=True) as session:
        ours, theirs = loop(tg), loop(torch)
        losses = until_compiled(session, ours)
        assert losses == pytest.approx([theirs(number) for number in range(len(losses))], rel=1e-4)
        report = max(session.compiled(), key=lambda r: r["runs"])
        assert report["instructions"] > 8 and report["runs"] > report["compiled_runs"] > 5
        with pytest.raises(IndexError, match="Target 3 is out of bounds"):
            ours(0, 3)
        assert ours(len(losses)) == pytest.approx(theirs(len(losses)), rel=1e-4)


def test_every_server_plans_and_the_numbers_are_the_same() -> None:
    def losses(plan_after: int) -> tuple[list[float], int]:
        with running_server(plan_after=plan_after) as url, tg.connect(url) as session:
            step = loop(tg)
            return [step(number) for number in range(12)], sum(r["planned_runs"] for r in session.compiled())

    (planned, runs), (plain, none) = losses(2), losses(0)
    assert planned == plain
    assert runs >= 5 and none == 0


def test_who_does_not_ask_is_not_compiled_for() -> None:
    with running_server(compile_after=1) as url, tg.connect(url) as session:
        step = loop(tg)
        for number in range(6):
            step(number)
        assert all(not report["compiled_runs"] for report in session.compiled())


def test_a_server_that_does_not_compile_says_so() -> None:
    with running_server(compile_after=0) as url:
        refused = httpx.post(f"{url}/v1/sessions", json={"compile": True})
        assert refused.status_code == 422 and "compiles no programs" in refused.json()["detail"]
        assert httpx.post(f"{url}/v1/sessions", json={}).status_code == 201


def test_in_this_process_it_means_nothing() -> None:
    with tg.connect("local://", compile=True) as session:
        assert (tg.tensor([1.0]) * 2).item() == 2.0
        assert all(not report["compiled_runs"] for report in session.compiled())


def test_a_server_that_ends_while_it_compiles_ends_in_order() -> None:
    pytest.importorskip("jax")
    with running("--compile-after=2") as (address, process):
        with tg.connect(address, compile=True):
            w = tg.ones(8, 8)
            for _ in range(3):
                x = tg.ones(8, 8)
                for _ in range(1_500):  # long to compile
                    x = (x * w).tanh()
                x.sum().item()
        process.terminate()
        complaints = process.communicate(timeout=WAIT_S)[1]
    assert "not rethrown" not in complaints
    assert process.returncode in (0, -signal.SIGTERM)
