"""Durable sessions in the SDK: a name finds a session again, in another process and after the server has restarted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import telegrad as tg
from telegrad_engine.errors import InvalidValue

from ..chaos import Server
from ..servers import running_server

TRAIN = """
import sys
import telegrad as tg

with tg.session("run", sys.argv[1], seed=0) as session:
    model = tg.nn.Sequential(tg.nn.Linear(3, 1))
    if kept := session.named():
        model.load_state_dict(kept)
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(tg.ones(2, 3)).sum().backward()
        optimizer.step()
    session.keep(model.state_dict())
    print(model[0].weight.tolist()[0])
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.stop()


def train(server: Server) -> list[float]:
    done = subprocess.run([sys.executable, "-c", TRAIN, server.url], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[float] = eval(done.stdout, {})
    return found


def test_another_process_continues_where_the_first_one_stopped(server: Server) -> None:
    first = train(server)
    server.kill()
    server.start()
    second = train(server)
    assert second == pytest.approx([weight - 0.6 for weight in first], abs=1e-6)


def test_a_training_loop_waits_for_its_server(server: Server) -> None:
    def steps(url: str, **options: bool) -> list[float]:
        with tg.connect(url, seed=3, **options):
            weights = tg.randn(5, requires_grad=True)
            losses = []
            for step in range(12):
                loss = (weights * tg.rand(5)).sum()
                loss.backward()
                losses.append(loss.item())
                if step == 6 and options:
                    server.kill()
                    server.start()
            return [*losses, *weights.grad.tolist()]

    assert steps(server.url, durable=True) == steps("local://")


@pytest.mark.full
def test_names_that_are_kept_again_are_the_new_tensors(server: Server) -> None:
    with tg.session("run", server.url) as session:
        session.keep({"a": tg.ones(1), "b": tg.ones(1)})
        session.keep({"a": tg.zeros(2)})
    with tg.session("run", server.url) as session:
        found = session.named()
        assert {name: tensor.tolist() for name, tensor in found.items()} == {"a": [0.0, 0.0], "b": [1.0]}


@pytest.mark.full
def test_the_tensors_of_a_client_go_with_it(server: Server) -> None:
    with tg.session("run", server.url) as session:
        session.keep({"a": tg.ones(1)})
        kept = tg.ones(3)
        assert len(kept) == 3
        kept.tolist()
    with tg.session("run", server.url) as session:
        assert [each.description["id"] for each in session.recorder.transport.described()] == ["a"]


@pytest.mark.full
def test_a_server_without_a_data_folder_says_so() -> None:
    with running_server() as url, pytest.raises(InvalidValue, match="--data-dir"):
        tg.session("run", url)


def test_this_process_keeps_no_durable_sessions() -> None:
    with pytest.raises(InvalidValue, match="this process keeps no durable sessions; give the address of a server"):
        tg.session("digits", "local://")


def test_what_is_recorded_last_is_not_lost(server: Server) -> None:
    with tg.session("run", server.url) as session:
        weights = tg.ones(2)
        session.keep({"weights": weights})
        weights.mul_(3)
    with tg.session("run", server.url) as session:
        assert session.named()["weights"].tolist() == [3.0, 3.0]
        session.export(server.folder / "file", {"copy": tg.ones(1)})
    with tg.session("run", server.url) as session:
        assert list(session.named()) == ["weights"]


@pytest.mark.full
def test_a_tensor_that_was_freed_does_not_come_back(server: Server) -> None:
    with tg.connect(server.url, durable=True, name="run"):
        tensor = tg.ones(3)
        tensor.tolist()
        del tensor
        tg.ones(1).tolist()  # what is freed is sent with the next program
        server.kill()
        server.start()
    with tg.session("run", server.url) as session:
        assert session.recorder.transport.described() == []
