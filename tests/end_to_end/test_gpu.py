"""Sessions on a real GPU, of which a server has one: values, two sessions at once, full memory, and a program too long.

Without an NVIDIA GPU that CuPy can use these tests are skipped. What a stand-in can show is in other ``test_gpu.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import httpx
import numpy as np
import pytest

import telegrad as tg
from telegrad_engine.arrays import available

from ..servers import running_server

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not any(info.is_gpu for info in available()), reason="no GPU is here that CuPy can use"),
]

UNLIMITED = 2**50
MAX_PROGRAM_S = 10.0
"""The first use of a kernel compiles it."""
HUGE = 2**38
"""The elements of an array of a TiB."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    limits = {f"max_{what}_bytes": UNLIMITED for what in ("session", "process", "tenant")}
    with running_server(max_program_s=MAX_PROGRAM_S, **limits) as address:
        yield address


def classifier() -> Any:
    return tg.nn.Sequential(
        *(tg.nn.Conv2d(1, 4, 3, padding=1), tg.nn.BatchNorm2d(4), tg.nn.ReLU(), tg.nn.MaxPool2d(2)),
        *(tg.nn.Flatten(), tg.nn.Linear(64, 10)),
    )


def train(url: str, device: str, steps: int = 5, seed: int = 0) -> tuple[list[float], np.ndarray]:
    """The losses of some steps, and a parameter after them."""
    rng = np.random.default_rng(seed)
    with tg.connect(url, device=device, seed=0):
        net = classifier()
        with tg.no_grad():
            for parameter in net.parameters():
                parameter.copy_(tg.tensor(rng.standard_normal(tuple(parameter.shape)).astype(np.float32) * 0.1))
        optimizer = tg.optim.AdamW(net.parameters(), lr=0.01)
        x = tg.tensor(rng.standard_normal((16, 1, 8, 8)).astype(np.float32)).to(device)
        y = tg.tensor(rng.integers(0, 10, 16)).to(device)
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = tg.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, net[-1].weight.detach().cpu().numpy()


def test_the_gpu_is_listed(url: str) -> None:
    with tg.connect(url, device="cuda") as session:
        listed = {each["name"]: each for each in session.devices()}
        assert (listed["cuda:0"]["kind"], listed["cuda:0"]["backend"]) == ("gpu", "cupy")
        assert listed["cuda:0"]["total_bytes"] > 2**30
        assert tg.cuda.get_device_name() == listed["cuda:0"]["description"]


def many_ops(x: Any) -> Any:
    y = (x @ x.t()).softmax(-1).log().exp() * x.mean(0)
    return y.sigmoid().sum() + tg.erf(x).std() + x.sort(-1).values[0].cumsum(0).max()


def test_values_and_gradients_are_those_of_the_cpu(url: str) -> None:
    values = np.random.default_rng(0).standard_normal((7, 7))
    found = []
    for device in ("cpu", "cuda"):
        with tg.connect(url, device=device):
            x = tg.tensor(values, requires_grad=True)
            result = many_ops(x)
            result.backward()
            found.append((result.item(), x.grad.numpy()))
    (expected, expected_grad), (result, grad) = found
    assert result == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(grad, expected_grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("where", ["server", "local"])
def test_training_is_that_of_the_cpu(where: str, url: str) -> None:
    address = url if where == "server" else "local://"
    (losses, weight), (expected, expected_weight) = (train(address, device) for device in ("cuda", "cpu"))
    assert losses == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(weight, expected_weight, rtol=1e-3, atol=1e-4)


def test_sessions_share_a_gpu(url: str) -> None:
    alone = [train(url, "cuda", steps=20, seed=seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(copy_context().run, train, url, "cuda", 20, seed) for seed in range(4)]
        together = [future.result() for future in futures]
    for (losses, _), (expected, _) in zip(together, alone, strict=True):
        assert losses == pytest.approx(expected, rel=1e-3)


def test_a_full_gpu_is_an_error_of_one_session(url: str) -> None:
    with tg.connect(url, device="cuda"):
        kept = tg.ones(3)
        with tg.connect(url, device="cuda"):
            mine = tg.ones(2) * 2
            with pytest.raises(RuntimeError, match="can't allocate memory"):
                tg.ones(HUGE).sum().item()
            assert mine.tolist() == [2.0, 2.0]
        assert (kept + 1).tolist() == [2.0, 2.0, 2.0]


def test_a_program_that_runs_too_long_is_stopped(url: str) -> None:
    with httpx.Client(base_url=url, timeout=240) as client:
        path = f"/v1/sessions/{client.post('/v1/sessions', json={'device': 'cuda'}).json()['id']}"
        start = {"op": "ones", "out": ["x"], "attrs": {"size": [8192, 8192]}}
        products = [{"op": "matmul", "in": ["x", "x"]}] * 20_000
        answer = client.post(f"{path}/programs", json={"instructions": [start, *products]})
        assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (422, "time-limit-exceeded")
        again = client.post(f"{path}/tensors", json={"id": "z", "data": [1.0, 2.0]})
        assert again.status_code == 201
        assert client.get(f"{path}/tensors/z").json()["data"] == [1.0, 2.0]
        client.delete(path)


def wrong_index() -> Any:
    weight = tg.ones(3, 2)
    return tg.nn.functional.embedding(tg.tensor([0, 6]) + 1, weight)


def wrong_target() -> Any:
    return tg.nn.functional.nll_loss(tg.zeros(2, 3), tg.tensor([0, 2]) + 1)


@pytest.mark.parametrize("mistake", [wrong_index, wrong_target], ids=lambda f: f.__name__)
def test_a_mistake_is_an_error_where_values_are_read(mistake: Callable[[], Any], url: str) -> None:
    with tg.connect(url, device="cuda"):
        kept = tg.ones(2)
        result = mistake()
        with pytest.raises(RuntimeError, match="device-side assert triggered"):
            result.sum().item()
        assert kept.tolist() == [1.0, 1.0]
