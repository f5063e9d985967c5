"""Servers that tests start: one process, or with ``--through-gateway`` a gateway whose workers are processes too."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import ClassVar

from telegrad_service import launch

STOP_S = 30
COMMAND_S = 120
LOG_BYTES = 2**19
"""What a server can log before it stands still, because nobody reads what it logs."""
END_WITH_TESTS = "--end-with-stdin=true"
"""The server ends with these tests, if they are killed too."""
WORKER = "worker "
"""What comes before the address of a worker."""
COMMAND = ("-W", "error", "-m", "telegrad_service.cli")
WITH_WORKERS = (str(Path(__file__).parent / "serve_with_workers.py"),)
OF_EACH_WORKER = frozenset(
    {
        "--max-sessions",
        "--max-sessions-per-peer",
        "--threads",
        "--max-queued",
        "--max-process-bytes",
        "--max-tenant-bytes",
    }
)
"""Limits that hold for each worker: with one worker, they hold for the cluster."""


class Gateways:
    """How this run of the tests starts servers."""

    workers: int | None = None
    """The number of workers of each server; None for servers without a gateway."""
    announced: ClassVar[dict[str, list[str]]] = {}
    """The addresses of the workers of the gateways that run, by the gateways' addresses."""


def computing(url: object) -> list[str]:
    """The addresses of the processes in which the sessions of a server are: its workers', or its own."""
    return Gateways.announced.get(str(url).rstrip("/"), [str(url)])


@contextmanager
def running(
    *flags: str,
    env: Mapping[str, str] | None = None,
    prepare: Callable[[], None] | None = None,
    command: str = "serve",
    port: int = 0,
    workers: int | None = None,
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """``telegrad serve`` with these flags, by default on a free port: its address and its process, ended afterwards.

    ``prepare`` is called in the new process before it becomes the server's. With ``--through-gateway``, the process is
    the gateway's, and ends its workers when it ends; ``workers`` says how many there are if the option is not to.
    """
    given = {k: v for k, v in os.environ.items() if not k.startswith("TELEGRAD_")} | dict(env or {})
    with ExitStack() as stack:
        arguments: Sequence[str] = COMMAND
        if Gateways.workers is not None and command == "serve" and "--workers" not in names(flags):
            arguments = WITH_WORKERS
            count = workers or (1 if OF_EACH_WORKER & names(flags) else Gateways.workers)
            given |= {"TELEGRAD_WORKERS": str(count)}
            if "XDG_DATA_HOME" not in (env or {}):
                given["XDG_DATA_HOME"] = home_of(flags) or stack.enter_context(tempfile.TemporaryDirectory())
        yield stack.enter_context(started([*arguments, command, f"--port={port}", *flags], given, prepare))


def address_in(line: str) -> str:
    """The address that an announcement names, as text or as JSON."""
    found = re.search(r'https?://[^\s"]+', line)
    assert found is not None, line
    return found.group()


def peak_bytes(process: subprocess.Popen[str]) -> int:
    """The most memory that a process has had, on Linux."""
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def telegrad(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command, and what it printed. It sees no settings but these."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TELEGRAD_", "RAY_"))}
    return subprocess.run(
        [sys.executable, *COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        env=inherited | environment,
    )


def free_port() -> int:
    """A port of this machine on which nothing listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def names(flags: Sequence[str]) -> set[str]:
    """The names of flags, some of which have their value after an equals sign."""
    return {flag.partition("=")[0] for flag in flags}


def home_of(flags: Sequence[str]) -> str | None:
    """Where the database of a server with a data folder is, so that it is there when the server starts again."""
    if "--data-dir" not in flags:
        return None
    folder = flags[flags.index("--data-dir") + 1]
    return None if "://" in folder else f"{folder}.home"


def said(process: subprocess.Popen[str]) -> str:
    """What a server says after its address: where the console and the docs are, and who may use it."""
    assert process.stdout is not None
    return "".join(process.stdout.readline() for _ in range(3))


@contextmanager
def started(
    arguments: Sequence[str], env: Mapping[str, str], prepare: Callable[[], None] | None
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A process of Python that announces an address, after those of its workers if it has any."""
    theirs, ours = os.pipe()
    process = subprocess.Popen(
        [sys.executable, *arguments, END_WITH_TESTS],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pipesize=LOG_BYTES,
        env=env,
        preexec_fn=prepare,
    )
    os.close(theirs)
    try:
        assert process.stdout is not None
        printed, workers = "", []
        while "http" not in (line := process.stdout.readline()) or line.startswith(WORKER):
            assert line, printed + process.communicate(timeout=STOP_S)[1]
            workers += line.split()[1:]
            printed += line
        address = address_in(line)
        if workers:
            Gateways.announced[address] = workers
        yield address, process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        os.close(ours)


@contextmanager
def running_server(*flags: str, **settings: object) -> Iterator[str]:
    """As ``telegrad_service.launch.running_server``, with a gateway if tests run through one."""
    if Gateways.workers is None:
        with launch.running_server(*flags, **settings) as url:
            yield url
        return
    given = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    with running(*given, *flags) as (url, _):
        yield url
