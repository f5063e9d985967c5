"""Twelve sessions train through a gateway while a worker, PostgreSQL, the gateway or Ray is killed or stopped.

The users compare their sessions with undisturbed ones in this process, bit for bit (tests/chaos.py). The summary of the
test run shows how many seconds the sessions needed to resume.

Internals: only the directory says which worker has a session.
"""

from __future__ import annotations

import importlib.util
import os
import signal
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

from ...chaos import User
from ...conftest import RESUMED
from ...servers import free_port, running
from ..api_keys import WAIT_S, wait_until
from ..conftest import SessionClient, problem
from ..databases import FAST, IMMEDIATE, PostgreSQL, running_postgres
from .load import Load, load, resumed_s
from .process_tree import Process, listening
from .ray_processes import CLI, WORKER, Head

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found by /proc"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is an extra"),
]
WORKERS = 2
TRAINERS, CLIENTS = 8, 4
PAUSE_S = 0.3
"""Seconds between two steps of a user, on average."""
STOPPED_S = 12
"""Seconds that a worker is stopped: more than twice its lease."""
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
        self.client = stack.enter_context(httpx.Client(timeout=WAIT_S))
        self._port = free_port()
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
        """The header with which a client may send requests for a session to its worker, without the gateway."""
        found = self.client.get(f"{self.url}/v1/sessions/{session}/endpoint").json()
        return {"Authorization": f"Bearer {found['token']}"}

    def answers(self, session: str) -> bool:
        """Whether the gateway answers for a session, and does not ask to wait."""
        found = self.client.get(f"{self.url}/v1/sessions/{session}")
        assert found.status_code == 200 or (found.status_code == 503 and "retry-after" in found.headers), found.text
        return found.status_code == 200

    def start_workers(self) -> None:
        """Start the workers on Ray, and wait until the gateway uses them."""
        # They start beside the load of all users, which try to connect again.
        flags = (f"--workers={WORKERS}", "--cpus=1", f"--ready-s={WAIT_S}", "--database-url", self._database)
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
        """Wait until the gateway uses all workers."""
        wait_until(lambda: self.client.get(f"{self.url}/readyz").json().get("max_sessions") == WORKERS * 256)

    def ready(self) -> list[Worker]:
        """The workers that are ready."""
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

    def disturbed(self, worker: Worker, found: Load) -> list[User]:
        """The users whose sessions a worker has."""
        users = [user for user in found.users if self.has(worker, user.session)]
        assert users
        return users


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_postgres() as postgres, ExitStack() as stack:
        yield Cluster(tmp_path_factory.mktemp("cluster"), postgres, stack)


@pytest.fixture
def users(cluster: Cluster) -> Iterator[Load]:
    """Users, each of whom has taken a few steps."""
    with load(cluster.url, TRAINERS, CLIENTS, PAUSE_S) as found:
        yield found


def test_sessions_go_on_after_their_worker_was_killed(
    cluster: Cluster, users: Load, record_property: Callable[[str, object], None]
) -> None:
    victim = cluster.ready()[0]
    disturbed = cluster.disturbed(victim, users)
    os.kill(cluster.process(victim).pid, signal.SIGKILL)
    killed = time.monotonic()
    users.advance()
    cluster.wait_for_workers()
    users.finish()
    seconds = resumed_s(disturbed, killed)
    record_property(RESUMED, ("a worker was killed", len(seconds), median(seconds), max(seconds)))


def test_a_stopped_worker_loses_its_sessions(
    cluster: Cluster, users: Load, record_property: Callable[[str, object], None]
) -> None:
    """After SIGCONT it answers for none of them, not even to tokens that gateways made before."""
    with httpx.Client(base_url=cluster.url, timeout=WAIT_S) as client:
        volatile = [SessionClient(client).id for _ in range(2 * WORKERS)]
    stopped = next(worker for worker in cluster.ready() if cluster.has(worker, volatile[0]))
    lost = [session for session in volatile if cluster.has(stopped, session)]
    disturbed = cluster.disturbed(stopped, users)
    before = {user: cluster.directory.find(user.session) for user in disturbed}
    tokens = {session: cluster.direct(session) for session in (*lost, *(user.session for user in disturbed))}
    process = cluster.process(stopped)
    os.kill(process.pid, signal.SIGSTOP)
    since = time.monotonic()
    try:
        users.advance()
        while time.monotonic() < since + STOPPED_S:
            users.advance(1)
    finally:
        os.kill(process.pid, signal.SIGCONT)
    for session, token in tokens.items():
        path = f"{stopped.url}/v1/sessions/{session}"
        for answer in (
            cluster.client.get(f"{path}/tensors", headers=token),
            cluster.client.post(f"{path}/programs", json=CREATES, headers=token),
        ):
            problem(answer, 503, "session-moved")
    cluster.wait_for_workers()  # it has joined again, under another id
    assert process.alive and stopped.id not in {worker.id for worker in cluster.ready()}
    users.advance()
    for user, placed in before.items():
        now = cluster.directory.find(user.session)
        assert placed is not None and now is not None
        assert now.epoch == placed.epoch + 1 and now.worker not in (None, stopped.id)
    for session in lost:
        problem(cluster.client.get(f"{cluster.url}/v1/sessions/{session}"), 410, "session-lost")
    users.finish()
    seconds = resumed_s(disturbed, since)
    record_property(RESUMED, ("a worker was stopped", len(seconds), median(seconds), max(seconds)))


def test_sessions_go_on_after_postgresql_the_gateway_and_ray_were_restarted(cluster: Cluster, users: Load) -> None:
    cluster.postgres.stop(FAST)
    cluster.postgres.start()
    users.advance()

    # PostgreSQL crashes, and is away for longer than the workers' leases last.
    session = users.users[0].session
    cluster.postgres.stop(IMMEDIATE)
    wait_until(lambda: not cluster.answers(session))
    cluster.postgres.start()
    users.advance()

    cluster.kill_gateway()
    cluster.start_gateway()
    users.advance()

    # Ray's head is the node that all workers are on.
    cluster.head.kill()
    cluster.head.start()
    cluster.start_workers()
    users.advance()
    users.finish()
