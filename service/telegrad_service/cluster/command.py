"""``telegrad gateway``, ``telegrad worker``, ``telegrad cluster``, and ``telegrad serve --workers``."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, CliPositionalArg, CliSubCommand

from ..commands import Group, table
from ..observability import logs
from ..process import default_process_bytes, usable_cores
from ..settings import (
    DatabaseSettings,
    EnvironmentSettings,
    ForegroundSettings,
    GatewaySettings,
    Settings,
    WorkerSettings,
)
from . import ray_nodes
from .worker_processes import (
    OF_THE_GATEWAY,
    LocalWorkers,
    RayError,
    WorkerSpec,
    WorkerStatus,
    actor_statuses,
    connect_to_ray,
    find_actors,
    import_ray,
    start_actors,
    stop_actors,
    wait_for_actors,
)

if TYPE_CHECKING:
    from .directory import Directory
    from .directory import Worker as Member


MIB = 2**20
LOOK_S = 0.5
"""Seconds between two checks of a worker that drains."""
NOTICED_S = 2.0
"""Seconds after which a draining worker knows that it drains and has registered the sessions it was creating."""


class RayAddress(EnvironmentSettings):
    """The Ray cluster that a command is for."""

    ray_address: str | None = Field(
        default=None,
        description="HOST:PORT of the Ray cluster, whose node this machine is; by default that of RAY_ADDRESS, or of "
        "the Ray that `telegrad cluster up` has started on this machine",
    )

    def address(self) -> str | None:
        """The address, if the flag or the environment has one."""
        return self.ray_address or os.environ.get("RAY_ADDRESS") or None


@contextmanager
def _directory(settings: DatabaseSettings) -> Iterator[Directory]:
    from ..database import Database
    from .directory import Directory

    with Database(settings.database_url.get_secret_value()) as database:
        yield Directory(database)


@contextmanager
def _ray(address: str | None) -> Iterator[Any]:
    """The module of Ray, connected; None without an address and without a private Ray."""
    background = None if address else ray_nodes.find_background()
    if background is not None:
        os.environ.update(ray_nodes.private_environment(background.token))
        address = background.address
    if address is None:
        yield None
        return
    ray = import_ray()
    connect_to_ray(ray, address)
    try:
        yield ray
    finally:
        ray.shutdown()


def worker_environment(settings: BaseSettings, defaults: dict[str, object] | None = None) -> dict[str, str]:
    """The given settings, and these defaults, as environment variables of a worker."""
    names = (settings.model_fields_set & WorkerSettings.model_fields.keys()) - OF_THE_GATEWAY
    given = (defaults or {}) | {name: getattr(settings, name) for name in sorted(names)}
    data = given.get("data_dir")
    if isinstance(data, str) and "://" not in data:
        given["data_dir"] = os.path.abspath(data)  # the worker may have another working directory
    return {f"TELEGRAD_{name.upper()}": _text(value) for name, value in given.items() if value is not None}


def _text(value: object) -> str:
    match value:
        case SecretStr():
            return value.get_secret_value()
        case list():
            return ",".join(map(str, value))
        case _:
            return str(value)


# telegrad gateway, telegrad worker ------------------------------------------------------------------------


class Gateway(GatewaySettings, ForegroundSettings):
    """Pass requests on to the workers of a cluster. Several gateways may share a PostgreSQL database."""

    def cli_cmd(self) -> None:
        """Run the gateway in the foreground."""
        from .gateway_app import run_gateway

        self.begin()
        run_gateway(self, "is a gateway at")


class Worker(WorkerSettings, ForegroundSettings):
    """Host sessions for the gateways of a cluster, which share its database, and its data folder with other workers."""

    def cli_cmd(self) -> None:
        """Run the worker in the foreground."""
        from .worker import run_worker

        self.begin()
        run_worker(self)


# telegrad cluster -----------------------------------------------------------------------------------------


class Up(RayAddress, WorkerSettings):
    """Start workers on a Ray cluster, or on this machine, where they go on in the background."""

    workers: int = Field(default=1, ge=0, description="how many workers compute on the CPU")
    gpus: int = Field(default=0, ge=0, description="how many more workers have a GPU each")
    cpus: float = Field(default=1, ge=0, description="CPUs that Ray reserves for each worker")
    resource: dict[str, float] = Field(
        default={}, description="custom resource of Ray that each worker takes, as in disk=1; repeatable"
    )
    ready_s: float = Field(default=60, gt=0, description="seconds that the workers get to start")

    def cli_cmd(self) -> None:
        """Start the missing ones, and print the address of each."""
        kinds = [(f"cpu-{i}", 0) for i in range(self.workers)] + [(f"gpu-{i}", 1) for i in range(self.gpus)]
        address = self.address()
        background = None if address else ray_nodes.find_background() or ray_nodes.start_background(self.drain_s)
        environment = worker_environment(self)
        log = None if background is None else background.log
        specs = [
            # A worker without a GPU of its own sees none; Ray says which ones another may use.
            WorkerSpec(
                name, environment | ({} if gpus else {"CUDA_VISIBLE_DEVICES": ""}), self.cpus, gpus, self.resource, log
            )
            for name, gpus in kinds
        ]
        with _ray(address) as ray:
            actors = start_actors(ray, specs)
            try:
                deadline = time.monotonic() + self.ready_s
                wait_for_actors(
                    ray, actors, deadline, lambda name, found: logs.progress(f"worker {name} serves at {found.url}")
                )
            except RayError:
                # Workers that serve stay. The others are stopped, because their settings may be wrong.
                found = actor_statuses(ray, actors)
                silent = [name for name, each in found.items() if each is None or each.url is None]
                stop_actors(ray, {name: actors[name] for name in silent}, 0)
                raise
        print("The workers are up. `telegrad gateway` serves their sessions; `telegrad cluster status` lists them.")


class Status(RayAddress, DatabaseSettings):
    """List the workers: their devices, sessions and load."""

    def cli_cmd(self) -> None:
        """Print a table, and the reasons of workers on Ray that do not serve."""
        with _directory(self) as directory, _ray(self.address()) as ray:
            _, found, names = _actors(ray)
            workers = [worker for worker in directory.workers() if worker.alive]
        rows = [_row(worker, name := names.get(worker.url, "-"), found.get(name)) for worker in workers]
        missing = {name: found[name] for name in sorted(found.keys() - {row[1] for row in rows})}
        rows += [["-", name, "starting", *"------", "-"] for name in missing]
        headings = ["ID", "NAME", "STATE", "DEVICES", "SESSIONS", "LOAD", "FREE MIB", "VERSION", "RESTARTS", "ADDRESS"]
        print(*table(headings, rows), sep="\n")
        for name, each in missing.items():
            if each is None:
                reason = "Ray has not placed it, or starts it again"
            else:
                reason = each.failure or (f"it serves at {each.url}, in another database" if each.url else "it starts")
            print(f"telegrad: {name} is not in the directory: {reason}", file=sys.stderr)


def _actors(ray: Any) -> tuple[dict[str, Any], dict[str, WorkerStatus | None], dict[str, str]]:
    """The actors of workers by name, the workers' statuses by name, and the names by address."""
    if ray is None:
        return {}, {}, {}
    actors = find_actors(ray)
    found = actor_statuses(ray, actors)
    return actors, found, {each.url: name for name, each in found.items() if each is not None and each.url is not None}


def _row(worker: Member, name: str, found: WorkerStatus | None) -> Sequence[str]:
    report = worker.report
    state = f"silent for {worker.overdue_s:.0f} s" if worker.overdue_s > 0 else str(worker.state)
    return [
        worker.id,
        name,
        state,
        ",".join(worker.devices),
        f"{report.sessions} of {report.max_sessions}",
        f"{report.load:.0%}",
        str(report.free_bytes // MIB),
        worker.version,
        "-" if found is None else str(found.restarts),
        worker.url,
    ]


class Drain(RayAddress, DatabaseSettings):
    """Take a worker out of service: its sessions move to others; a worker on Ray ends after that."""

    worker: CliPositionalArg[str] = Field(description="the worker's id or its name on Ray, as the list shows them")
    wait_s: float = Field(default=60, ge=0, description="seconds to wait until it has no sessions any more")
    force: bool = Field(
        default=False, description="end it then even if it has sessions, which are lost unless they are durable"
    )

    def cli_cmd(self) -> None:
        """Drain it; end with 1 if sessions are left."""
        with _directory(self) as directory, _ray(self.address()) as ray:
            actors, _, names = _actors(ray)
            workers = directory.workers()
            worker = next((w for w in workers if w.alive and self.worker in (w.id, names.get(w.url))), None)
            if worker is None:
                raise RayError(f"there is no worker {self.worker!r:.80}; `telegrad cluster status` lists them")
            directory.drain(worker.id)
            deadline = time.monotonic() + self.wait_s
            time.sleep(NOTICED_S)
            while (left := directory.session_count(worker.id)) and time.monotonic() < deadline:
                time.sleep(LOOK_S)
            name = names.get(worker.url)
            if left and not self.force:
                sys.exit(
                    f"telegrad: worker {self.worker} takes no new sessions, and has {left} that cannot move: they have "
                    "no snapshot now (a backward pass waits for its client, a profile runs, or they are on a GPU), or "
                    "are not durable and the worker has no --data-dir. It goes on, and they move as soon as they can, "
                    "or end with their client or their time to live; --force ends them now, with a 410 to their clients"
                )
            if name is not None:
                stop_actors(ray, {name: actors[name]}, 0)
        print(f"Worker {self.worker} is drained{' and has ended' if name else ', and can be stopped'}.")


class Down(RayAddress):
    """End all workers on Ray, and the Ray that `telegrad cluster up` has started on this machine."""

    drain_s: float = Field(default=30, ge=0, description="seconds that running programs get to finish")

    def cli_cmd(self) -> None:
        """Stop them, and wait until they have ended."""
        with _ray(self.address()) as ray:
            if ray is None:
                raise RayError("no Ray runs in the background on this machine; --ray-address names another")
            actors = find_actors(ray)
            stop_actors(ray, actors, self.drain_s)
        background = None if self.address() else ray_nodes.find_background()
        if background is not None:
            ray_nodes.stop_background(background)
        print(f"{len(actors)} workers have ended.")


class Join(RayAddress, WorkerSettings, ForegroundSettings):
    """Add this machine to a Ray cluster with one worker, in the foreground, as in a container."""

    name: str | None = Field(default=None, description="the worker's name on Ray; by default made from the host's")
    gpus: float | None = Field(default=None, ge=0, description="GPUs that the worker takes; by default all there are")
    resource: dict[str, float] = Field(
        default={}, description="custom resource that this machine has, and the worker takes, as in disk=1; repeatable"
    )

    def cli_cmd(self) -> None:
        """Run until SIGTERM or SIGINT; end with 1 if Ray ends."""
        self.begin()
        address = self.address()
        if address is None:
            raise RayError("--ray-address, or RAY_ADDRESS, says which Ray cluster to join: HOST:PORT")
        name = self.name or f"{socket.gethostname()}-{token_hex(2)}"
        environment = worker_environment(self)
        if self.port and "port" in self.model_fields_set:
            # In a container, health checks and Prometheus must know the address.
            environment["TELEGRAD_PORT"] = str(self.port)
            if "host" in self.model_fields_set:
                environment["TELEGRAD_HOST"] = self.host
        ray_nodes.join(address, name, environment, self.gpus, self.resource, self.drain_s)


class Cluster(Group):
    """Start, list, drain and stop workers on Ray."""

    up: CliSubCommand[Up]
    status: CliSubCommand[Status]
    drain: CliSubCommand[Drain]
    down: CliSubCommand[Down]
    join: CliSubCommand[Join]


# telegrad serve --workers ---------------------------------------------------------------------------------


def serve_with_workers(settings: Settings, count: int) -> None:
    """Serve as a gateway with ``count`` workers as child processes until SIGINT or SIGTERM, then stop the workers."""
    from .gateway_app import run_gateway

    share: dict[str, object] = {
        "max_process_bytes": default_process_bytes() // count,
        "max_tenant_bytes": default_process_bytes() // 2 // count,
        "blas_threads": max(1, usable_cores() // count),
    }
    environment = worker_environment(settings, share)
    given = {name: getattr(settings, name) for name in GatewaySettings.model_fields if hasattr(settings, name)}
    workers = LocalWorkers(environment, count, settings.drain_s)
    with ThreadPoolExecutor(1) as pool:
        try:
            run_gateway(GatewaySettings(**given), "serves at", pool.submit(workers.wait_ready))
        finally:
            workers.stop()
