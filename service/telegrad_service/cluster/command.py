"""``telegrad cluster``: start, list, drain and stop workers on Ray; and ``telegrad serve --workers``."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, CliApp, CliPositionalArg, CliSubCommand, SettingsConfigDict

from telegrad_engine.errors import TelegradError

from ..observability import logs
from ..process import default_process_bytes, stop_after, usable_cores
from ..remote import table
from ..settings import DatabaseSettings, EnvironmentSettings, ForegroundSettings, Settings
from . import local_ray, ray_workers
from .ray_workers import RayError, WorkerSpec
from .settings import GatewaySettings, WorkerSettings

if TYPE_CHECKING:
    from .directory import Directory, Worker

MIB = 2**20
LOOK_S = 0.5
"""Seconds between two looks at a worker that drains."""
NOTICED_S = 2.0
"""Seconds after which a worker knows that it drains, and has registered the sessions that it was creating."""


class RayAddress(EnvironmentSettings):
    """The Ray cluster that a command is for."""

    ray_address: str | None = Field(
        default=None,
        description="HOST:PORT of the Ray cluster, whose node this machine is; by default that of RAY_ADDRESS, or of "
        "the Ray that `telegrad cluster up` has started on this machine",
    )

    def address(self) -> str | None:
        """The address, if one is given."""
        return self.ray_address or os.environ.get("RAY_ADDRESS") or None


@contextmanager
def _errors() -> Iterator[None]:
    """Ends the process with the text of an error."""
    from ..database.database import DatabaseUnavailable
    from ..server import NotServed

    try:
        yield
    except (RayError, TelegradError, NotServed, DatabaseUnavailable) as error:
        logs.fail(error)


@contextmanager
def _directory(settings: DatabaseSettings) -> Iterator[Directory]:
    from ..database.database import Database
    from .directory import Directory

    database = Database(settings.database_url.get_secret_value())
    try:
        database.open()
        yield Directory(database)
    finally:
        database.close()


@contextmanager
def _ray(address: str | None) -> Iterator[Any]:
    """Ray, connected; None if no address is given and none runs in the background."""
    background = None if address else local_ray.find_background()
    if background is not None:
        os.environ.update(local_ray.private_environment(background.token))
        address = background.address
    if address is None:
        yield None
        return
    ray = ray_workers.import_ray()
    ray_workers.connect(ray, address)
    try:
        yield ray
    finally:
        ray.shutdown()


def worker_environment(settings: BaseSettings, defaults: dict[str, object] | None = None) -> dict[str, str]:
    """The settings that were given, and defaults, as environment variables of a worker."""
    names = (settings.model_fields_set & WorkerSettings.model_fields.keys()) - local_ray.OF_THE_GATEWAY
    given = (defaults or {}) | {name: getattr(settings, name) for name in sorted(names)}
    data = given.get("data_dir")
    if isinstance(data, str) and "://" not in data:
        given["data_dir"] = os.path.abspath(data)  # the worker's folder may be another
    return {f"TELEGRAD_{name.upper()}": _text(value) for name, value in given.items() if value is not None}


def _text(value: object) -> str:
    match value:
        case SecretStr():
            return value.get_secret_value()
        case list():
            return ",".join(map(str, value))
        case _:
            return str(value)


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
        """Start those that are not there yet, and print where each serves."""
        kinds = [(f"cpu-{i}", 0) for i in range(self.workers)] + [(f"gpu-{i}", 1) for i in range(self.gpus)]
        with _errors():
            address = self.address()
            background = None if address else local_ray.find_background() or local_ray.start_background(self.drain_s)
            log = None if background is None else background.log
            specs = [
                WorkerSpec(name, self._environment(gpus), self.cpus, gpus, self.resource, log) for name, gpus in kinds
            ]
            with _ray(address) as ray:
                actors = ray_workers.start(ray, specs)
                try:
                    deadline = time.monotonic() + self.ready_s
                    ray_workers.wait_ready(ray, actors, deadline, local_ray.progress(len(specs)))
                except RayError:
                    # Those that serve stay. The others would keep settings that may be wrong.
                    found = ray_workers.described(ray, actors)
                    ray_workers.stop(ray, {name: actors[name] for name, each in found.items() if not _serves(each)}, 0)
                    raise
        print("The workers are up. `telegrad gateway` serves their sessions; `telegrad cluster status` lists them.")

    def _environment(self, gpus: int) -> dict[str, str]:
        """A worker without a GPU of its own sees none; Ray says which ones another may use."""
        return worker_environment(self) | ({} if gpus else {"CUDA_VISIBLE_DEVICES": ""})


class Status(RayAddress, DatabaseSettings):
    """List the workers: their devices, sessions and load."""

    def cli_cmd(self) -> None:
        """Print a table, and why workers on Ray do not serve."""
        with _errors(), _directory(self) as directory, _ray(self.address()) as ray:
            actors = {} if ray is None else ray_workers.running(ray)
            found = {} if ray is None else ray_workers.described(ray, actors)
            workers = [worker for worker in directory.workers() if worker.alive]
        names = {each["url"]: name for name, each in found.items() if each is not None and _serves(each)}
        rows = [_row(worker, name := names.get(worker.url, "-"), found.get(name)) for worker in workers]
        missing = {name: found[name] for name in sorted(found.keys() - {row[1] for row in rows})}
        rows += [["-", name, "starting", *"------", "-"] for name in missing]
        headings = ["ID", "NAME", "STATE", "DEVICES", "SESSIONS", "LOAD", "FREE MIB", "VERSION", "RESTARTS", "ADDRESS"]
        print(*table(headings, rows), sep="\n")
        for name, each in missing.items():
            print(f"telegrad: {name} is not in the directory: {_reason(each)}", file=sys.stderr)


def _serves(found: dict[str, Any] | None) -> bool:
    return found is not None and found["url"] is not None


def _reason(found: dict[str, Any] | None) -> str:
    if found is None:
        return "Ray has not placed it, or starts it again"
    return found["failure"] or (f"it serves at {found['url']}, in another database" if found["url"] else "it starts")


def _row(worker: Worker, name: str, found: dict[str, Any] | None) -> Sequence[str]:
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
        "-" if found is None else str(found["restarts"]),
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
        with _errors(), _directory(self) as directory, _ray(self.address()) as ray:
            actors = {} if ray is None else ray_workers.running(ray)
            found = {} if ray is None else ray_workers.described(ray, actors)
            names = {each["url"]: name for name, each in found.items() if each is not None and _serves(each)}
            worker = self._find(directory, names)
            directory.drain(worker.id)
            left = self._wait(directory, worker.id)
            name = names.get(worker.url)
            if left and not self.force:
                sys.exit(
                    f"telegrad: worker {self.worker} takes no new sessions, and has {left} that cannot move: they have "
                    "no snapshot now (a backward pass waits for its client, a profile runs, or they are on a GPU), or "
                    "are not durable and the worker has no --data-dir. It goes on, and they move as soon as they can, "
                    "or end with their client or their time to live; --force ends them now, with a 410 to their clients"
                )
            if name is not None:
                ray_workers.stop(ray, {name: actors[name]}, 0)
        print(f"Worker {self.worker} is drained{' and has ended' if name else ', and can be stopped'}.")

    def _find(self, directory: Directory, names: dict[str, str]) -> Worker:
        for worker in directory.workers():
            if worker.alive and self.worker in (worker.id, names.get(worker.url)):
                return worker
        raise RayError(f"there is no worker {self.worker!r:.80}; `telegrad cluster status` lists them")

    def _wait(self, directory: Directory, worker_id: str) -> int:
        """Wait until the worker has no sessions; how many it has left."""
        time.sleep(NOTICED_S)
        deadline = time.monotonic() + self.wait_s - NOTICED_S
        while (left := directory.session_count(worker_id)) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        return left


class Down(RayAddress):
    """End all workers on Ray, and the Ray that `telegrad cluster up` has started on this machine."""

    drain_s: float = Field(default=30, ge=0, description="seconds that running programs get to finish")

    def cli_cmd(self) -> None:
        """End them, and wait until they have ended."""
        with _errors():
            with _ray(self.address()) as ray:
                if ray is None:
                    raise RayError("no Ray runs in the background on this machine; --ray-address names another")
                actors = ray_workers.running(ray)
                ray_workers.stop(ray, actors, self.drain_s)
            background = None if self.address() else local_ray.find_background()
            if background is not None:
                local_ray.stop_background(background)
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
        from .join import join

        with _errors():
            address = self.address()
            if address is None:
                raise RayError("--ray-address, or RAY_ADDRESS, says which Ray cluster to join: HOST:PORT")
            logs.configure(self.log_level, self.log_format)
            if self.end_with_stdin:
                stop_after(sys.stdin.fileno())
            name = self.name or f"{socket.gethostname()}-{token_hex(2)}"
            join(address, name, worker_environment(self) | self._listen(), self.gpus, self.resource, self.drain_s)

    def _listen(self) -> dict[str, str]:
        """The address that was given: in a container, health checks and Prometheus must know it."""
        if "port" not in self.model_fields_set or not self.port:
            return {}
        return {"TELEGRAD_PORT": str(self.port)} | (
            {"TELEGRAD_HOST": self.host} if "host" in self.model_fields_set else {}
        )


class Cluster(BaseSettings):
    """Start, list, drain and stop workers on Ray."""

    model_config = SettingsConfigDict(cli_use_class_docs_for_groups=True)

    up: CliSubCommand[Up]
    status: CliSubCommand[Status]
    drain: CliSubCommand[Drain]
    down: CliSubCommand[Down]
    join: CliSubCommand[Join]

    def cli_cmd(self) -> None:
        """Run the subcommand."""
        CliApp.run_subcommand(self)


# telegrad serve --workers ---------------------------------------------------------------------------------


def serve_with_workers(settings: Settings, count: int) -> None:
    """Serve as a gateway with so many workers on a Ray of our own, until SIGINT or SIGTERM; then stop all of them."""
    share: dict[str, object] = {
        "max_process_bytes": default_process_bytes() // count,
        "max_tenant_bytes": default_process_bytes() // 2 // count,
        "blas_threads": max(1, usable_cores() // count),
    }
    environment = worker_environment(settings, share)
    specs = [WorkerSpec(f"worker-{i}", environment) for i in range(count)]
    given = {name: getattr(settings, name) for name in GatewaySettings.model_fields if hasattr(settings, name)}
    with _errors():
        workers = _Workers(local_ray.LocalRay(specs, settings.drain_s, settings.log_format))
        try:
            _run_gateway(GatewaySettings(**given), workers.ready)
        finally:
            workers.stop()
        if workers.failure is not None:
            raise workers.failure


def _run_gateway(settings: GatewaySettings, workers: Future[None]) -> None:
    from .gateway_app import run_gateway

    run_gateway(settings, "serves at", workers)


class _Workers:
    """The workers beside a gateway in this process, which starts at the same time and stops if they fail."""

    def __init__(self, ray: local_ray.LocalRay) -> None:
        self.failure: RayError | None = None
        self.ready: Future[None] = Future()
        """Done when all of them serve."""
        self.ready.set_running_or_notify_cancel()  # a gateway that stops earlier cannot cancel it
        self._ray, self._stopping = ray, threading.Event()
        threading.Thread(target=self._watch, name="workers", daemon=True).start()

    def stop(self) -> None:
        """Stop the workers, after the gateway."""
        self._stopping.set()
        self._ray.stop()

    def _watch(self) -> None:
        try:
            self._ray.wait_ready()
            self.ready.set_result(None)
            code = self._ray.wait()
            raise RayError(f"Ray has ended with code {code}, and with it the workers")
        except RayError as error:
            if not self._stopping.is_set():
                self.failure = error
                # To the main thread, which runs the gateway.
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
