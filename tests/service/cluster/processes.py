"""Gateways and workers as processes, which tests start, stop and kill.

Internals: only the directory says which worker has a session.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from telegrad_service.cluster.directory import Directory, WorkerState
from telegrad_service.database import Database

from ...servers import running
from ..api_keys import WAIT_S, sqlite, wait_until
from ..conftest import SessionClient

MAX_SESSIONS = 256
"""How many sessions a worker may hold by default."""


class Started(NamedTuple):
    """A process and its address."""

    url: str
    process: subprocess.Popen[str]
    usual: bool
    """Whether it was started without flags of a test."""

    def kill(self) -> None:
        """End it by SIGKILL."""
        self.process.kill()
        self.process.wait(WAIT_S)

    def stop(self) -> None:
        """End it by SIGTERM."""
        self.process.terminate()
        self.process.wait(WAIT_S)

    def pause(self) -> None:
        """Stop it by SIGSTOP, wherever it is."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on after :meth:`pause`."""
        os.kill(self.process.pid, signal.SIGCONT)


class Cluster:
    """The processes of a cluster on one database and one data folder."""

    def __init__(self, folder: Path, database: str, stack: ExitStack) -> None:
        self.folder, self.database, self._stack = folder, database, stack
        self.workers: list[Started] = []
        self.gateways: list[Started] = []
        self.client: httpx.Client
        opened = Database(database)
        stack.callback(opened.close)
        self.directory = Directory(opened)

    def add_worker(self, *flags: str, data: bool = True, prepare: Callable[[], None] | None = None) -> Started:
        """Start a worker; ``prepare`` is called in its process first."""
        folder = ("--data-dir", str(self.folder / "data")) if data else ()
        usual = data and not flags and prepare is None
        self.workers.append(self._start("worker", *folder, *flags, prepare=prepare, usual=usual))
        return self.workers[-1]

    def add_gateway(self, *flags: str) -> Started:
        """Start a gateway."""
        self.gateways.append(self._start("gateway", *flags, usual=not flags))
        return self.gateways[-1]

    def _start(self, command: str, *flags: str, usual: bool, prepare: Callable[[], None] | None = None) -> Started:
        started = running("--database-url", self.database, *flags, command=command, prepare=prepare)
        url, process = self._stack.enter_context(started)
        # A stopped process would not end with the tests.
        self._stack.callback(lambda: process.poll() is None and process.send_signal(signal.SIGCONT))
        return Started(url, process, usual)

    def client_of(self, gateway: Started) -> httpx.Client:
        """A client of a gateway."""
        return self._stack.enter_context(httpx.Client(base_url=gateway.url, timeout=WAIT_S))

    def _owner(self, session_id: str) -> Started | None:
        placed = self.directory.find(session_id)
        assert placed is not None, "the directory has no such session"
        urls = {worker.id: worker.url for worker in self.directory.workers()}
        return next((worker for worker in self.workers if worker.url == urls.get(placed.worker or "")), None)

    def owner(self, session_id: str) -> Started:
        """The worker that has a session, according to the directory."""
        found = self._owner(session_id)
        assert found is not None, "no worker has the session"
        return found

    def has(self, worker: Started, session_id: str) -> bool:
        """Whether a worker has a session."""
        found = self._owner(session_id)
        return found is not None and found.url == worker.url

    def restore(self, workers: int, gateways: int) -> None:
        """Return to so many usual workers and gateways without sessions, whatever a test has done to the cluster."""
        for each in self.workers:
            if each.process.poll() is None:
                each.go_on()
        ready = {
            each.url for each in self.directory.workers() if each.state is WorkerState.READY and each.overdue_s < 0
        }
        kept = [each for each in self.workers if each.usual and each.process.poll() is None and each.url in ready]
        for each in (*self.workers, *self.gateways[gateways:]):
            if each not in kept[:workers]:
                each.kill()
        self.workers, self.gateways = kept[:workers], self.gateways[:gateways]
        urls = {each.url for each in self.workers}
        for row in self.directory.workers():
            if row.alive and row.url not in urls:
                self.directory.leave(row.id)
        while len(self.workers) < workers:
            self.add_worker()
        self.wait_for_workers(workers)
        for item in self.client.get("/v1/sessions", params={"limit": 1000}).json()["items"]:
            self.client.delete(f"/v1/sessions/{item['id']}")

    def wait_for_workers(self, count: int) -> None:
        """Wait until each gateway has so many workers that are ready."""

        def ready(gateway: Started) -> bool:
            found = httpx.get(f"{gateway.url}/readyz", timeout=WAIT_S, verify=False)
            return found.status_code == 503 if not count else found.json().get("max_sessions") == count * MAX_SESSIONS

        for gateway in self.gateways:
            wait_until(lambda: ready(gateway))  # noqa: B023  # it is called here


@contextmanager
def cluster(workers: int = 2, gateways: int = 1, database: str | None = None, data: bool = True) -> Iterator[Cluster]:
    """A cluster; with ``data``, its workers have a data folder. Its ``client`` is a client of the first gateway."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        found = Cluster(Path(folder), database or sqlite(Path(folder)), stack)
        for _ in range(workers):
            found.add_worker(data=data)
        for _ in range(gateways):
            found.add_gateway()
        found.wait_for_workers(workers)
        if found.gateways:
            found.client = found.client_of(found.gateways[0])
        yield found


def answer_of(session: SessionClient, path: str) -> httpx.Response:
    """The first answer that is not 503."""
    answers: list[httpx.Response] = []

    def answered() -> bool:
        answers.append(session.get(path))
        return answers[-1].status_code != 503

    wait_until(answered)
    return answers[-1]
