"""A server of one's own for the length of a ``with`` block: for demos, benchmarks, tests and notebooks."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

STOP_S = 15.0
"""Seconds that the server gets to end after SIGTERM."""


@contextmanager
def running_server(*flags: str, **settings: object) -> Iterator[str]:
    """Start ``telegrad serve`` on a free loopback port, yield its address, stop it at the end.

    ``settings`` are the server's, by name: ``running_server(max_sessions=4)``. Raises RuntimeError with
    what the server printed if it ends before it listens.
    """
    given = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    command = [sys.executable, "-m", "telegrad_service.cli", "serve", "--port=0", *given, *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield _address(process)
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    printed = []
    for line in process.stdout:
        printed.append(line)
        found = re.search(r"https?://\S+", line)
        if found:
            return found.group()
    raise RuntimeError(f"the server ended with code {process.wait()} before it listened: {''.join(printed)}")
