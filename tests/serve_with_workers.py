"""``telegrad serve --workers N`` whose workers are processes of this one: quicker than Ray, and otherwise the same.

Internals: Ray is replaced, which only starts, watches and stops the workers.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import threading

from telegrad_service.cli import main
from telegrad_service.cluster import local_ray
from telegrad_service.cluster.ray_workers import RayError, WorkerSpec

PR_SET_PDEATHSIG = 1


class Processes:
    """The workers. They end with this process, as all processes of a machine that fails."""

    def __init__(self, specs: list[WorkerSpec], drain_s: float, log_format: str) -> None:
        self._stop_s = drain_s + 10
        others = {f"TELEGRAD_{name.upper()}" for name in (*local_ray.OF_THE_GATEWAY, "workers")}
        inherited = {name: value for name, value in os.environ.items() if name not in others}
        self._workers = [
            subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "telegrad_service.cli", "worker", "--port", "0"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
                env=inherited | spec.environment,
                preexec_fn=end_with_parent,
            )
            for spec in specs
        ]

    def wait_ready(self) -> None:
        """Wait until all workers serve, and print where. Raises RayError if they do not."""
        for worker in self._workers:
            assert worker.stdout is not None
            if "http" not in (announcement := worker.stdout.readline()):
                raise RayError("the workers have not started")
            print("worker", *re.findall(r'https?://[^\s"]+', announcement), flush=True)

    def wait(self) -> int:
        """Wait for an end that only ``stop`` brings about."""
        threading.Event().wait()
        raise AssertionError

    def stop(self) -> None:
        """Stop the workers."""
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            worker.wait(self._stop_s)


def end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    local_ray.LocalRay = Processes  # type: ignore[assignment]
    main()
