"""``telegrad cluster``: workers on a real Ray, and how they end."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import telegrad as tg

from ... import in_process
from ...chaos import Trainer
from ...servers import running, telegrad
from ..api_keys import WAIT_S, sqlite, wait_until
from .process_tree import Process, listening_hosts, tree
from .ray_processes import WORKER, joined, ray_head, rows, serving, wait_for_the_end

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found by /proc"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is an extra"),
]


def status_of(env: dict[str, str]) -> list[list[str]]:
    """The cells of the list of workers."""
    listed = telegrad("cluster", "status", **env)
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


def test_an_address_without_ray_is_refused(tmp_path: Path) -> None:
    for address in ("127.0.0.1:1", "nonsense", "h:x", "http://h:1"):
        flags = f"--ray-address={address}", f"--database-url={sqlite(tmp_path)}"
        ended = in_process.telegrad("cluster", "status", *flags)
        assert ended.returncode == 1, address
        assert address in ended.stderr and "Traceback" not in ended.stderr, address


@contextmanager
def environment_of(folder: Path) -> Iterator[dict[str, str]]:
    """The environment of a user whose workers run in the background until the end of the block."""
    env = {"XDG_STATE_HOME": str(folder / "state"), "TELEGRAD_DATABASE_URL": sqlite(folder)}
    env["TELEGRAD_DATA_DIR"] = str(folder / "data")
    try:
        yield env
    finally:
        telegrad("cluster", "down", **env)


def state_of(user: dict[str, str]) -> Path:
    """The file about the Ray of a user."""
    return Path(user["XDG_STATE_HOME"], "telegrad", "cluster.json")


def processes_of(user: dict[str, str]) -> list[Process]:
    """The processes of a user that run in the background."""
    return tree(int(re.findall(r'"pid": (\d+)', state_of(user).read_text())[0]))


def start(user: dict[str, str], workers: int) -> None:
    up = telegrad("cluster", "up", f"--workers={workers}", "--cpus=0", **user)
    assert up.returncode == 0, up.stderr


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a user who has started two workers. Each of the next tests leaves them to the one after it."""
    with environment_of(tmp_path_factory.mktemp("user")) as env:
        start(env, 2)
        yield env


def test_workers_in_the_background(user: dict[str, str]) -> None:
    assert state_of(user).stat().st_mode & 0o777 == 0o600
    listed = status_of(user)
    assert {row[1] for row in listed} == {"cpu-0", "cpu-1"} and {row[2] for row in listed} == {"ready"}
    start(user, 2)
    assert status_of(user) == listed, "they are the same workers"
    assert listening_hosts(processes_of(user)) == {"127.0.0.1"}


def test_a_killed_actor_is_started_again(user: dict[str, str]) -> None:
    def workers() -> list[Process]:
        return [each for each in processes_of(user) if WORKER in each.command]

    before = workers()
    os.kill(before[0].parent, signal.SIGKILL)
    wait_until(lambda: bool(set(workers()) - set(before)))
    wait_until(lambda: sorted(row[1] for row in status_of(user) if row[2] == "ready") == ["cpu-0", "cpu-1"])


def test_a_drained_worker_ends_and_its_durable_sessions_go_on(user: dict[str, str]) -> None:
    with running("--database-url", user["TELEGRAD_DATABASE_URL"], command="gateway") as (url, _):
        trainer = Trainer(url, 1, 0.2, durable=True, name="run")
        trainer.start()
        trainer.wait_for(5)
        wait_until(lambda: any(row[4].startswith("1 of") for row in status_of(user)))
        owner = next(row[1] for row in status_of(user) if row[4].startswith("1 of"))
        drained = telegrad("cluster", "drain", owner, **user)
        assert drained.returncode == 0, drained.stderr
        trainer.wait_for(trainer.done + 5)
        trainer.finish()
        [left] = [row for row in status_of(user) if not row[2].startswith("silent")]  # the killed one is silent
        assert left[1] != owner
        with tg.connect(url) as session, tg.profiler.profile():
            assert tg.ones(1).item() == 1.0
            kept = telegrad("cluster", "drain", left[0], "--wait-s=3", **user)
            assert kept.returncode == 1 and "has 1 that cannot move" in kept.stderr and "a profile runs" in kept.stderr
            assert session.id
        assert telegrad("cluster", "drain", "nobody", **user).returncode == 1


def test_down_ends_all_processes(user: dict[str, str]) -> None:
    processes = processes_of(user)
    down = telegrad("cluster", "down", **user)
    assert down.returncode == 0, down.stderr
    wait_for_the_end(processes)
    assert not state_of(user).exists()
    assert "no Ray runs in the background" in telegrad("cluster", "down", **user).stderr


def test_more_workers_than_ray_has_room_for(tmp_path: Path) -> None:
    with environment_of(tmp_path) as user:
        env = user | {"CUDA_VISIBLE_DEVICES": ""}
        up = telegrad("cluster", "up", "--workers=1", "--gpus=1", "--ready-s=20", **env)
        assert up.returncode == 1
        assert "Ray has not started gpu-0 in time" in up.stderr
        assert [row[1] for row in status_of(user)] == ["cpu-0"]


def test_machines_join_a_cluster_and_leave_it(tmp_path: Path) -> None:
    with ray_head(tmp_path) as env, ExitStack() as stack:
        first = stack.enter_context(joined(env))
        urls = [serving(first, ".*")]
        second = stack.enter_context(joined(env, "--name=second"))
        urls.append(serving(second, "second"))
        status = status_of(env)
        assert {row[-1] for row in status} == set(urls) and {row[2] for row in status} == {"ready"}
        taken = telegrad("cluster", "join", "--name=second", **env)
        assert taken.returncode == 1
        assert "Ray takes no worker second" in taken.stderr and "Traceback" not in taken.stderr
        processes = tree(first.pid)
        first.kill()
        wait_for_the_end([each for each in processes if each.pid != first.pid])
        wait_until(lambda: {row[1]: row[2][:6] for row in status_of(env)} == {"-": "silent", "second": "ready"})
        processes = tree(second.pid)
        second.terminate()
        assert second.wait(WAIT_S) == 0
        wait_for_the_end(processes)
        third = stack.enter_context(joined(env, "--name=third"))
        serving(third, "third")
        down = telegrad("cluster", "down", **env)
        assert down.returncode == 0 and down.stdout == "1 workers have ended.\n"
        assert third.wait(WAIT_S) == 0
