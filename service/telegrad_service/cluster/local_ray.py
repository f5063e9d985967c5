"""A Ray of our own on this machine, in a process that ends with the one that asked for it, or runs in the background.

``LocalRay``, which ``telegrad serve --workers`` and ``telegrad cluster up`` use, runs this module as a process, the
keeper. It starts Ray and the workers, and stops both when its standard input ends, even if the process that asked is
killed. Ray listens on loopback alone, wants a token of each process that connects, and reports no usage.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

from filelock import FileLock, Timeout
from platformdirs import user_state_path

from ..observability import logs
from ..process import usable_cores
from ..settings import AccessSettings
from . import ray_workers
from .ray_workers import RayError, WorkerSpec

READY_S = 60.0
"""Seconds that Ray and the workers get to start."""
STOP_S = 15.0
"""Seconds that the keeper gets to stop Ray, in addition to the time for running programs."""
OBJECT_STORE_BYTES = 80 * 2**20
"""Ray's object store, of which nothing is used, near the least that Ray takes."""
SOCKET_ROOM = 48
"""The longest temporary folder in whose depths Ray's sockets still have paths that Linux takes."""
OURS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Workers limit their memory themselves.
    "RAY_memory_monitor_refresh_ms": "0",
    # A worker ends by itself once its actor is gone, after it has handed over its sessions.
    "RAY_kill_child_processes_on_worker_exit": "0",
    # A node waits for nobody else when it ends: its worker has ended before.
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
}
"""Variables of the Ray nodes that we start."""
PRIVATE = OURS | {
    # Without clusters Ray takes 127.0.0.1 for the node's address, and then listens on it alone, on Linux too.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
    # Workers see the GPUs that a server without Ray would see.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Variables of a Ray of our own, and of the processes that connect to it."""
ELSEWHERE = ("RAY_ADDRESS", "RAY_AUTH_TOKEN_PATH", "RAY_NAMESPACE", "RAY_JOB_CONFIG_JSON_ENV_VAR")
"""Variables that lead to another Ray."""

OF_THE_GATEWAY = frozenset(AccessSettings.model_fields)
"""Settings of who serves clients, which workers do not take over."""


def private_environment(token: str) -> dict[str, str]:
    """This process's environment for a Ray of our own and its workers."""
    others = {*ELSEWHERE, *(f"TELEGRAD_{name.upper()}" for name in OF_THE_GATEWAY)}
    own = {name: value for name, value in os.environ.items() if name not in others}
    return own | PRIVATE | {"RAY_AUTH_TOKEN": token}


class LocalRay:
    """A keeper. It ends when it is told to ``stop``, or with this process."""

    def __init__(self, specs: list[WorkerSpec], drain_s: float, log_format: logs.Form) -> None:
        """Start it. Raises RayError if Ray is not installed."""
        self._drain_s = drain_s
        self._folder = _new_folder()
        request = {"specs": [asdict(spec) for spec in specs], "drain_s": drain_s, "folder": self._folder}
        request["log_format"] = log_format
        self._process = _start_keeper(request, None)

    def wait_ready(self) -> None:
        """Wait until all workers serve. Raises RayError if they do not; the keeper has said why."""
        if not _ready(self._process):
            raise RayError("the workers have not started")

    def wait(self) -> int:
        """Wait until the keeper has ended; its exit code."""
        return self._process.wait()

    def stop(self) -> None:
        """Stop the workers, whose programs get ``drain_s`` to finish, and Ray."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(self._drain_s + ray_workers.EXIT_S + STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        if self._process.returncode < 0:
            # It was killed. The kernel has ended most of Ray's processes with it; others would wait for Ray's return.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)


def _new_folder() -> str:
    """A folder for Ray's files: in the system's for such files, or in /tmp if that is too deep for sockets."""
    ray_workers.check_installed()
    parent = None if len(tempfile.gettempdir()) <= SOCKET_ROOM else "/tmp"
    return tempfile.mkdtemp(prefix="telegrad-ray-", dir=parent)


def _start_keeper(request: dict[str, Any], log: IO[bytes] | None, token: str | None = None) -> subprocess.Popen[bytes]:
    keeper = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=private_environment(token or secrets.token_hex(32)),
        start_new_session=True,  # Ctrl-C in a terminal is for us, who let programs finish first
    )
    assert keeper.stdin is not None
    with suppress(BrokenPipeError):
        keeper.stdin.write(json.dumps(request).encode() + b"\n")
        keeper.stdin.flush()
    return keeper


def _ready(keeper: subprocess.Popen[bytes]) -> bool:
    assert keeper.stdout is not None
    return bool(keeper.stdout.readline())


# In the background ----------------------------------------------------------------------------------------


class Background(NamedTuple):
    """A Ray of our own that runs in the background."""

    pid: int
    """The keeper's process id."""
    address: str
    token: str
    log: str
    """The named pipe for the logs of workers."""


def _state() -> Path:
    """The file that says where the Ray in the background is, readable for this user alone."""
    return user_state_path("telegrad", appauthor=False, ensure_exists=True) / "cluster.json"


def find_background() -> Background | None:
    """The Ray that runs in the background on this machine, started by this user."""
    lock = FileLock(_state().with_suffix(".lock"), timeout=0)
    try:
        with lock:
            return None  # the keeper would hold it
    except Timeout:
        with suppress(OSError, ValueError, TypeError):
            return Background(**json.loads(_state().read_text()))
        return None


def start_background(drain_s: float) -> Background:
    """Start a Ray without workers in the background. Raises RayError if it does not start."""
    state = _state()
    log = state.with_suffix(".log")
    token = secrets.token_hex(32)
    with open(log, "wb") as file:
        keeper = _start_keeper(
            {"specs": [], "drain_s": drain_s, "folder": _new_folder(), "state": str(state)}, file, token
        )
    found = find_background() if _ready(keeper) else None
    for pipe in (keeper.stdin, keeper.stdout):
        if pipe is not None:
            pipe.close()
    if found is None:
        raise RayError(f"Ray has not started; {log} says why")
    return found


def stop_background(found: Background) -> None:
    """Stop the Ray that runs in the background, with its workers, and wait for its end."""
    os.kill(found.pid, signal.SIGTERM)
    with FileLock(_state().with_suffix(".lock")):
        pass  # the keeper has held it until now


# The keeper -----------------------------------------------------------------------------------------------


def main() -> None:
    """Start what standard input asks for, say when it is ready, and stop it when standard input ends or on SIGTERM."""
    request = json.loads(sys.stdin.buffer.readline() or "{}")
    if not request:
        sys.exit(1)
    logs.configure("warning", request.get("log_format", "text"))
    signal.signal(signal.SIGTERM, _exit)
    folder = Path(request["folder"])
    try:
        if state := request.get("state"):
            with FileLock(Path(state).with_suffix(".lock"), timeout=0):
                try:
                    _keep(folder, request)
                finally:
                    Path(state).unlink(missing_ok=True)
        else:
            threading.Thread(target=_exit_with_stdin, name="stdin", daemon=True).start()
            _keep(folder, request)
    except Timeout:
        logs.fail("there is a Ray in the background already")
    except RayError as error:
        logs.fail(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _keep(folder: Path, request: dict[str, Any]) -> None:
    began = time.monotonic()
    log = shared_log(folder)
    say("Ray starts")
    ray = ray_workers.import_ray()
    specs = [WorkerSpec(**{**spec, "log": log}) for spec in request["specs"]]
    try:
        ray.init(
            address="local",
            # Ray starts so many processes ahead, and workers of `telegrad cluster up` ask for a CPU each.
            num_cpus=len(specs) or usable_cores(),
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=False,
            configure_logging=False,
            log_to_driver=False,
            _temp_dir=str(folder),
        )
        signal.signal(signal.SIGTERM, _exit)  # Ray has its own
        ray_workers.wait_ready(ray, ray_workers.start(ray, specs), began + READY_S, progress(len(specs)))
        say(f"ready after {time.monotonic() - began:.1f} s")
        if state := request.get("state"):
            address = ray.get_runtime_context().gcs_address
            _note(Path(state), Background(os.getpid(), address, os.environ["RAY_AUTH_TOKEN"], log))
        print("ready", flush=True)
        threading.Event().wait()  # until a signal
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if ray.is_initialized():
            ray_workers.stop(ray, ray_workers.running(ray), request["drain_s"])
            ray.shutdown()


def _note(state: Path, found: Background) -> None:
    state.unlink(missing_ok=True)
    with open(os.open(state, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(found._asdict(), file)


def _exit(*_: object) -> NoReturn:
    sys.exit(0)


def _exit_with_stdin() -> None:
    while os.read(0, 2**16):
        pass
    # To the main thread, which a signal to this one would not wake.
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def say(text: str) -> None:
    """Show progress, to whoever waits."""
    logs.announce(f"telegrad: {text}", logs.STDERR)


def progress(number: int) -> Callable[[str, dict[str, Any]], None]:
    """Shows which of so many workers serves."""
    count = iter(range(1, number + 1))
    return lambda name, found: say(f"worker {next(count)} of {number}, {name}, serves at {found['url']}")


def shared_log(folder: Path) -> str:
    """A named pipe for the workers' logs, which are copied to standard error."""
    pipe = folder / "log"
    os.mkfifo(pipe, 0o600)
    # Also open for writing, so that it does not end with the last writer.
    descriptor = os.open(pipe, os.O_RDWR)

    def copy() -> None:
        while True:
            piece = os.read(descriptor, 2**16)
            with suppress(OSError):
                os.write(2, piece)

    threading.Thread(target=copy, name="log", daemon=True).start()
    return str(pipe)


if __name__ == "__main__":
    main()
