"""Peers that are servers. Each is a script in this folder that runs in its own process and times itself.

A script starts its server on a free port of 127.0.0.1, reports that it is ready, and then answers how long a given
number of calls took. Between measurements it is stopped with all its processes, because torch's RPC polls for messages,
which uses a core. The script and its server end when its standard input does, at the latest when this process ends for
any reason: the system then resumes a stopped process group that is orphaned. ``make bench`` installs the dependencies
of the scripts in a separate environment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ..timing import Unavailable

FOLDER = Path(__file__).parent
LOOPBACK = "127.0.0.1"
OWN = Path(sys.prefix) / "peers" / "bin" / "python"
"""The interpreter of the peers' environment."""
END_S = 20.0


class Peer:
    """A running script."""

    def __init__(self, name: str, process: subprocess.Popen[str], complaints: IO[str]) -> None:
        self._name, self._process, self._complaints = name, process, complaints

    def expect(self) -> str:
        """Return the script's next line. Raises Unavailable with the last line of its stderr if it ended instead."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._complaints.seek(0)
            said = self._complaints.read().strip().splitlines()
            raise Unavailable(f"{self._name} ended: {said[-1] if said else 'without a word'}")
        return line.strip()

    def seconds(self, count: int) -> float:
        """Run ``count`` calls in the script and return the seconds they took."""
        self.begin(count)
        return self.taken()

    def begin(self, count: int) -> None:
        """Start ``count`` calls in the script."""
        assert self._process.stdin is not None
        _signal(self._process, signal.SIGCONT)
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()

    def taken(self) -> float:
        """Wait for the started calls and return the seconds they took."""
        seconds = float(self.expect())
        self.stand_still()
        return seconds

    def stand_still(self) -> None:
        """Stop the script's processes until the next calls."""
        _signal(self._process, signal.SIGSTOP)


@contextmanager
def peer(script: str, *arguments: str, python: Path = OWN) -> Iterator[Peer]:
    """Run a script in the peers' environment, or with another interpreter. Raises Unavailable if it does not start."""
    if not python.exists():
        raise Unavailable("the peers' environment is not there; `make bench` installs it")
    with tempfile.TemporaryFile("w+") as complaints, tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [str(python), str(FOLDER / script), *arguments],
            cwd=folder,  # Tesseract's runtime creates a folder per call in the working directory
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            env={**os.environ, "NO_PROXY": LOOPBACK, "no_proxy": LOOPBACK},
            process_group=0,
        )
        try:
            started = Peer(script, process, complaints)
            started.expect()
            started.stand_still()
            yield started
        finally:
            _end(process)


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a signal to a script and its child processes. If it has ended, :meth:`Peer.expect` reports why."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _end(process: subprocess.Popen[str]) -> None:
    _signal(process, signal.SIGCONT)
    try:
        process.communicate(timeout=END_S)  # closes its input
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def versions() -> dict[str, str]:
    """The versions of the peers in their environment, by name."""
    ask = "from importlib.metadata import distributions as d; print(*[f'{p.name}={p.version}' for p in d()], sep='\\n')"
    try:
        found = subprocess.run([str(OWN), "-c", ask], capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        return {}
    installed = dict(line.split("=", 1) for line in found)
    names = {"UM-Bridge": "umbridge", "Tesseract": "tesseract-core", "Monarch": "torchmonarch"}
    return {shown: installed[name] for shown, name in names.items() if name in installed}
