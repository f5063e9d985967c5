"""Worker processes, which are restarted whenever they end: children of ``telegrad serve --workers``, and Ray actors.

Ray places an actor by the resources that it needs, and starts it again, without limit, if its process or its node dies.
The actor runs ``telegrad worker`` as a process of its own, which no Ray thread shares. Only addresses and states pass
through Ray; programs and tensors never do.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple

from ..observability import logs
from ..observability.logs import CommandFailed
from ..process import ADDRESS, end
from ..settings import AccessSettings

READY_S = 60.0
"""Seconds that the workers of a command get to start."""
EXIT_S = 10.0
"""Seconds that a worker gets to end, in addition to the time for its running programs."""
PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0
"""Seconds before a worker is restarted: the first pause, which doubles with each failure, and the longest."""
STEADY_S = 30.0
"""A worker that ran for longer is restarted after the shortest pause."""
TAIL = 20
"""The number of lines from the end of a worker's log that explain its failure."""
COMMAND = ("-m", "telegrad_service.cli", "worker", "--end-with-stdin=true")
OF_THE_GATEWAY = frozenset(AccessSettings.model_fields)
"""Settings of a gateway that its workers do not inherit."""


def inherited_environment() -> dict[str, str]:
    """The environment of this process without the settings that workers do not inherit."""
    others = {f"TELEGRAD_{name.upper()}" for name in OF_THE_GATEWAY}
    return {name: value for name, value in os.environ.items() if name not in others}


class WorkerStatus(NamedTuple):
    """The state of a worker's process."""

    url: str | None
    """The worker's address; None while it does not serve."""
    restarts: int
    failure: str | None
    """Why the worker failed, if it did."""


class WorkerProcess:
    """Runs a worker process, and restarts it whenever it ends."""

    def __init__(self, environment: Mapping[str, str], flags: Sequence[str], log: int, own_session: bool) -> None:
        """``log`` is the descriptor of the file to which the worker's log is copied.

        With ``own_session``, Ctrl-C in a terminal does not reach the worker, so that this process can stop it
        gracefully.
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
        """The worker's status. Waits at most ``wait_s`` seconds until the worker serves or has failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._url or self._failure or self._stopping, wait_s)
            return WorkerStatus(self._url, max(0, self._starts - 1), self._failure)

    def wait(self) -> None:
        """Wait until :meth:`stop` is called."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping)

    def stop(self, wait_s: float) -> None:
        """Stop the worker for good. Its running programs get ``wait_s`` seconds to finish."""
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
        """Start the process. Return False if :meth:`stop` was called."""
        with self._changed:
            if self._stopping:
                return False
            # The worker stops when its standard input ends, as it does when this process ends for any reason.
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
        """Read the output of the process until it ends. Return its exit code."""
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
                with suppress(OSError):  # nobody reads the log any more
                    os.write(self._log, line)


class LocalWorkers:
    """Workers as child processes. They end with this process, even if it is killed."""

    def __init__(self, environment: Mapping[str, str], count: int, drain_s: float) -> None:
        self._stop_s = drain_s + EXIT_S
        environment = inherited_environment() | dict(environment)
        flags = "--host=127.0.0.1", "--port=0"
        self._workers = [WorkerProcess(environment, flags, logs.STDERR, own_session=True) for _ in range(count)]

    def wait_ready(self) -> None:
        """Wait until all workers serve. Raises CommandFailed, with the end of its log, for a worker that does not."""
        deadline = time.monotonic() + READY_S
        for number, worker in enumerate(self._workers):
            found = worker.status(max(0.0, deadline - time.monotonic()))
            if found.url is None:
                reason = found.failure or f"it does not serve after {READY_S:.0f} s"
                raise CommandFailed(f"worker worker-{number} does not start: {reason}")
            logs.progress(f"worker {number + 1} of {len(self._workers)} serves at {found.url}")

    def stop(self) -> None:
        """Stop the workers. Their programs get ``drain_s`` seconds to finish."""
        with ThreadPoolExecutor(len(self._workers)) as pool:
            list(pool.map(lambda worker: worker.stop(self._stop_s), self._workers))


# Workers on Ray -----------------------------------------------------------------------------------

NAMESPACE = "telegrad"
"""Ray's namespace of the workers' names."""
CALL_S = 5.0
"""Seconds that an actor gets to answer a question about its worker."""
LOOK_S = 0.5
"""Seconds between two attempts to reach Ray."""


class RayError(CommandFailed):
    """Ray, or a worker on Ray, could not be started or reached; the text says why, and what to do."""


def import_ray() -> Any:
    """The module ``ray``. Raises RayError, which names the extra, if it is not installed."""
    check_installed()
    import ray

    return ray


def check_installed() -> None:
    """Raise RayError, which names the extra, if Ray is not installed. Importing it would take a second."""
    if importlib.util.find_spec("ray") is None:
        raise RayError("Ray, which starts and places workers, is not installed here: install telegrad-service[ray]")


@dataclass(frozen=True)
class WorkerSpec:
    """A worker to start: its name in Ray, its environment, the resources that it takes, and its node.

    ``environment`` is added to that of the node. ``log`` is a named pipe on the node for the worker's log, which
    otherwise goes to Ray's own files. ``node`` is the id of the only node on which the worker may run. If the name is
    taken, the existing worker is used, or with ``exclusive`` an error is raised.
    """

    name: str
    environment: dict[str, str] = field(default_factory=dict)
    cpus: float = 0
    gpus: float = 0
    resources: dict[str, float] = field(default_factory=dict)
    log: str | None = None
    node: str | None = None
    exclusive: bool = False


class WorkerActor(WorkerProcess):
    """Runs a worker process on a Ray node."""

    def __init__(self, environment: Mapping[str, str], log: str | None) -> None:
        import ray

        own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        own.pop("OMP_NUM_THREADS", None)  # Ray sets it to 1; the worker has a setting for it
        flags = _address_flags(environment, ray.util.get_node_ip_address())
        super().__init__({**own, **environment}, flags, _open_log(log), own_session=False)  # Ray ends both


def _address_flags(given: Mapping[str, str], node: str) -> list[str]:
    """The flags for a worker's address: a free port on its node's address, unless a port was given."""
    port = given.get("TELEGRAD_PORT")
    if port is None:
        return [f"--host={node}", "--port=0"]
    flags = [f"--host={given.get('TELEGRAD_HOST', node)}", f"--port={port}"]
    if "TELEGRAD_ADVERTISE" not in given:
        flags.append(f"--advertise=http://{f'[{node}]' if ':' in node else node}:{port}")
    return flags


def _open_log(pipe: str | None) -> int:
    """A file descriptor of a named pipe, or of standard error if nobody reads the pipe."""
    if pipe is not None:
        with suppress(OSError):
            descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(descriptor, True)
            return descriptor
    return sys.__stderr__.fileno() if sys.__stderr__ is not None else 2


def check_reachable(address: str, wait_s: float = CALL_S) -> None:
    """Wait until something listens at a ``HOST:PORT``. Raises RayError after ``wait_s``; Ray would take minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise RayError(f"{address!r:.200} is not the address of a Ray cluster, which is HOST:PORT, as in ray-head:6379")
    deadline = time.monotonic() + wait_s
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=CALL_S).close()
            return
        except (OSError, OverflowError) as error:
            if time.monotonic() > deadline:
                raise RayError(f"no Ray cluster answers at {address}: {error}") from None
        time.sleep(LOOK_S)


def connect_to_ray(ray: Any, address: str) -> None:
    """Connect this process to Ray, through the Ray node of this machine. Raises RayError."""
    check_reachable(address)
    try:
        ray.init(address=address, configure_logging=False, log_to_driver=False)
    except (ray.exceptions.RayError, OSError, RuntimeError, ValueError) as error:
        raise RayError(f"cannot connect to Ray at {address}: {str(error)[:500]}") from error


def start_actors(ray: Any, specs: Sequence[WorkerSpec]) -> dict[str, Any]:
    """Start workers on Ray. Return their actors by name. Workers that exist already are left as they are."""
    actors = {}
    for spec in specs:
        strategy: Any = "SPREAD"
        if spec.node is not None:
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            strategy = NodeAffinitySchedulingStrategy(node_id=spec.node, soft=False)
        try:
            actor = ray.remote(WorkerActor).options(
                name=spec.name,
                namespace=NAMESPACE,
                lifetime="detached",
                get_if_exists=not spec.exclusive,
                max_restarts=-1,
                max_task_retries=0,
                max_concurrency=8,  # a call that waits does not block others
                num_cpus=spec.cpus,
                num_gpus=spec.gpus,
                resources=spec.resources,
                scheduling_strategy=strategy,
            )
            actors[spec.name] = actor.remote(spec.environment, spec.log)
        except ValueError as error:  # from Ray's check of the resources and the name
            raise RayError(f"Ray takes no worker {spec.name}: {str(error)[:500]}") from error
    return actors


def wait_for_actors(
    ray: Any, actors: Mapping[str, Any], deadline: float, report: Callable[[str, WorkerStatus], None]
) -> None:
    """Wait until every worker serves, and report each; ``deadline`` is a time of ``time.monotonic``.

    Raises RayError, with the end of its log for a worker that fails, or with the names of those that Ray did not place.
    """
    waiting = {actor.status.remote(max(0.0, deadline - time.monotonic())): name for name, actor in actors.items()}
    while waiting:
        done, _ = ray.wait(list(waiting), timeout=max(0.0, deadline - time.monotonic()))
        if not done:
            free, every = _amounts(ray.available_resources()), _amounts(ray.cluster_resources())
            names = ", ".join(sorted(waiting.values()))
            raise RayError(f"Ray has not started {names} in time; it has {free} free of {every}")
        name = waiting.pop(done[0])
        try:
            found = ray.get(done[0])
        except ray.exceptions.RayError as error:
            raise RayError(f"Ray has lost the actor of worker {name}: {str(error)[:500]}") from error
        if found.failure:
            raise RayError(f"worker {name} does not start: {found.failure}")
        if found.url is None:
            raise RayError(f"worker {name} has not started in time")
        report(name, found)


def find_actors(ray: Any) -> dict[str, Any]:
    """The actors, by name, of all workers that Ray runs or will place."""
    found = {}
    for each in ray.util.list_named_actors(all_namespaces=True):
        if each["namespace"] == NAMESPACE:
            with suppress(ValueError):  # it has ended meanwhile
                found[each["name"]] = ray.get_actor(each["name"], NAMESPACE)
    return dict(sorted(found.items()))


def actor_statuses(ray: Any, actors: Mapping[str, Any]) -> dict[str, WorkerStatus | None]:
    """The statuses of the actors' workers, by name; None if an actor does not answer in time."""
    calls = {name: actor.status.remote(0) for name, actor in actors.items()}
    if calls:
        ray.wait(list(calls.values()), num_returns=len(calls), timeout=CALL_S)
    found: dict[str, WorkerStatus | None] = dict.fromkeys(calls)
    for name, call in calls.items():
        with suppress(ray.exceptions.RayError, TimeoutError):
            found[name] = ray.get(call, timeout=0)
    return found


def stop_actors(ray: Any, actors: Mapping[str, Any], drain_s: float) -> None:
    """Stop workers and their actors. Running programs get ``drain_s`` seconds to finish.

    An actor that does not answer, because Ray has not placed it for example, is ended immediately.
    """
    answered = [name for name, found in actor_statuses(ray, actors).items() if found is not None]
    stops = [actors[name].stop.remote(drain_s + EXIT_S) for name in answered]
    if stops:
        ray.wait(stops, num_returns=len(stops), timeout=drain_s + EXIT_S + CALL_S)
    for actor in actors.values():
        ray.kill(actor, no_restart=True)


def _amounts(resources: Mapping[str, float]) -> str:
    """The resources as text, without Ray's internal ones."""
    shown = [
        f"{amount:g} {name}"
        for name, amount in sorted(resources.items())
        if name not in ("memory", "object_store_memory") and ":" not in name
    ]
    return ", ".join(shown) or "nothing"
