"""Processes of a cluster, a gateway or a worker, for the duration of a ``with`` block."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from .timing import Unavailable


@contextmanager
def member(kind: str, *flags: str) -> Iterator[tuple[str, int]]:
    """Run ``telegrad worker``, ``telegrad gateway`` or ``telegrad serve``; yields its address and process id."""
    command = [sys.executable, "-m", "telegrad_service.cli", kind, "--port=0", "--end-with-stdin=true", *flags]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"https?://\S+", process.stdout.readline())
        if found is None:
            raise Unavailable(f"the {kind} did not start")
        yield found.group(), process.pid
    finally:
        process.terminate()
        process.wait()  # the end of its input would be a second signal, at which it ends without closing in order
        process.communicate()


@contextmanager
def cluster(workers: int, *flags: str) -> Iterator[str]:
    """Run workers with these flags and a gateway, on a SQLite database of their own; yields the gateway's address."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        database = f"--database-url=sqlite:///{Path(folder) / 'telegrad.db'}"
        for _ in range(workers):
            stack.enter_context(member("worker", database, *flags))
        yield stack.enter_context(member("gateway", database))[0]
