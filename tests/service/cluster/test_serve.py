"""``telegrad serve --workers``: what its workers compute, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

import telegrad as tg

from ... import in_process
from ...chaos import Trainer
from ...servers import running, telegrad
from ..api_keys import WAIT_S, sqlite, wait_until
from .process_tree import Process, listening_hosts, tree
from .ray_processes import WORKER, rows, wait_for_the_end

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found by /proc"),
]


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


def test_sessions_are_on_all_workers(server: Server) -> None:
    with tg.connect(server.url, seed=3), tg.connect(server.url, seed=3), server.client() as client:
        sessions = client.get("/v1/sessions").json()["items"]

        def status() -> list[tuple[str, str]]:
            listed = in_process.telegrad("cluster", "status", "--database-url", server.database)
            assert listed.returncode == 0, listed.stderr
            return [(row[2], row[4]) for row in rows(listed.stdout)]

        wait_until(lambda: status() == [("ready", "1 of 256")] * len(sessions))  # workers report each second
        assert client.get("/v1/devices").json()["items"][0]["name"] == "cpu"


def test_its_processes_listen_on_loopback_alone(server: Server) -> None:
    processes = tree(server.process.pid)
    assert len(server.workers()) == 2
    assert listening_hosts(processes) == {"127.0.0.1"}


def test_killed_workers_are_started_again_and_sessions_go_on(server: Server) -> None:
    before = server.workers()
    trainer = Trainer(server.url, 1, 0.1, durable=True, name="run")
    trainer.start()
    for worker in before:
        trainer.wait_for(trainer.done + 5)
        os.kill(worker.pid, signal.SIGKILL)
        others = {worker, *server.workers()}
        wait_until(lambda: len(set(server.workers()) - others) == 1)  # noqa: B023  # it is called here
        server.wait_for_workers(2)
    trainer.wait_for(trainer.done + 5)
    trainer.finish()
    now = server.workers()
    assert len(now) == 2 and not set(now) & set(before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT], ids=lambda number: number.name)
def test_its_processes_end_with_it(tmp_path: Path, number: signal.Signals) -> None:
    with served(tmp_path, "--workers", "2") as server:
        processes = tree(server.process.pid)
        os.kill(server.process.pid, number)
        assert server.process.wait(WAIT_S) == (-number if number is signal.SIGKILL else 0)
        wait_for_the_end(processes)


def test_the_command_ends_with_the_error_of_a_worker_that_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    flags = ["--workers=1", "--port=0", f"--data-dir={file / 'data'}", f"--database-url={sqlite(tmp_path)}"]
    ended = telegrad("serve", *flags)
    assert ended.returncode == 1 and "serves at" not in ended.stdout
    assert "worker worker-0 does not start" in ended.stderr and str(file) in ended.stderr
