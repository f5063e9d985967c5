"""Sessions on GPUs, over HTTP and through the SDK: a server with a stand-in for CuPy (tests/fake_gpu) has two.

Internals: the names that a worker tells its gateways are asked for without a cluster.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import httpx
import numpy as np
import pytest

import telegrad as tg
from telegrad_service.cluster.worker import device_names

from .. import fake_gpu
from ..servers import running
from . import documented
from .conftest import SessionClient, problem

pytestmark = pytest.mark.full

GPU_BYTES = 64 * 2**20
of_one_machine = pytest.mark.one_process("a cluster may get a worker with more GPUs, so its answer is a 503")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    path = os.pathsep.join([str(fake_gpu.FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])])
    # One worker, which has these GPUs to itself.
    with running(env={"PYTHONPATH": path, "FAKE_GPU_BYTES": str(GPU_BYTES)}, workers=1) as (address, _):
        yield address


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=240, event_hooks={"response": [documented.check]}) as client:
        yield client


def used(client: httpx.Client) -> list[int]:
    """The memory in use of each GPU."""
    items = client.get("/v1/devices").json()["items"]
    return [item["used_bytes"] for item in items if item["kind"] == "gpu"]


def test_the_server_lists_its_gpus(client: httpx.Client) -> None:
    listed = {item["name"]: item for item in client.get("/v1/devices").json()["items"]}
    assert (listed["cpu"]["kind"], listed["cpu"]["backend"], listed["cpu"]["total_bytes"]) == ("cpu", "numpy", None)
    for name in ("cuda:0", "cuda:1"):
        assert (listed[name]["kind"], listed[name]["backend"]) == ("gpu", "cupy")
        assert (listed[name]["description"], listed[name]["total_bytes"]) == ("Fake GPU", GPU_BYTES)


@pytest.mark.parametrize(("wanted", "full"), [("cuda", "cuda:0"), ("cuda:1", "cuda:1")])
def test_a_session_on_a_gpu(wanted: str, full: str, client: httpx.Client) -> None:
    session = SessionClient(client, device=wanted)
    assert session.get().json()["device"] == full
    session.tensor("x", [[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    described = session.post("/ops/exp", {"inputs": ["x"], "outputs": ["y"]}).json()["outputs"][0]
    assert (described["device"], described["grad_fn"]) == (full, "ExpBackward0")
    session.post("/ops/sum", {"inputs": ["y"], "outputs": ["z"]})
    session.post("/backward", {"tensors": ["z"]})
    assert session.get("/tensors/x/grad").json()["data"] == session.data("y")
    assert client.delete(session.path).status_code == 204


def test_any_gpu_is_chosen_once(client: httpx.Client) -> None:
    first = SessionClient(client, device="gpu")
    device = first.get().json()["device"]
    assert device in ("cuda:0", "cuda:1")
    assert first.get().json()["device"] == device
    first.tensor("x", [[0.0] * 1000] * 100)
    second = SessionClient(client, device="gpu")
    assert {device, second.get().json()["device"]} == {"cuda:0", "cuda:1"}
    for session in (first, second):
        client.delete(session.path)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        pytest.param("cuda:2", "no device 'cuda:2' here; available: ", marks=of_one_machine),
        pytest.param("cuda:99", "cuda:0, cuda:1", marks=of_one_machine),
        ("cuda:x", "Invalid device string: 'cuda:x'"),
        ("cuda:-1", "Invalid device string"),
        ("gpu:0", "no device 'gpu:0' here"),
        ("tpu", "no device 'tpu'"),
        ("", "no device ''"),
    ],
)
def test_a_device_that_is_not_there(wanted: str, words: str, client: httpx.Client) -> None:
    answer = client.post("/v1/sessions", json={"device": wanted})
    assert answer.status_code == 422
    assert words in answer.json()["detail"]
    assert "available: cpu" in answer.json()["detail"]


def test_a_full_gpu_is_a_problem_of_its_session(client: httpx.Client) -> None:
    first, second = SessionClient(client, device="cuda:1"), SessionClient(client, device="cuda:1")
    second.tensor("x", [1.0, 2.0])
    half = {"inputs": [], "attrs": {"size": [GPU_BYTES // 8]}}
    assert first.post("/ops/zeros", {**half, "outputs": ["a"]}).status_code == 200
    assert GPU_BYTES // 2 <= used(client)[1] < GPU_BYTES
    full = problem(first.post("/ops/zeros", {**half, "outputs": ["b"]}), 413, "too-large")
    assert "memory" in full["detail"]
    first.tensor("y", [3.0])
    assert (first.data("y"), second.data("x")) == ([3.0], [1.0, 2.0])
    client.delete(first.path)
    assert second.post("/ops/zeros", {**half, "outputs": ["b"]}).status_code == 200
    client.delete(second.path)


def test_a_wrong_index_is_a_problem_where_values_are_read(client: httpx.Client) -> None:
    session = SessionClient(client, device="cuda")
    session.tensor("w", [[1.0], [2.0]])
    session.tensor("i", [0, 5], dtype="int64")
    assert session.post("/ops/embedding", {"inputs": ["i", "w"], "outputs": ["y"]}).status_code == 200
    found = problem(session.get("/tensors/y", headers={"accept": "application/x-npy"}), 422, "invalid-operation")
    assert "CUDA error: device-side assert triggered" in found["detail"]
    assert session.data("w") == [[1.0], [2.0]]
    client.delete(session.path)


def test_training_through_the_sdk(url: str) -> None:
    def train(device: str) -> tuple[list[float], str]:
        with tg.connect(url, device=device, seed=0):
            net = tg.nn.Sequential(tg.nn.Linear(3, 8), tg.nn.ReLU(), tg.nn.Linear(8, 4)).to(device)
            optimizer = tg.optim.AdamW(net.parameters(), lr=0.1)
            x = tg.tensor(np.random.default_rng(0).standard_normal((16, 3)).astype(np.float32)).to(device)
            y = tg.arange(16).to(device) % 4
            losses = []
            for _ in range(5):
                optimizer.zero_grad()
                loss = tg.nn.functional.cross_entropy(net(x), y)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            return losses, str(x.device)

    expected, _ = train("cpu")
    for device, full in (("cuda", "cuda:0"), ("cuda:1", "cuda:1")):
        losses, found = train(device)
        assert found == full
        assert losses == pytest.approx(expected, rel=1e-5)


def test_what_scripts_ask_a_server(url: str) -> None:
    with tg.connect(url, device="cuda:1") as session:
        assert (tg.cuda.is_available(), tg.cuda.device_count(), tg.cuda.current_device()) == (True, 2, 1)
        assert tg.cuda.get_device_name() == "Fake GPU"
        assert {each["name"] for each in session.devices()} >= {"cpu", "cuda:0", "cuda:1"}


@of_one_machine
def test_a_script_that_asks_a_server_for_more_gpus(url: str) -> None:
    with pytest.raises(RuntimeError, match=r"CUDA error: invalid device ordinal.*cuda:0, cuda:1"):
        tg.connect(url, device="cuda:7")


def test_the_names_that_sessions_may_ask_for() -> None:
    with fake_gpu.installed():
        assert {"cpu", "cuda", "cuda:0", "cuda:1", "gpu"} <= {*device_names()}
