"""Starts Ray nodes: a private Ray on this machine, or a node that joins a Ray cluster.

If there is no other Ray, ``telegrad cluster up`` starts a private one: a background process, the keeper, starts Ray
and stops it together with its workers. This Ray listens on loopback only, requires a token from every process that
connects, and reports no usage. ``telegrad cluster join``, for example in a container, starts a Ray node that joins a
cluster, and an actor that runs one worker on that node only. Both end with the command. The keeper and the Ray node run
this module as their main module.
"""

from __future__ import annotations

import ctypes
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
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import IO, Any, NamedTuple, NoReturn

from filelock import FileLock, Timeout
from platformdirs import user_state_path

from ..observability import logs
from ..process import end, usable_cores
from .worker_processes import (
    READY_S,
    RayError,
    WorkerSpec,
    check_installed,
    check_reachable,
    connect_to_ray,
    find_actors,
    import_ray,
    inherited_environment,
    start_actors,
    stop_actors,
    wait_for_actors,
)

STOP_S = 15.0
"""Seconds that a Ray node gets to stop."""
OBJECT_STORE_BYTES = 80 * 2**20
"""The size of Ray's object store, near the minimum, because it is not used."""
SOCKET_ROOM = 48
"""The longest path of a temporary folder in which the paths of Ray's sockets are not too long for Linux."""
OURS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Workers limit their memory themselves.
    "RAY_memory_monitor_refresh_ms": "0",
    # A worker whose actor is gone hands over its sessions and then ends by itself.
    "RAY_kill_child_processes_on_worker_exit": "0",
    # Ray's default of 15 would take the processor from a worker as soon as anything else on the machine computes, until
    # the worker cannot even renew its lease.
    "RAY_worker_niceness": "0",
    # A node that ends need not wait: its worker has ended before.
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
}
"""Environment variables of the Ray nodes that this module starts."""
PRIVATE = OURS | {
    # Without clusters, Ray uses 127.0.0.1 as the node's address and listens on it only, on Linux too.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
    # Workers see the same GPUs as a server without Ray.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Environment variables of the private Ray, and of the processes that connect to it."""
ELSEWHERE = ("RAY_ADDRESS", "RAY_AUTH_TOKEN_PATH", "RAY_NAMESPACE", "RAY_JOB_CONFIG_JSON_ENV_VAR")
"""Environment variables that would select another Ray."""
KEEPER = "keep"
"""The first argument of the keeper's process. The one of a Ray node is the id of its parent process."""
LABEL = "telegrad-worker"
"""The label that identifies the Ray node of this machine among those of the cluster."""
PR_SET_PDEATHSIG = 1
CHECK_S = 0.2
ATTEMPTS = 3
"""The number of attempts to start a Ray node, which may fail if another one starts on the machine at the same time."""


def private_environment(token: str) -> dict[str, str]:
    """The environment of this process for the private Ray and its workers."""
    own = {name: value for name, value in inherited_environment().items() if name not in ELSEWHERE}
    return own | PRIVATE | {"RAY_AUTH_TOKEN": token}


class Background(NamedTuple):
    """The private Ray that runs in the background."""

    pid: int
    """The keeper's process id."""
    address: str
    token: str
    log: str
    """The named pipe for the workers' logs."""


def _state() -> Path:
    """The file with the address of the private Ray, which only this user can read."""
    return user_state_path("telegrad", appauthor=False, ensure_exists=True) / "cluster.json"


def find_background() -> Background | None:
    """The private Ray of this user on this machine, if it runs."""
    lock = FileLock(_state().with_suffix(".lock"), timeout=0)
    try:
        with lock:
            return None  # a keeper would hold the lock
    except Timeout:
        with suppress(OSError, ValueError, TypeError):
            return Background(**json.loads(_state().read_text()))
        return None


def start_background(drain_s: float) -> Background:
    """Start a private Ray without workers. Raises RayError if Ray does not start, or is not installed."""
    check_installed()
    # In the system's folder for temporary files, or in /tmp if its path is too long for sockets.
    parent = None if len(tempfile.gettempdir()) <= SOCKET_ROOM else "/tmp"
    folder = tempfile.mkdtemp(prefix="telegrad-ray-", dir=parent)
    log = _state().with_suffix(".log")
    with open(log, "wb") as file:
        keeper = subprocess.Popen(
            [sys.executable, "-m", __name__, KEEPER, folder, str(drain_s)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=file,
            env=private_environment(secrets.token_hex(32)),
            start_new_session=True,
        )
    assert keeper.stdout is not None
    with keeper.stdout as ready:
        found = find_background() if ready.readline() else None
    if found is None:
        raise RayError(f"Ray has not started; {log} says why")
    return found


def stop_background(found: Background) -> None:
    """Stop the private Ray and its workers, and wait until they have ended."""
    os.kill(found.pid, signal.SIGTERM)
    with FileLock(_state().with_suffix(".lock")):
        pass  # the keeper holds the lock until it ends


# The keeper -----------------------------------------------------------------------------------------------


def _run_keeper(folder: Path, drain_s: float) -> None:
    """Start Ray, print a line when it is ready, and stop Ray and its workers on SIGTERM."""
    logs.configure("warning", "text")
    signal.signal(signal.SIGTERM, _exit)
    state = _state()
    try:
        with FileLock(state.with_suffix(".lock"), timeout=0):
            try:
                _keep(folder, drain_s, state)
            finally:
                state.unlink(missing_ok=True)
    except Timeout:
        logs.fail("there is a Ray in the background already")
    except RayError as error:
        logs.fail(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _keep(folder: Path, drain_s: float, state: Path) -> None:
    began = time.monotonic()
    log = shared_log(folder)
    logs.progress("Ray starts")
    ray = import_ray()
    try:
        ray.init(
            address="local",
            num_cpus=usable_cores(),
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=False,
            configure_logging=False,
            log_to_driver=False,
            _temp_dir=str(folder),
        )
        signal.signal(signal.SIGTERM, _exit)  # Ray has set its own handler
        logs.progress(f"ready after {time.monotonic() - began:.1f} s")
        address = ray.get_runtime_context().gcs_address
        state.unlink(missing_ok=True)
        with open(os.open(state, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(Background(os.getpid(), address, os.environ["RAY_AUTH_TOKEN"], log)._asdict(), file)
        print("ready", flush=True)
        threading.Event().wait()  # until a signal
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if ray.is_initialized():
            stop_actors(ray, find_actors(ray), drain_s)
            ray.shutdown()


def _exit(*_: object) -> NoReturn:
    sys.exit(0)


def shared_log(folder: Path) -> str:
    """Create a named pipe for the workers' logs, and copy what is written to it to standard error."""
    pipe = folder / "log"
    os.mkfifo(pipe, 0o600)
    # It is also opened for writing, so that it does not end with the last writer.
    descriptor = os.open(pipe, os.O_RDWR)

    def copy() -> None:
        while True:
            piece = os.read(descriptor, 2**16)
            with suppress(OSError):
                os.write(2, piece)

    threading.Thread(target=copy, name="log", daemon=True).start()
    return str(pipe)


# A node that joins a cluster ------------------------------------------------------------------------------


def join(
    address: str,
    name: str,
    environment: dict[str, str],
    gpus: float | None,
    resources: dict[str, float],
    drain_s: float,
) -> None:
    """Run a worker on a Ray node of this machine until SIGTERM or SIGINT, or until the worker is stopped.

    ``gpus`` is the number of GPUs that the worker takes, by default all of the node. Raises RayError if the node or the
    worker does not start, and if the node ends.
    """
    os.environ.update(OURS)
    ray = import_ray()
    label = token_hex(8)
    stopping = threading.Event()

    def stop(*_: object) -> NoReturn:
        stopping.set()
        sys.exit(0)

    _on_signals(stop)
    check_reachable(address, READY_S)
    with tempfile.TemporaryDirectory(prefix="telegrad-") as folder:
        node = _start_node(address, label, resources)
        actors: dict[str, Any] = {}
        try:
            found = _connect(ray, address, label)
            devices = found["Resources"].get("GPU", 0.0) if gpus is None else gpus
            log = shared_log(Path(folder))
            spec = WorkerSpec(
                name, environment, gpus=devices, resources=resources, log=log, node=found["NodeID"], exclusive=True
            )
            actors = start_actors(ray, [spec])
            wait_for_actors(
                ray,
                actors,
                time.monotonic() + READY_S,
                lambda name, found: logs.announce(f"Telegrad worker {name} serves at {found.url}"),
            )
            _on_signals(stop)  # Ray has set its own handler
            _follow(ray, actors[name], node)
        except SystemExit:
            # Ray changes the exit code of a SystemExit that is raised while it waits.
            if not stopping.is_set():
                raise
        finally:
            _on_signals(signal.SIG_IGN)
            if ray.is_initialized():
                stop_actors(ray, actors, drain_s)
                ray.shutdown()
            end(node, STOP_S)


def _on_signals(handler: Any) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)


def _start_node(address: str, label: str, resources: dict[str, float]) -> subprocess.Popen[str]:
    """Start a Ray node, and wait until it has started. Raises RayError if all attempts fail."""
    flags = [f"--address={address}", "--block", "--disable-usage-stats", f"--labels={LABEL}={label}"]
    flags += [f"--object-store-memory={OBJECT_STORE_BYTES}", f"--resources={json.dumps(resources)}"]
    logs.progress(f"a Ray node joins {address}")
    left = ATTEMPTS
    while True:
        node = subprocess.Popen(
            [sys.executable, "-m", __name__, str(os.getpid()), "start", *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C in a terminal must reach this process only
        )
        try:
            failure = _failure_of(node)
        except BaseException:
            end(node, STOP_S)
            raise
        if failure is None:
            return node
        left -= 1
        if not left:
            raise RayError(f"the Ray node has not joined {address}: {failure}")
        logs.progress(f"the Ray node has not joined, and starts again: {failure}")


def _failure_of(node: subprocess.Popen[str]) -> str | None:
    """Wait until a Ray node has started, and return None. If it ends instead, return the end of its output."""
    printed: list[str] = []
    assert node.stdout is not None
    for line in node.stdout:
        printed.append(line.strip())
        if "--block" in line:  # it has started
            threading.Thread(target=_read, args=(node.stdout,), name="node", daemon=True).start()
            return None
    node.stdout.close()
    code, text = node.wait(), " ".join(line for line in printed if line)
    return f"it ended with code {code}: {text[-500:]}"


def _connect(ray: Any, address: str, label: str) -> dict[str, Any]:
    """Connect to Ray, and return its description of the node of this machine."""
    connect_to_ray(ray, address)
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        for found in ray.nodes():
            if found["Alive"] and found.get("Labels", {}).get(LABEL) == label:
                return dict(found)
        time.sleep(CHECK_S)
    raise RayError(f"Ray at {address} does not list the node of this machine")


def _read(pipe: IO[str]) -> None:
    """Read and discard the output of a process, so that the pipe does not fill."""
    with pipe:
        for _ in pipe:
            pass


def _follow(ray: Any, actor: Any, node: subprocess.Popen[str]) -> None:
    """Return when the worker was stopped. Raises RayError when the node ends."""
    ended: Any = None
    while True:
        if node.poll() is not None:
            raise RayError(f"the Ray node has ended with code {node.returncode}")
        ended = ended or actor.wait.remote()
        done, _ = ray.wait([ended], timeout=1)
        if done:
            try:
                ray.get(ended)
                return
            except ray.exceptions.ActorDiedError:
                return
            except ray.exceptions.RayError:
                ended = None  # Ray restarts the actor
                time.sleep(CHECK_S)


# The node's process ---------------------------------------------------------------------------------------


def _run_node(parent: int, *arguments: str) -> None:
    """Run Ray's command line with these arguments. End when the parent process ends."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit("telegrad: the process that started this one has ended")
    from ray.scripts.scripts import cli as ray_command

    with suppress(KeyboardInterrupt):
        ray_command(arguments)


if __name__ == "__main__":
    if sys.argv[1] == KEEPER:
        _run_keeper(Path(sys.argv[2]), float(sys.argv[3]))
    else:
        _run_node(int(sys.argv[1]), *sys.argv[2:])
