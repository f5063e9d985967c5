"""Workers on a real Ray: ``telegrad serve --workers`` and ``telegrad cluster``; what is killed, and what is left."""

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
from typing import NamedTuple

import httpx
import pytest

import telegrad as tg

from ... import chaos
from ...servers import running
from ..api_keys import WAIT_S, sqlite, wait_until
from .process_tree import Process, listening_hosts, tree
from .ray_processes import CLI, WORKER, joined, ray_head, serving, wait_for_the_end

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found by /proc"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is an extra"),
]
STEPS = 1500


class Server(NamedTuple):
    """A running ``telegrad serve --workers``."""

    url: str
    process: subprocess.Popen[str]
    database: str

    def workers(self) -> list[Process]:
        """The processes of workers that run now."""
        return [each for each in tree(self.process.pid) if WORKER in each.command]

    def client(self) -> httpx.Client:
        """A client of the gateway."""
        return httpx.Client(base_url=self.url, timeout=WAIT_S)

    def wait_for_workers(self, count: int) -> None:
        """Wait until the gateway knows of so many workers that are ready."""
        with self.client() as client:
            wait_until(lambda: client.get("/readyz").json().get("max_sessions") == count * 256)


@contextmanager
def served(folder: Path, *flags: str) -> Iterator[Server]:
    database = sqlite(folder)
    with running("--database-url", database, "--data-dir", str(folder / "data"), *flags) as (url, process):
        found = Server(url, process, database)
        found.wait_for_workers(2)
        yield found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("serve"), "--workers", "2") as found:
        yield found


def telegrad(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A command, and what it printed."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TELEGRAD_", "RAY_"))}
    return subprocess.run(
        [*CLI, *arguments], capture_output=True, text=True, timeout=2 * WAIT_S, env=inherited | (env or {})
    )


def rows(table: str) -> list[list[str]]:
    """The cells of a table, without its headings."""
    return [re.split(r"  +", line) for line in table.splitlines()[1:]]


def status_of(env: dict[str, str]) -> list[list[str]]:
    """The cells of the list of workers."""
    listed = telegrad("cluster", "status", env=env)
    assert listed.returncode == 0, listed.stderr
    return rows(listed.stdout)


def test_sessions_are_on_all_workers(server: Server) -> None:
    with tg.connect(server.url, seed=3), tg.connect(server.url, seed=3), server.client() as client:
        sessions = client.get("/v1/sessions").json()["items"]

        def status() -> list[tuple[str, str]]:
            listed = telegrad("cluster", "status", "--database-url", server.database)
            assert listed.returncode == 0, listed.stderr
            return [(row[2], row[4]) for row in rows(listed.stdout)]

        wait_until(lambda: status() == [("ready", "1 of 256")] * len(sessions))  # workers report each second
        assert client.get("/v1/devices").json()["items"][0]["name"] == "cpu"


def test_it_computes_as_one_process_does(server: Server) -> None:
    there, here = (chaos.Trainer(url, 5, 50) for url in (server.url, "local://"))
    there.train()
    here.train()
    assert there.losses == here.losses


def test_nothing_listens_beyond_this_machine(server: Server) -> None:
    processes = tree(server.process.pid)
    assert any("raylet" in each.command for each in processes)
    assert listening_hosts(processes) == {"127.0.0.1"}


@pytest.mark.parametrize("victim", ["worker", pytest.param("actor", marks=pytest.mark.full)])
def test_killed_workers_are_started_again_and_sessions_go_on(server: Server, victim: str) -> None:
    before = server.workers()
    trainer = chaos.Trainer(server.url, 1, STEPS, durable=True, name=f"run {victim}")
    trainer.start()
    wait_until(lambda: len(trainer.losses) > 20 or trainer.failure is not None)
    for each in before:
        os.kill(each.pid if victim == "worker" else each.parent, signal.SIGKILL)
        others = {each, *server.workers()}
        wait_until(lambda: len(set(server.workers()) - others) == 1)  # noqa: B023  # it is called here
        server.wait_for_workers(2)
    trainer.join(2 * WAIT_S)
    assert not trainer.is_alive() and trainer.failure is None
    now = server.workers()
    assert len(now) == 2 and not set(now) & set(before)
    twin = chaos.Trainer("local://", 1, STEPS)
    twin.train()
    assert trainer.losses == twin.losses


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT], ids=lambda number: number.name)
def test_nothing_is_left_when_it_ends(tmp_path: Path, number: signal.Signals) -> None:
    with served(tmp_path, "--workers", "2") as server:
        processes = tree(server.process.pid)
        os.kill(server.process.pid, number)
        assert server.process.wait(WAIT_S) == (-number if number is signal.SIGKILL else 0)
        wait_for_the_end(processes)


@pytest.mark.full
def test_it_ends_when_its_ray_ends(tmp_path: Path) -> None:
    with served(tmp_path, "--workers", "2") as server:
        processes = tree(server.process.pid)
        [keeper] = [each for each in processes if each.parent == server.process.pid]
        os.kill(keeper.pid, signal.SIGKILL)
        _, logged = server.process.communicate(timeout=WAIT_S)
        assert server.process.returncode == 1
        assert "Ray has ended with code -9, and with it the workers" in logged
        wait_for_the_end(processes)


@pytest.mark.full
def test_workers_that_do_not_start_end_the_command_with_their_reason(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    flags = ["--workers=1", "--port=0", f"--data-dir={file / 'data'}", f"--database-url={sqlite(tmp_path)}"]
    ended = telegrad("serve", *flags)
    assert ended.returncode == 1 and "serves at" not in ended.stdout
    assert "worker worker-0 does not start" in ended.stderr and str(file) in ended.stderr


WITHOUT_RAY = "import sys; sys.modules['ray'] = None; from telegrad_service.cli import main; main(sys.argv[1:])"


@pytest.mark.every
@pytest.mark.parametrize(
    "arguments", [["serve", "--workers=2", "--port=0"], ["cluster", "up"], ["cluster", "join", "--ray-address=h:1"]]
)
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
