"""Servers and commands in this process: they start at once, and tests can look at what servers keep in memory."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from queue import Queue

import pytest

from telegrad_service.app import create_app
from telegrad_service.cli import main
from telegrad_service.server import Server
from telegrad_service.settings import Settings

from .servers import Gateways, running


@contextmanager
def serving(**settings: object) -> Iterator[str]:
    """Run the server in a thread on a free loopback port, yield its address, stop it at the end."""
    addresses: Queue[str] = Queue()
    chosen = Settings(port=0, **settings)
    server = Server(create_app(chosen), chosen, addresses.put)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield addresses.get(timeout=240)
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def server_with(**settings: object) -> Iterator[str]:
    """The address of a server with these settings in this process, or of a gateway if tests run through one."""
    if Gateways.workers is None:
        with serving(**settings) as url:
            yield url
        return
    flags = [(name.replace("_", "-"), value) for name, value in settings.items()]
    with running(*(f"--{name}" if value is True else f"--{name}={value}" for name, value in flags)) as (url, _):
        yield url


def telegrad(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """As in :mod:`tests.servers`, for commands that need no process of their own."""
    output, errors, code = StringIO(), StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(errors):
        for name in [name for name in os.environ if name.startswith(("TELEGRAD_", "RAY_"))]:
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        try:
            main([*arguments])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            errors.write("" if isinstance(end.code, int | None) else f"{end.code}\n")
    return subprocess.CompletedProcess(arguments, code, output.getvalue(), errors.getvalue())
