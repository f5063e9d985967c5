"""What the containers would run, run as processes of this machine: their commands, environments and health checks.

A real PostgreSQL, a real Ray, a gateway and a worker, until a session trains through them. Only addresses, ports and
folders are replaced, which a container has for itself.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

import telegrad as tg
from tests.servers import free_port
from tests.service.databases import SERVER_USER, binaries

from .files import WAIT_S, duration, local, services
from .test_compose import make_secrets
from .test_monitoring import queries, samples, selected

LOOPBACK = "127.0.0.1"
START_S = 100
"""Seconds that a service gets to become healthy, on a machine that does much else."""
pytestmark = pytest.mark.full


class Service:
    """A service of docker-compose.yml as a process."""

    def __init__(
        self, name: str, command: list[str], check: list[str], environment: Mapping[str, str], log: Path
    ) -> None:
        self.name, self._check, self._log = name, check, log
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("TELEGRAD_", "RAY_", "PG"))}
        self.environment = {**inherited, **environment}
        with open(log, "wb") as file:
            # In a process group of its own, as in a container, so that nothing of it is left.
            self.process = subprocess.Popen(
                command, env=self.environment, cwd=log.parent, stdout=file, stderr=file, start_new_session=True
            )

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def healthy(self) -> bool:
        """Whether the service's health check succeeds."""
        run = subprocess.run(
            self._check, env=self.environment, capture_output=True, timeout=WAIT_S, check=False, cwd=self._log.parent
        )
        return run.returncode == 0

    def wait_healthy(self) -> None:
        """Wait until it is healthy."""
        deadline = time.monotonic() + START_S
        while not self.healthy():
            assert self.process.poll() is None, f"{self.name} has ended:\n{self.log}"
            assert time.monotonic() < deadline, f"{self.name} is not healthy:\n{self.log}"
            time.sleep(0.2)

    def stop(self) -> int:
        """End it as ``docker compose stop`` does; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        grace = services()[self.name].get("stop_grace_period", "10s")
        return self.process.wait(duration(grace))

    def kill(self) -> None:
        """End it, with all that it has started."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Deployment:
    """The services that have been started, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {name: free_port() for name in ("postgres", "ray-head", "gateway", "worker")}
        for name in ("secrets", "sessions", "work"):
            (folder / name).mkdir()
        make_secrets(folder / "secrets")
        pgpass = folder / "secrets" / "database" / "pgpass"
        pgpass.write_text(pgpass.read_text().replace("postgres:5432", f"{LOOPBACK}:{self.ports['postgres']}"))
        self._postgres: Path | None = None

    def replaced(self, text: str, name: str) -> str:
        """A word of a command or the value of a variable, with this machine's addresses and folders."""
        for container, here in (
            ("/run/telegrad", str(self.folder / "secrets")),
            ("/var/lib/telegrad", str(self.folder / "sessions")),
            ("@postgres/", f"@{LOOPBACK}:{self.ports['postgres']}/"),
            ("ray-head:6379", f"{LOOPBACK}:{self.ports['ray-head']}"),
            (f"{LOOPBACK}:6379", f"{LOOPBACK}:{self.ports['ray-head']}"),
            ("--port=6379", f"--port={self.ports['ray-head']}"),
            ("0.0.0.0", LOOPBACK),
        ):
            text = text.replace(container, here)
        return str(self.ports[name]) if text == "8000" else text

    def start(self, name: str, *more: str, without: Sequence[str] = ()) -> Service:
        """Start one of our services, with more arguments, and without the modules that its image has not."""
        service = services()[name]
        words = [*(service.get("entrypoint") or ["telegrad"]), *(service["command"] or []), *more]
        given = {key: value for key, value in service["environment"].items() if value is not None}
        kind, *check = service["healthcheck"]["test"]
        assert kind == "CMD"
        command = local([self.replaced(word, name) for word in words])
        if without:
            interpreter, flag, program, *arguments = command
            missing = f"import sys; sys.modules.update(dict.fromkeys({without!r}))"
            command = [interpreter, flag, f"{missing}; {program}", *arguments]
        return Service(
            name,
            command,
            local([self.replaced(word, name) for word in check]),
            {key: self.replaced(value, name) for key, value in given.items()},
            self.folder / "work" / f"{name}.log",
        )

    def start_postgres(self, programs: Path) -> Service:
        """Start PostgreSQL with the user, database and password that the image would make of the environment."""
        service = services()["postgres"]
        given = {key: self.replaced(value, "postgres") for key, value in service["environment"].items()}
        data, password, user = self.folder / "data", self.folder / "password", given["POSTGRES_USER"]
        data.mkdir(mode=0o700)
        shutil.copy(given["POSTGRES_PASSWORD_FILE"], password)
        as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            as_user = {"user": SERVER_USER, "extra_groups": []}
            os.chmod(self.folder, 0o755)
            for path in (data, password):
                shutil.chown(path, SERVER_USER)
        setup = [
            "initdb",
            "--auth=scram-sha-256",
            f"--username={user}",
            f"--pwfile={password}",
            "--no-sync",
            "-D",
            str(data),
        ]
        subprocess.run(
            [programs / setup[0], *setup[1:]], check=True, capture_output=True, cwd=data, timeout=2 * WAIT_S, **as_user
        )
        flags = ["-D", str(data), "-h", LOOPBACK, "-p", str(self.ports["postgres"]), "-k", "", "-c", "fsync=off"]
        command = [str(programs / "postgres"), *flags]
        if as_user:
            command = ["setpriv", f"--reuid={SERVER_USER}", f"--regid={SERVER_USER}", "--clear-groups", *command]
        _, check, *words = service["healthcheck"]["test"]
        started = Service(
            "postgres",
            command,
            [str(programs / check), *words],
            {**given, "PGPORT": str(self.ports["postgres"])},
            self.folder / "work" / "postgres.log",
        )
        try:
            started.wait_healthy()
            create = ["createdb", f"--host={LOOPBACK}", f"--port={self.ports['postgres']}", f"--username={user}"]
            variables = {**os.environ, "PGPASSFILE": str(self.folder / "secrets" / "database" / "pgpass")}
            subprocess.run(
                [programs / create[0], *create[1:], given["POSTGRES_DB"]], env=variables, check=True, timeout=WAIT_S
            )
        except BaseException:
            started.kill()
            raise
        return started


class Running(NamedTuple):
    """A gateway with a worker, and what they need."""

    gateway: Service
    worker: Service
    ray: Service
    deployment: Deployment

    def url(self, name: str) -> str:
        return f"http://{LOOPBACK}:{self.deployment.ports[name]}"


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    programs = binaries()
    if programs is None:
        assert not os.environ.get("CI"), "continuous integration installs PostgreSQL"
        pytest.skip("PostgreSQL is not installed")
    with ExitStack() as stack:
        # In a short folder, because Ray has sockets in it.
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="tg-", dir="/tmp", ignore_cleanup_errors=True))
        )
        deployment = Deployment(folder)

        def started(service: Service) -> Service:
            stack.callback(service.kill)
            service.wait_healthy()
            return service

        # In the order of depends_on.
        started(deployment.start_postgres((programs / "initdb").resolve().parent))
        ray = started(deployment.start("ray-head", f"--node-ip-address={LOOPBACK}", f"--temp-dir={folder / 'ray'}"))
        # A container's worker listens at the address by which Ray knows it; this one listens on loopback alone.
        worker = started(deployment.start("worker", f"--advertise=http://{LOOPBACK}:{deployment.ports['worker']}"))
        gateway = started(deployment.start("gateway", without=("scipy", "ray", "s3fs", "cupy")))
        yield Running(gateway, worker, ray, deployment)


def losses(backend: Any) -> list[float]:
    """The losses of some steps of a small network that is trained."""
    backend.manual_seed(0)
    x, y = backend.randn(16, 4), backend.randn(16, 1)
    model = backend.nn.Sequential(backend.nn.Linear(4, 8), backend.nn.Tanh(), backend.nn.Linear(8, 1))
    optimizer = backend.optim.Adam(model.parameters(), lr=0.05)
    found = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def test_a_session_trains_through_the_gateway(running: Running) -> None:
    with tg.connect("local://"):
        wanted = losses(tg)
    with tg.connect(running.url("gateway")):
        assert losses(tg) == wanted
    assert wanted[-1] < wanted[0]


def test_a_durable_session_is_in_the_workers_data_folder(running: Running) -> None:
    with httpx.Client(base_url=running.url("gateway"), timeout=WAIT_S) as client:
        made = client.post("/v1/sessions", json={"name": "kept", "durable": True})
        assert made.status_code == 201, made.text
        path = f"/v1/sessions/{made.json()['id']}"
        assert client.post(f"{path}/tensors", json={"id": "x", "data": [1.5]}).status_code == 201
        assert any((running.deployment.folder / "sessions").rglob("*.log"))
        assert client.delete(path).status_code == 204


def test_ray_wants_its_token(running: Running) -> None:
    ray = running.ray
    ray.environment["RAY_AUTH_TOKEN"] = "not-the-token"
    try:
        assert not ray.healthy()
    finally:
        del ray.environment["RAY_AUTH_TOKEN"]
    assert ray.healthy()


def test_the_dashboard_asks_for_what_gateways_and_workers_expose(running: Running) -> None:
    with tg.connect(running.url("gateway")):
        losses(tg)  # so that programs are counted
    exposed: set[str] = {"up"}
    for name in ("gateway", "worker"):
        answer = httpx.get(f"{running.url(name)}/metrics")
        assert answer.status_code == 200
        found = samples(answer.text).keys()
        assert "telegrad_build_info" in found, name
        exposed |= found
    named = {series.name for _, query in queries() for series in selected(query)}
    # Events that have not happened here, but in test_monitoring.py, have no samples.
    assert {name for name in named if not re.fullmatch(r"telegrad_(problems|sessions_ended)_total", name)} <= exposed


def test_no_secret_is_logged(running: Running) -> None:
    files = [path for path in (running.deployment.folder / "secrets").rglob("*") if path.is_file()]
    secrets = {path.read_text().strip() for path in files} - {"none"}  # a key's file where no key is required
    assert len(secrets) > 1
    logs = [path.read_text(errors="replace") for path in (running.deployment.folder / "work").glob("*.log")]
    assert len(logs) == 4 and not any(secret in log for secret in secrets for log in logs)


def test_services_stop_in_time_and_cleanly(running: Running) -> None:
    """The last test: it ends what the others use."""
    assert running.worker.stop() == 0, running.worker.log
    assert not running.worker.healthy()
    assert running.gateway.healthy(), "it is alive without workers"
    answer = httpx.post(f"{running.url('gateway')}/v1/sessions", json={})
    assert answer.status_code == 503 and "retry-after" in answer.headers, answer.text
    assert running.gateway.stop() == 0, running.gateway.log
    assert not running.gateway.healthy()
