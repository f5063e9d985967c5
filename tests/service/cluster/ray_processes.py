"""A Ray cluster as processes on this machine: its head, and machines that join it with one worker each."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...servers import free_port
from ..api_keys import WAIT_S, sqlite, wait_until
from .process_tree import Process, tree

WORKER = "telegrad_service.cli worker "
"""A part of the command line of every worker."""
CLI = [sys.executable, "-W", "error", "-m", "telegrad_service.cli"]
HEAD = "127.0.0.2"
"""The address of the head: Ray would replace 127.0.0.1 by another address of the machine."""


def rows(table: str) -> list[list[str]]:
    """The cells of a table, without its headings."""
    return [re.split(r"  +", line) for line in table.splitlines()[1:]]


def wait_for_the_end(processes: list[Process]) -> None:
    """Wait until these processes have ended; end those that do not."""
    try:
        wait_until(lambda: not any(each.alive for each in processes))
    finally:
        for each in processes:
            if each.alive:
                os.kill(each.pid, signal.SIGKILL)


class Head:
    """The head of a Ray cluster that takes a token, always at the same port, with CPUs for so many workers."""

    def __init__(self, folder: Path, cpus: int = 0) -> None:
        self._port = free_port()
        self._folder, self._cpus = folder, cpus
        ray = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": os.urandom(32).hex(), "RAY_USAGE_STATS_ENABLED": "0"}
        self._env = os.environ | ray | {"RAY_worker_niceness": "0"}
        self.env = ray | {"TELEGRAD_RAY_ADDRESS": f"{HEAD}:{self._port}"}
        """The environment of processes that use this Ray cluster."""
        self.start()

    def start(self) -> None:
        """Start it."""
        self._temporary = tempfile.TemporaryDirectory(prefix="head-")
        flags = ["--head", "--block", f"--port={self._port}", f"--node-ip-address={HEAD}"]
        flags += [
            f"--num-cpus={self._cpus}",
            "--num-gpus=0",
            "--include-dashboard=false",
            f"--temp-dir={self._temporary.name}",
        ]
        flags += ["--min-worker-port=0", "--max-worker-port=0", f"--object-store-memory={80 * 2**20}"]
        # Within our process for a Ray node, which ends with this one.
        command = [sys.executable, "-m", "telegrad_service.cluster.ray_nodes", str(os.getpid()), "start", *flags]
        with open(self._folder / "head.log", "a") as log:
            self._process = subprocess.Popen(command, env=self._env, stdout=log, stderr=log)

    def processes(self) -> list[Process]:
        """Its processes, and those of the workers on it."""
        return tree(self._process.pid)

    def stop(self) -> None:
        """End it in order."""
        processes = self.processes()
        self._process.terminate()
        self._process.wait(WAIT_S)
        self._clean(processes)

    def kill(self) -> None:
        """End all its processes by SIGKILL."""
        processes = self.processes()
        for each in processes:
            if each.alive:
                os.kill(each.pid, signal.SIGKILL)
        self._process.wait(WAIT_S)
        self._clean(processes)

    def _clean(self, processes: list[Process]) -> None:
        wait_for_the_end(processes)
        self._temporary.cleanup()


@contextmanager
def ray_head(folder: Path) -> Iterator[dict[str, str]]:
    """A head, and a SQLite database: the environment of the machines that join it."""
    head = Head(folder)
    try:
        yield head.env | {"TELEGRAD_DATABASE_URL": sqlite(folder)}
    finally:
        head.stop()


def serving(process: subprocess.Popen[str], name: str) -> str:
    """The address of a worker that has joined."""
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.fullmatch(f"Telegrad worker {name} serves at (.*)\\n", line)
    assert found is not None, (line, process.wait(WAIT_S))
    return found[1]


@contextmanager
def joined(env: dict[str, str], *flags: str) -> Iterator[subprocess.Popen[str]]:
    """``telegrad cluster join``, ended after the block."""
    command = [*CLI, "cluster", "join", "--end-with-stdin=true", *flags]
    pipe = subprocess.PIPE
    # What it logs is on the tests' own standard error, which is shown if a test fails.
    with subprocess.Popen(command, env=os.environ | env, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()
