"""Runs a server for the duration of a ``with`` block, for demos, benchmarks, tests and notebooks.

The server reads its standard input, a pipe whose other end only this process holds. When this process ends, even by
SIGKILL, the operating system closes that end, and the server stops.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .process import ADDRESS, end
from .settings import AccessSettings, DatabaseSettings

STOP_S = 15.0
"""Seconds that the server gets to end after SIGTERM."""


_pipes: weakref.WeakSet[Any] = weakref.WeakSet()
"""The standard inputs of the running servers."""


def _leave_pipes_to_parent() -> None:
    """Close the pipes in a forked child, which may outlive this process."""
    for pipe in list(_pipes):
        pipe.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_pipes_to_parent)


@contextmanager
def running_server(*flags: str, **settings: object) -> Iterator[str]:
    """Start ``telegrad serve`` on a free loopback port, yield its address, stop it at the end.

    ``settings`` are the server's, by name: ``running_server(max_sessions=4)``. Without ``database_url`` it has an empty
    database of its own, so that it requires no API keys; neither does it take its address, TLS and who may use it from
    the environment. Raises RuntimeError with the server's output if it ends before it listens. The server stops when
    this process ends for any reason.
    """
    inherited = {f"TELEGRAD_{name.upper()}" for name in AccessSettings.model_fields | DatabaseSettings.model_fields}
    environment = {name: value for name, value in os.environ.items() if name.upper() not in inherited}
    folder = tempfile.mkdtemp(prefix="telegrad-")
    settings = {"database_url": f"sqlite:///{Path(folder) / 'telegrad.db'}", **settings}
    given = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    command = [sys.executable, "-m", "telegrad_service.cli", "serve", "--port=0", *given, *flags]
    command.append("--end-with-stdin=true")
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    _pipes.add(process.stdin)
    try:
        yield _address(process)
    finally:
        end(process, STOP_S)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        shutil.rmtree(folder, ignore_errors=True)


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    printed = []
    for line in process.stdout:
        printed.append(line)
        if found := ADDRESS.search(line):
            return found.group()
    raise RuntimeError(f"the server ended with code {process.wait()} before it listened: {''.join(printed)}")
