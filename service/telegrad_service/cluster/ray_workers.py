"""Workers on Ray: the actor that runs a worker, and how workers are started, listed and stopped.

Ray places an actor by the resources it asks for, and starts it again, without limit, if its process or its node dies.
The actor runs ``telegrad worker`` as a process of its own, which no Ray thread shares. Only addresses and states pass
through Ray; programs and tensors never do.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..observability.logs import CommandFailed
from .worker_process import EXIT_S, WorkerProcess, WorkerStatus

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
    """Raise RayError, which names the extra, if Ray is not installed; it is not imported, which takes a second."""
    if importlib.util.find_spec("ray") is None:
        raise RayError("Ray, which starts and places workers, is not installed here: install telegrad-service[ray]")


@dataclass(frozen=True)
class WorkerSpec:
    """A worker to start: its name in Ray, the resources that it takes, its environment and its node.

    ``environment`` is added to that of the node. ``log`` is a named pipe on the node that takes the worker's log, which
    otherwise goes to Ray's own files. With ``node``, a node's id, the worker runs there and nowhere else. ``exclusive``
    refuses a name that is taken, which otherwise means that the worker is there already.
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
    """Runs one worker process, on a Ray node."""

    def __init__(self, environment: Mapping[str, str], log: str | None) -> None:
        import ray

        own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        own.pop("OMP_NUM_THREADS", None)  # Ray sets it to 1; the worker has a setting for it
        flags = _address_flags(environment, ray.util.get_node_ip_address())
        super().__init__({**own, **environment}, flags, _open_log(log), own_session=False)  # Ray ends it with the actor


def _address_flags(given: Mapping[str, str], node: str) -> list[str]:
    """The flags of a worker's address: a free port of its node's address, unless a port was given."""
    port = given.get("TELEGRAD_PORT")
    if port is None:
        return [f"--host={node}", "--port=0"]
    flags = [f"--host={given.get('TELEGRAD_HOST', node)}", f"--port={port}"]
    if "TELEGRAD_ADVERTISE" not in given:
        flags.append(f"--advertise=http://{f'[{node}]' if ':' in node else node}:{port}")
    return flags


def _open_log(pipe: str | None) -> int:
    """A file descriptor of the named pipe, or of this process's standard error if nobody reads the pipe."""
    if pipe is not None:
        with suppress(OSError):
            descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(descriptor, True)
            return descriptor
    return sys.__stderr__.fileno() if sys.__stderr__ is not None else 2


# Starting, listing, stopping ------------------------------------------------------------------------------


def check_reachable(address: str, wait_s: float = CALL_S) -> None:
    """Wait until something listens at this ``HOST:PORT``. Raises RayError if nothing does in time.

    Ray itself would try for minutes.
    """
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


def connect(ray: Any, address: str) -> None:
    """Connect this process to Ray, through the Ray node of this machine. Raises RayError if that is not possible."""
    check_reachable(address)
    try:
        ray.init(address=address, configure_logging=False, log_to_driver=False)
    except (ray.exceptions.RayError, OSError, RuntimeError, ValueError) as error:
        raise RayError(f"cannot connect to Ray at {address}: {str(error)[:500]}") from error


def start(ray: Any, specs: Sequence[WorkerSpec]) -> dict[str, Any]:
    """Ask Ray for these workers; handles of their actors by name. A worker that is there already is left as it is."""
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
                max_concurrency=8,  # a call that waits holds up no other
                num_cpus=spec.cpus,
                num_gpus=spec.gpus,
                resources=spec.resources,
                scheduling_strategy=strategy,
            )
            actors[spec.name] = actor.remote(spec.environment, spec.log)
        except ValueError as error:  # it checks the resources, and whether the name is free
            raise RayError(f"Ray takes no worker {spec.name}: {str(error)[:500]}") from error
    return actors


def wait_ready(
    ray: Any, actors: Mapping[str, Any], deadline: float, report: Callable[[str, WorkerStatus], None]
) -> None:
    """Wait until every worker serves, and report each as it does; ``deadline`` is of ``time.monotonic``.

    Raises RayError with the log's end if one does not start, or with the names of those that Ray has not placed.
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


def running(ray: Any) -> dict[str, Any]:
    """Handles of the actors of all workers that Ray runs or is to place, by name."""
    found = {}
    for each in ray.util.list_named_actors(all_namespaces=True):
        if each["namespace"] == NAMESPACE:
            with suppress(ValueError):  # it has ended since
                found[each["name"]] = ray.get_actor(each["name"], NAMESPACE)
    return dict(sorted(found.items()))


def statuses(ray: Any, actors: Mapping[str, Any]) -> dict[str, WorkerStatus | None]:
    """The statuses of the actors' workers, by name; None of an actor that does not answer in time."""
    calls = {name: actor.status.remote(0) for name, actor in actors.items()}
    if calls:
        ray.wait(list(calls.values()), num_returns=len(calls), timeout=CALL_S)
    found: dict[str, WorkerStatus | None] = dict.fromkeys(calls)
    for name, call in calls.items():
        with suppress(ray.exceptions.RayError, TimeoutError):
            found[name] = ray.get(call, timeout=0)
    return found


def stop(ray: Any, actors: Mapping[str, Any], drain_s: float) -> None:
    """End these workers and their actors; running programs get ``drain_s`` seconds to finish.

    An actor that does not answer, such as one that Ray has not placed, is ended at once.
    """
    answered = [name for name, found in statuses(ray, actors).items() if found is not None]
    stops = [actors[name].stop.remote(drain_s + EXIT_S) for name in answered]
    if stops:
        ray.wait(stops, num_returns=len(stops), timeout=drain_s + EXIT_S + CALL_S)
    for actor in actors.values():
        ray.kill(actor, no_restart=True)


def _amounts(resources: Mapping[str, float]) -> str:
    """The resources that workers ask for, without Ray's own."""
    shown = [
        f"{amount:g} {name}"
        for name, amount in sorted(resources.items())
        if name not in ("memory", "object_store_memory") and ":" not in name
    ]
    return ", ".join(shown) or "nothing"
