"""A machine of a Ray cluster with one worker: ``telegrad cluster join``, such as the main process of a container.

It starts a Ray node that joins the cluster, and an actor that runs the worker on this node and nowhere else. Both end
with it. Run as a module, this file is the process of the Ray node.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import IO, Any, NoReturn

from ..observability import logs
from . import ray_workers
from .local_ray import OBJECT_STORE_BYTES, OURS, READY_S, STOP_S, say, shared_log
from .ray_workers import RayError, WorkerSpec

LABEL = "telegrad-worker"
"""The label of our Ray node, by which it is found among those of the cluster."""
PR_SET_PDEATHSIG = 1
CHECK_S = 0.2
ATTEMPTS = 3
"""How often a Ray node is started: one that starts at the same time as another on its machine may fail."""


def join(
    address: str,
    name: str,
    environment: dict[str, str],
    gpus: float | None,
    resources: dict[str, float],
    drain_s: float,
) -> None:
    """Run a worker on a Ray node of this machine until SIGTERM or SIGINT, or until the worker is taken down.

    ``gpus`` is how many GPUs the worker takes, by default all of the node. Raises RayError if the node or the worker
    does not start, and if the node ends.
    """
    os.environ.update(OURS)
    ray = ray_workers.import_ray()
    label = token_hex(8)
    stopping = threading.Event()

    def stop(*_: object) -> NoReturn:
        stopping.set()
        sys.exit(0)

    _on_signals(stop)
    ray_workers.check_reachable(address, READY_S)
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
            actors = ray_workers.start(ray, [spec])
            ray_workers.wait_ready(ray, actors, time.monotonic() + READY_S, _announce)
            _on_signals(stop)  # Ray has its own
            _follow(ray, actors[name], node)
        except SystemExit:
            # One that is raised while Ray waits comes out of it with another exit code.
            if not stopping.is_set():
                raise
        finally:
            _on_signals(signal.SIG_IGN)
            if ray.is_initialized():
                ray_workers.stop(ray, actors, drain_s)
                ray.shutdown()
            _stop_node(node)


def _on_signals(handler: Any) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)


def _announce(name: str, found: dict[str, Any]) -> None:
    logs.announce(f"Telegrad worker {name} serves at {found['url']}")


def _start_node(address: str, label: str, resources: dict[str, float]) -> subprocess.Popen[str]:
    """Start a Ray node, and wait until it has started. Raises RayError if it does not, at each of several attempts."""
    flags = [f"--address={address}", "--block", "--disable-usage-stats", f"--labels={LABEL}={label}"]
    flags += [f"--object-store-memory={OBJECT_STORE_BYTES}", f"--resources={json.dumps(resources)}"]
    say(f"a Ray node joins {address}")
    left = ATTEMPTS
    while True:
        node = subprocess.Popen(
            [sys.executable, "-m", __name__, str(os.getpid()), "start", *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C in a terminal is for us
        )
        try:
            failure = _failure_of(node)
        except BaseException:
            _stop_node(node)
            raise
        if failure is None:
            return node
        left -= 1
        if not left:
            raise RayError(f"the Ray node has not joined {address}: {failure}")
        say(f"the Ray node has not joined, and starts again: {failure}")


def _failure_of(node: subprocess.Popen[str]) -> str | None:
    """Wait until a Ray node has started; None. If it ends instead, what it said last."""
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
    """Connect to Ray, and return what it knows of our node."""
    ray_workers.connect(ray, address)
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        for found in ray.nodes():
            if found["Alive"] and found.get("Labels", {}).get(LABEL) == label:
                return dict(found)
        time.sleep(CHECK_S)
    raise RayError(f"Ray at {address} does not list the node of this machine")


def _read(pipe: IO[str]) -> None:
    """Read what is printed, so that the pipe does not fill."""
    with pipe:
        for _ in pipe:
            pass


def _follow(ray: Any, actor: Any, node: subprocess.Popen[str]) -> None:
    """Return when the worker has been taken down. Raises RayError when the node has ended."""
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
                ended = None  # Ray starts the actor again
                time.sleep(CHECK_S)


def _stop_node(node: subprocess.Popen[str]) -> None:
    node.terminate()
    try:
        node.wait(STOP_S)
    except subprocess.TimeoutExpired:
        node.kill()
        node.wait()


# The node's process ---------------------------------------------------------------------------------------


def main() -> None:
    """Run Ray's command with the arguments after the first, the parent's process id; end when the parent ends."""
    parent = int(sys.argv[1])
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit("telegrad: the process that started this one has ended")
    from ray.scripts.scripts import cli as ray_command

    with suppress(KeyboardInterrupt):
        ray_command(sys.argv[2:])


if __name__ == "__main__":
    main()
