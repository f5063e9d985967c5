"""A hundred sessions train through a gateway while a worker, PostgreSQL, the gateway or Ray is killed or stands still.

The clients hold what they were told against undisturbed sessions in this process, bit for bit (load.py). The seconds
that sessions take to go on are printed at the end of the tests' output.

Internals: which worker has a session is in the directory alone.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import httpx
import pytest

from telegrad_service.cluster.directory import Directory, Worker, WorkerState
from telegrad_service.database import Database

from ...conftest import RESUMED
from ...servers import running
from ..api_keys import WAIT_S, wait_until
from ..conftest import SessionClient, problem
from ..databases import FAST, IMMEDIATE, PostgreSQL, running_postgres
from .load import Caller, Load, Trainer, load, resumed_s
from .process_tree import Process, listening
from .ray_processes import CLI, WORKER, Head

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found by /proc"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is an extra"),
]
WORKERS = 2
TRAINERS, CALLERS = 80, 20
PAUSED_S = 30
CREATES = {"instructions": [{"op": "ones", "out": ["second_owner"], "attrs": {"size": [1]}}]}


class Cluster:
    """PostgreSQL, Ray with two workers, and a gateway that is always at the same port."""

    def __init__(self, folder: Path, postgres: PostgreSQL, stack: ExitStack) -> None:
        self.postgres, self._folder, self._stack = postgres, folder, stack
        self._database = postgres.new_database()
        self.head = Head(folder, WORKERS)
        stack.callback(self.stop)
        opened = Database(self._database)
        stack.callback(opened.close)
        self.directory = Directory(opened)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.start_gateway()
        self.start_workers()

    def start_gateway(self) -> None:
        """Start the gateway."""
        # Nobody reads its log, and a process stands still when the pipe is full.
        flags = ("--database-url", self._database, "--log-level=error")
        self.url, self.gateway = self._stack.enter_context(running(*flags, command="gateway", port=self._port))

    def kill_gateway(self) -> None:
        """End the gateway by SIGKILL."""
        self.gateway.kill()
        self.gateway.wait(WAIT_S)

    def direct(self, session: str) -> dict[str, str]:
        """The header with which a client may reach a session's worker past the gateway."""
        found = httpx.get(f"{self.url}/v1/sessions/{session}/endpoint", timeout=WAIT_S).json()
        return {"Authorization": f"Bearer {found['token']}"}

    def answers(self, session: str) -> bool:
        """Whether the gateway answers for a session, and does not ask to wait."""
        found = httpx.get(f"{self.url}/v1/sessions/{session}", timeout=WAIT_S)
        assert found.status_code == 200 or (found.status_code == 503 and "retry-after" in found.headers), found.text
        return found.status_code == 200

    def start_workers(self) -> None:
        """Start the workers on Ray, and wait until the gateway counts on them."""
        flags = (f"--workers={WORKERS}", "--cpus=1", "--database-url", self._database)
        self._run("up", *flags, "--data-dir", str(self._folder / "data"))
        self.wait_for_workers()

    def _run(self, *arguments: str) -> None:
        """Run ``telegrad cluster``."""
        env = os.environ | self.head.env
        command = [*CLI, "cluster", *arguments]
        ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=2 * WAIT_S)
        assert ended.returncode == 0, ended.stderr

    def stop(self) -> None:
        """End the workers and Ray."""
        self._run("down", "--drain-s=5")
        self.head.stop()

    def wait_for_workers(self) -> None:
        """Wait until the gateway counts on all workers."""
        wait_until(lambda: httpx.get(f"{self.url}/readyz").json().get("max_sessions") == WORKERS * 256)

    def ready(self) -> list[Worker]:
        """The workers that count as ready."""
        return [each for each in self.directory.workers() if each.state is WorkerState.READY and each.overdue_s < 0]

    def process(self, worker: Worker) -> Process:
        """The process of a worker."""
        port = urlsplit(worker.url).port
        workers = [each for each in self.head.processes() if WORKER in each.command]
        return next(each for each in workers if port in {found for _, found in listening([each])})

    def has(self, worker: Worker, session: str) -> bool:
        """Whether a worker has a session."""
        placed = self.directory.find(session)
        return placed is not None and placed.worker == worker.id

    def disturbed(self, worker: Worker, found: Load) -> list[Trainer | Caller]:
        """The clients whose sessions a worker has."""
        clients = [client for client in found.clients if self.has(worker, client.session)]
        assert clients
        return clients


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_postgres() as postgres, ExitStack() as stack:
        yield Cluster(tmp_path_factory.mktemp("cluster"), postgres, stack)


@pytest.fixture
def clients(cluster: Cluster) -> Iterator[Load]:
    """The clients, each of which has taken a few steps."""
    with load(cluster.url, TRAINERS, CALLERS) as found:
        yield found


def test_sessions_go_on_after_their_worker_was_killed(
    cluster: Cluster, clients: Load, record_property: Callable[[str, object], None]
) -> None:
    victim = cluster.ready()[0]
    disturbed = cluster.disturbed(victim, clients)
    os.kill(cluster.process(victim).pid, signal.SIGKILL)
    killed = time.monotonic()
    clients.advance()
    cluster.wait_for_workers()
    clients.finish()
    seconds = resumed_s(disturbed, killed)
    record_property(RESUMED, ("a worker was killed", len(seconds), median(seconds), max(seconds)))


def test_a_worker_that_stood_still_owns_nothing_any_more(
    cluster: Cluster, clients: Load, record_property: Callable[[str, object], None]
) -> None:
    """It is asked itself, with the tokens that gateways made for it before: it answers for no session."""
    with httpx.Client(base_url=cluster.url, timeout=WAIT_S) as user:
        volatile = [SessionClient(user).id for _ in range(2 * WORKERS)]
    paused = next(worker for worker in cluster.ready() if cluster.has(worker, volatile[0]))
    lost = [session for session in volatile if cluster.has(paused, session)]
    disturbed = cluster.disturbed(paused, clients)
    before = {client: cluster.directory.find(client.session) for client in disturbed}
    tokens = {session: cluster.direct(session) for session in (*lost, *(client.session for client in disturbed))}
    process = cluster.process(paused)
    os.kill(process.pid, signal.SIGSTOP)
    stopped = time.monotonic()
    try:
        clients.advance()
        while time.monotonic() < stopped + PAUSED_S:
            clients.advance(1)
    finally:
        os.kill(process.pid, signal.SIGCONT)
    for session, token in tokens.items():
        path = f"{paused.url}/v1/sessions/{session}"
        for answer in (
            httpx.get(f"{path}/tensors", headers=token, timeout=WAIT_S),
            httpx.post(f"{path}/programs", json=CREATES, headers=token, timeout=WAIT_S),
        ):
            problem(answer, 503, "session-moved")
    cluster.wait_for_workers()  # it has joined again, under another id
    assert process.alive and paused.id not in {worker.id for worker in cluster.ready()}
    clients.advance()
    for client, placed in before.items():
        now = cluster.directory.find(client.session)
        assert placed is not None and now is not None
        assert now.epoch == placed.epoch + 1 and now.worker not in (None, paused.id)
    for session in lost:
        problem(httpx.get(f"{cluster.url}/v1/sessions/{session}", timeout=WAIT_S), 410, "session-lost")
    clients.finish()
    seconds = resumed_s(disturbed, stopped)
    record_property(RESUMED, ("a worker stood still", len(seconds), median(seconds), max(seconds)))


def test_each_part_is_restarted(cluster: Cluster, clients: Load) -> None:
    cluster.postgres.stop(FAST)
    cluster.postgres.start()
    clients.advance()

    # PostgreSQL crashes, and is away for longer than the workers' leases last.
    session = clients.clients[0].session
    cluster.postgres.stop(IMMEDIATE)
    wait_until(lambda: not cluster.answers(session))
    cluster.postgres.start()
    clients.advance()

    cluster.kill_gateway()
    cluster.start_gateway()
    clients.advance()

    # Ray's head is the node that all workers are on.
    cluster.head.kill()
    cluster.head.start()
    cluster.start_workers()
    clients.advance()
    clients.finish()
