"""A worker as a process, which is started again whenever it ends; and the workers of ``telegrad serve --workers``."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import IO, NamedTuple

from ..observability import logs
from ..observability.logs import CommandFailed
from ..process import ADDRESS, end
from ..settings import AccessSettings

READY_S = 60.0
"""Seconds that the workers of one command get to start."""
EXIT_S = 10.0
"""Seconds that a worker gets to end, in addition to the time for its running programs."""
PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0
"""Seconds before a worker that ended is started again: first, and at most, doubled while it fails to start."""
STEADY_S = 30.0
"""A worker that ran for this long is started again after the shortest pause."""
TAIL = 20
"""How many of the last lines of a worker's log its failure is explained with."""
COMMAND = ("-m", "telegrad_service.cli", "worker", "--end-with-stdin=true")
OF_THE_GATEWAY = frozenset(AccessSettings.model_fields)
"""Settings of who serves clients, which workers do not take over."""


def inherited_environment() -> dict[str, str]:
    """The environment of this process without the settings that workers do not take over."""
    others = {f"TELEGRAD_{name.upper()}" for name in OF_THE_GATEWAY}
    return {name: value for name, value in os.environ.items() if name not in others}


class WorkerStatus(NamedTuple):
    """The state of a worker's process."""

    url: str | None
    """Its address; None while it does not serve."""
    restarts: int
    failure: str | None
    """Why it did not start."""


class WorkerProcess:
    """Runs one worker process, and starts it again whenever it ends."""

    def __init__(self, environment: Mapping[str, str], flags: Sequence[str], log: int, own_session: bool) -> None:
        """``log`` is the descriptor of the file that the worker's log is copied to.

        With ``own_session``, Ctrl-C in a terminal is not for the worker, but for us, who let programs finish first.
        """
        self._environment, self._flags, self._log, self._own_session = environment, flags, log, own_session
        self._lines: deque[str] = deque(maxlen=TAIL)
        self._changed = threading.Condition()
        self._process: subprocess.Popen[bytes] | None = None
        self._url: str | None = None
        self._failure: str | None = None
        self._starts = 0
        self._stopping = False
        threading.Thread(target=self._run_forever, name="worker", daemon=True).start()

    def status(self, wait_s: float) -> WorkerStatus:
        """The worker's status. Waits for at most this time until the worker serves or has failed to start."""
        with self._changed:
            self._changed.wait_for(lambda: self._url or self._failure or self._stopping, wait_s)
            return WorkerStatus(self._url, max(0, self._starts - 1), self._failure)

    def wait(self) -> None:
        """Wait until the worker has been told to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping)

    def stop(self, wait_s: float) -> None:
        """End the worker for good: running programs get this time to finish."""
        with self._changed:
            self._stopping = True
            process = self._process
            self._changed.notify_all()
        if process is not None:
            end(process, wait_s)

    def _run_forever(self) -> None:
        pause = PAUSE_S
        while self._start():
            started = time.monotonic()
            code = self._follow()
            if time.monotonic() - started > STEADY_S:
                pause = PAUSE_S
            with self._changed:
                self._process = self._url = None
                self._failure = f"it ended with code {code}: {' '.join(self._lines)[-2000:] or 'it logged nothing'}"
                self._changed.notify_all()
                if self._changed.wait_for(lambda: self._stopping, pause):
                    return
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _start(self) -> bool:
        """Start the process, unless the worker is to end."""
        with self._changed:
            if self._stopping:
                return False
            # It reads its standard input, which ends with this process, however that ends.
            self._process = subprocess.Popen(
                [sys.executable, *COMMAND, *self._flags],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                start_new_session=self._own_session,
            )
            self._starts += 1
            self._lines.clear()
        return True

    def _follow(self) -> int:
        """Pass on what the process logs until it ends; its exit code."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        logged = threading.Thread(target=self._copy_log, args=(process.stderr,), name="log", daemon=True)
        logged.start()
        with process.stdin, process.stdout:
            for line in process.stdout:
                found = ADDRESS.search(line.decode(errors="replace"))
                if found and self._url is None:
                    with self._changed:
                        self._url, self._failure = found.group(), None
                        self._changed.notify_all()
            code = process.wait()
        logged.join(EXIT_S)
        return code

    def _copy_log(self, log: IO[bytes]) -> None:
        with log:
            for line in log:
                self._lines.append(line.decode(errors="replace").strip())
                with suppress(OSError):  # nobody reads it any more
                    os.write(self._log, line)


class LocalWorkers:
    """So many workers with one environment, as child processes. They end with this process, even if it is killed."""

    def __init__(self, environment: Mapping[str, str], count: int, drain_s: float) -> None:
        self._stop_s = drain_s + EXIT_S
        environment = inherited_environment() | dict(environment)
        flags = "--host=127.0.0.1", "--port=0"
        self._workers = [WorkerProcess(environment, flags, logs.STDERR, own_session=True) for _ in range(count)]

    def wait_ready(self) -> None:
        """Wait until all workers serve. Raises CommandFailed, with the end of its log, if one does not."""
        deadline = time.monotonic() + READY_S
        for number, worker in enumerate(self._workers):
            found = worker.status(max(0.0, deadline - time.monotonic()))
            if found.url is None:
                reason = found.failure or f"it does not serve after {READY_S:.0f} s"
                raise CommandFailed(f"worker worker-{number} does not start: {reason}")
            logs.progress(f"worker {number + 1} of {len(self._workers)} serves at {found.url}")

    def stop(self) -> None:
        """Stop the workers, whose programs get ``drain_s`` seconds to finish."""
        with ThreadPoolExecutor(len(self._workers)) as pool:
            list(pool.map(lambda worker: worker.stop(self._stop_s), self._workers))
