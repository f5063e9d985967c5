"""Workers on a real Ray: ``telegrad cluster``; what is killed, and what is left."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import telegrad as tg

from ... import chaos
from ...servers import running
from ..api_keys import WAIT_S, sqlite, wait_until
from .process_tree import Process, listening_hosts, tree
from .ray_processes import WORKER, joined, ray_head, rows, serving, telegrad, wait_for_the_end

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found by /proc"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is an extra"),
]
STEPS = 1500


def status_of(env: dict[str, str]) -> list[list[str]]:
    """The cells of the list of workers."""
    listed = telegrad("cluster", "status", env=env)
    assert listed.returncode == 0, listed.stderr
    return rows(listed.stdout)


WITHOUT_RAY = "import sys; sys.modules['ray'] = None; from telegrad_service.cli import main; main(sys.argv[1:])"


@pytest.mark.every
@pytest.mark.parametrize("arguments", [["cluster", "up"], ["cluster", "join", "--ray-address=h:1"]])
def test_without_ray_the_error_names_the_extra(tmp_path: Path, arguments: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_RAY, *arguments, f"--database-url={sqlite(tmp_path)}"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=os.environ | {"XDG_STATE_HOME": str(tmp_path)},
    )
    assert ended.returncode == 1
    assert "install telegrad-service[ray]" in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.every
@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "h:x", "http://h:1"])
def test_an_address_without_ray_is_refused(tmp_path: Path, address: str) -> None:
    ended = telegrad("cluster", "status", f"--ray-address={address}", f"--database-url={sqlite(tmp_path)}")
    assert ended.returncode == 1
    assert address in ended.stderr and "Traceback" not in ended.stderr


@pytest.fixture
def user(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a user whose workers go on in the background; they are ended after the test."""
    env = {"XDG_STATE_HOME": str(tmp_path / "state"), "TELEGRAD_DATABASE_URL": sqlite(tmp_path)}
    env["TELEGRAD_DATA_DIR"] = str(tmp_path / "data")
    try:
        yield env
    finally:
        telegrad("cluster", "down", env=env)


@pytest.mark.full
def test_workers_in_the_background(user: dict[str, str], tmp_path: Path) -> None:
    up = telegrad("cluster", "up", "--workers=2", "--cpus=0", env=user)
    assert up.returncode == 0, up.stderr
    state = tmp_path / "state" / "telegrad" / "cluster.json"
    assert state.stat().st_mode & 0o777 == 0o600
    listed = status_of(user)
    assert {row[1] for row in listed} == {"cpu-0", "cpu-1"} and {row[2] for row in listed} == {"ready"}
    # Again: those that are there stay.
    assert telegrad("cluster", "up", "--workers=2", "--cpus=0", env=user).returncode == 0
    assert status_of(user) == listed
    keeper = int(re.findall(r'"pid": (\d+)', state.read_text())[0])
    processes = tree(keeper)
    assert listening_hosts(processes) == {"127.0.0.1"}

    down = telegrad("cluster", "down", env=user)
    assert down.returncode == 0, down.stderr
    wait_for_the_end(processes)
    assert not state.exists()
    assert "no Ray runs in the background" in telegrad("cluster", "down", env=user).stderr


@pytest.mark.full
def test_a_killed_actor_is_started_again(user: dict[str, str], tmp_path: Path) -> None:
    up = telegrad("cluster", "up", "--workers=1", "--cpus=0", env=user)
    assert up.returncode == 0, up.stderr
    state = tmp_path / "state" / "telegrad" / "cluster.json"
    keeper = int(re.findall(r'"pid": (\d+)', state.read_text())[0])

    def workers() -> list[Process]:
        return [each for each in tree(keeper) if WORKER in each.command]

    [before] = workers()
    os.kill(before.parent, signal.SIGKILL)
    wait_until(lambda: any(each != before for each in workers()))
    wait_until(lambda: [row[2] for row in status_of(user) if row[1] == "cpu-0"] == ["ready"])


@pytest.mark.full
def test_a_drained_worker_ends_and_its_durable_sessions_go_on(user: dict[str, str]) -> None:
    up = telegrad("cluster", "up", "--workers=2", "--cpus=0", env=user)
    assert up.returncode == 0, up.stderr
    with running("--database-url", user["TELEGRAD_DATABASE_URL"], command="gateway") as (url, _):
        trainer = chaos.Trainer(url, 1, STEPS, durable=True, name="run")
        trainer.start()
        wait_until(lambda: len(trainer.losses) > 20 or trainer.failure is not None)
        owner = next(row[1] for row in status_of(user) if row[4].startswith("1 of"))
        drained = telegrad("cluster", "drain", owner, env=user)
        assert drained.returncode == 0, drained.stderr
        trainer.join(2 * WAIT_S)
        assert not trainer.is_alive() and trainer.failure is None
        twin = chaos.Trainer("local://", 1, STEPS)
        twin.train()
        assert trainer.losses == twin.losses
        [left] = status_of(user)
        assert left[1] != owner
        with tg.connect(url) as session, tg.profiler.profile():
            assert tg.ones(1).item() == 1.0
            kept = telegrad("cluster", "drain", left[0], "--wait-s=3", env=user)
            assert kept.returncode == 1 and "has 1 that cannot move" in kept.stderr and "a profile runs" in kept.stderr
            assert session.id
        assert telegrad("cluster", "drain", "nobody", env=user).returncode == 1


@pytest.mark.full
def test_more_workers_than_ray_has_room_for(user: dict[str, str]) -> None:
    up = telegrad("cluster", "up", "--workers=1", "--gpus=1", "--ready-s=20", env=user | {"CUDA_VISIBLE_DEVICES": ""})
    assert up.returncode == 1
    assert "Ray has not started gpu-0 in time" in up.stderr
    assert [row[1] for row in status_of(user)] == ["cpu-0"]


@pytest.mark.full
def test_machines_join_a_cluster_and_leave_it(tmp_path: Path) -> None:
    with ray_head(tmp_path) as env, ExitStack() as stack:
        first = stack.enter_context(joined(env))
        urls = [serving(first, ".*")]
        second = stack.enter_context(joined(env, "--name=second"))
        urls.append(serving(second, "second"))
        status = status_of(env)
        assert {row[-1] for row in status} == set(urls) and {row[2] for row in status} == {"ready"}
        processes = tree(first.pid)
        first.kill()
        wait_for_the_end([each for each in processes if each.pid != first.pid])
        wait_until(lambda: {row[1]: row[2][:6] for row in status_of(env)} == {"-": "silent", "second": "ready"})
        processes = tree(second.pid)
        second.terminate()
        assert second.wait(WAIT_S) == 0
        wait_for_the_end(processes)


@pytest.mark.full
def test_a_machine_that_has_joined_is_taken_down(tmp_path: Path) -> None:
    with ray_head(tmp_path) as env, joined(env, "--name=one") as process:
        serving(process, "one")
        taken = telegrad("cluster", "join", "--name=one", env=env)
        assert taken.returncode == 1 and "Ray takes no worker one" in taken.stderr and "Traceback" not in taken.stderr
        down = telegrad("cluster", "down", env=env)
        assert down.returncode == 0 and down.stdout == "1 workers have ended.\n"
        assert process.wait(WAIT_S) == 0
