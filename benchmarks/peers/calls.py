"""Helpers of the peers' scripts: start a server, time calls, and end when the parent does.

Scripts outside this project's environment import this module, so it depends only on the standard library.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOOPBACK = "127.0.0.1"
START_S = 90.0
END_S = 5.0


def answer(call: Callable[[], object]) -> None:
    """Print "ready"; then, for each number read from standard input, run that many calls and print the seconds."""
    print("ready", flush=True)
    for line in sys.stdin:
        count = int(line)
        start = time.perf_counter()
        for _ in range(count):
            call()
        print(time.perf_counter() - start, flush=True)


def end_with_input() -> None:
    """Make this process, a server, end when its standard input does, that is, when its parent ends."""

    def wait() -> None:
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def beside(script: str, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``script`` in another process for the duration of a block; closing its standard input ends it."""
    process = subprocess.Popen(
        [sys.executable, script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def serving(script: str, *arguments: str, **environment: str) -> Iterator[int]:
    """Run ``script`` as a server with a port and the arguments, and yield the port when it listens."""
    port = free_port()
    with beside(script, str(port), *arguments, **environment) as server:
        _wait_for(port, server)
        yield port


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"the server ended with code {server.returncode}")
        try:
            socket.create_connection((LOOPBACK, port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"the server does not listen after {START_S:g} s")
