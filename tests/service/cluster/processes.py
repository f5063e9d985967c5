"""Gateways and workers as processes, which tests start, kill and stop.

Internals: which worker has a session is in the directory alone.
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

from telegrad_service.cluster.directory import Directory
from telegrad_service.database import Database

from ...servers import running
from ..api_keys import WAIT_S, sqlite, wait_until

MAX_SESSIONS = 256
"""How many sessions a worker may hold by default."""


class Started(NamedTuple):
    """A process and its address."""

    url: str
    process: subprocess.Popen[str]

    def kill(self) -> None:
        """End it by SIGKILL."""
        self.process.kill()
        self.process.wait(WAIT_S)

    def stop(self) -> None:
        """End it in order."""
        self.process.terminate()
        self.process.wait(WAIT_S)

    def pause(self) -> None:
        """Stop it where it is."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on."""
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
        """Start a worker; ``prepare`` is called in its process before."""
        kept = ("--data-dir", str(self.folder / "data")) if data else ()
        self.workers.append(self._start("worker", *kept, *flags, prepare=prepare))
        return self.workers[-1]

    def add_gateway(self, *flags: str) -> Started:
        """Start a gateway."""
        self.gateways.append(self._start("gateway", *flags))
        return self.gateways[-1]

    def _start(self, command: str, *flags: str, prepare: Callable[[], None] | None = None) -> Started:
        started = running("--database-url", self.database, *flags, command=command, prepare=prepare)
        url, process = self._stack.enter_context(started)
        # A process that stands still would not end with the tests.
        self._stack.callback(lambda: process.poll() is None and process.send_signal(signal.SIGCONT))
        return Started(url, process)

    def client_of(self, gateway: Started) -> httpx.Client:
        """A client of a gateway."""
        return self._stack.enter_context(httpx.Client(base_url=gateway.url, timeout=WAIT_S))

    def owner(self, session_id: str) -> Started | None:
        """The worker that has a session, according to the directory; None if none has."""
        placed = self.directory.find(session_id)
        assert placed is not None, "the directory has no such session"
        urls = {worker.id: worker.url for worker in self.directory.workers()}
        return next((worker for worker in self.workers if worker.url == urls.get(placed.worker or "")), None)

    def has(self, worker: Started, session_id: str) -> bool:
        """Whether a worker has a session."""
        found = self.owner(session_id)
        return found is not None and found.url == worker.url

    def wait_for_workers(self, count: int) -> None:
        """Wait until the gateways know of this many workers that are ready."""

        def ready(gateway: Started) -> bool:
            found = httpx.get(f"{gateway.url}/readyz", timeout=WAIT_S)
            return found.status_code == 503 if not count else found.json().get("max_sessions") == count * MAX_SESSIONS

        for gateway in self.gateways:
            wait_until(lambda: ready(gateway))  # noqa: B023  # it is called here


@contextmanager
def cluster(workers: int = 2, gateways: int = 1, database: str | None = None, data: bool = True) -> Iterator[Cluster]:
    """A cluster, whose workers have a data folder with ``data``; ``client`` is a client of the first gateway."""
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
