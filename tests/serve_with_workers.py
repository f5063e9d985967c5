"""``telegrad serve --workers N`` whose workers are never started again, and are killed if this process is.

Internals: the class that starts, watches and stops the workers is replaced.
"""

from __future__ import annotations

import ctypes
import re
import signal
import subprocess
import sys
from collections.abc import Mapping

from telegrad_service.cli import main
from telegrad_service.cluster import command
from telegrad_service.cluster.worker_processes import inherited_environment
from telegrad_service.observability.logs import CommandFailed

PR_SET_PDEATHSIG = 1


class Processes:
    """The workers. They end with this process, as all processes of a machine that fails."""

    def __init__(self, environment: Mapping[str, str], count: int, drain_s: float) -> None:
        self._stop_s = drain_s + 10
        inherited = inherited_environment()
        self._workers = [
            subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "telegrad_service.cli", "worker", "--port", "0"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
                env=inherited | dict(environment),
                preexec_fn=end_with_parent,
            )
            for _ in range(count)
        ]

    def wait_ready(self) -> None:
        """Wait until all workers serve, and print where. Raises CommandFailed if they do not."""
        for worker in self._workers:
            assert worker.stdout is not None
            if "http" not in (announcement := worker.stdout.readline()):
                raise CommandFailed("the workers have not started")
            print("worker", *re.findall(r'https?://[^\s"]+', announcement), flush=True)

    def stop(self) -> None:
        """Stop the workers."""
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            worker.wait(self._stop_s)


def end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    command.LocalWorkers = Processes  # type: ignore[assignment, attr-defined]
    main()
