"""Sessions on a device other than the CPU, over HTTP and through the SDK."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

import telegrad as tg

from .conftest import SessionClient, problem

pytest.importorskip("jax")


def test_the_server_lists_its_devices(client: httpx.Client) -> None:
    listed = {item["name"]: item["backend"] for item in client.get("/v1/devices").json()["items"]}
    assert listed["cpu"] == "numpy" and listed["jax"] == "jax"


def test_a_session_on_jax(new_session: Callable[..., SessionClient]) -> None:
    session = new_session(device="jax")
    assert session.get().json()["device"] == "jax"
    session.tensor("x", [[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    described = session.post("/ops/exp", {"inputs": ["x"], "outputs": ["y"]}).json()["outputs"][0]
    assert (described["device"], described["grad_fn"]) == ("jax", "ExpBackward0")
    session.post("/ops/sum", {"inputs": ["y"], "outputs": ["z"]})
    session.post("/backward", {"tensors": ["z"]})
    assert session.get("/tensors/x/grad").json()["data"] == session.data("y")
    npy = session.get("/tensors/y", headers={"accept": "application/x-npy"})
    assert npy.status_code == 200 and npy.content.startswith(b"\x93NUMPY")


def test_an_error_is_the_same_problem(new_session: Callable[..., SessionClient]) -> None:
    session = new_session(device="jax")
    session.tensor("x", [[1.0, 0.0], [0.0, 0.0]])
    answer = session.post("/ops/linalg_inv", {"inputs": ["x"]})
    assert "singular" in problem(answer, 422, "linalg-error")["detail"]


def test_training_through_the_sdk(url: str) -> None:
    def train(device: str) -> tuple[list[float], str]:
        with tg.connect(url, device=device, seed=0):
            layer = tg.nn.Linear(3, 1)
            optimizer = tg.optim.Adam(layer.parameters(), lr=0.1)
            x = tg.tensor([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]])
            losses = []
            for _ in range(3):
                optimizer.zero_grad()
                loss = (layer(x) ** 2).mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            return losses, x.device  # type: ignore[return-value]

    expected, cpu = train("cpu")
    found, jax = train("jax")
    assert (str(cpu), str(jax)) == ("cpu", "jax")
    assert found == pytest.approx(expected, rel=1e-5)
