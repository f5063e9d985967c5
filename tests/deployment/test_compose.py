"""docker-compose.yml: the specification and Docker Compose itself accept it, and its services are shut in.

What the services run is run as processes by test_services.py. No container is built or started, because that
takes a Docker engine.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic_settings import BaseSettings

from telegrad_service.settings import GatewaySettings, Settings, WorkerSettings

from ..in_process import telegrad
from ..servers import running
from .files import (
    COMPOSE,
    DOCKERFILE,
    DOCKERIGNORE,
    GRAFANA,
    MANIFESTS,
    PROMETHEUS,
    ROOT,
    WAIT_S,
    docker_compose,
    duration,
    local,
    services,
    yaml,
)

pytestmark = pytest.mark.full

NAMES = yaml(COMPOSE)["services"]
OURS = ["gateway", "single", "worker", "worker-gpu"]
OF_CLUSTER = ["gateway", "worker", "worker-gpu"]
PUBLISHED = {"gateway", "single", "prometheus", "grafana"}
ALONE = {"single", "secrets"}
SECRETS = ("database", "ray", "store", "monitoring")
OWN_USER = "10001:10001"


def validate(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)


def mounts(name: str) -> dict[str, Any]:
    """The volumes and folders that a service mounts, by where it sees them."""
    return {mount["target"]: mount for mount in services()[name].get("volumes", [])}


# The file ----------------------------------------------------------------------------------------


def test_the_file_is_what_the_compose_specification_allows(tmp_path: Path) -> None:
    run = validate(COMPOSE)
    assert run.returncode == 0, run.stdout + run.stderr
    wrong = tmp_path / "docker-compose.yml"
    wrong.write_text(COMPOSE.read_text().replace("read_only: true", "read_only: [1]"))
    assert validate(wrong).returncode == 1


def test_docker_compose_accepts_the_file_and_notices_mistakes(tmp_path: Path) -> None:
    for profiles in ([], ["single"], ["gpu"], ["store"], ["monitoring"], ["*"]):
        flags = [flag for profile in profiles for flag in ("--profile", profile)]
        run = docker_compose(*flags, "config", "--quiet")
        assert (run.returncode, run.stderr) == (0, "")
    wrong = tmp_path / "docker-compose.yml"
    wrong.write_text(
        COMPOSE.read_text().replace("      ray-head:\n        condition", "      ray-tail:\n        condition")
    )
    wrong.write_text(wrong.read_text().replace("    ray-head:\n      condition", "    ray-tail:\n      condition"))
    assert "ray-tail" in docker_compose("config", "--quiet", file=wrong).stderr


def test_a_plain_up_has_a_gateway_and_a_worker_and_needs_no_gpu() -> None:
    run = docker_compose("config", "--services")
    assert set(run.stdout.split()) == {"secrets", "postgres", "ray-head", "gateway", "worker"}
    profiles = {name: service.get("profiles", []) for name, service in services().items()}
    assert {name: found for name, found in profiles.items() if found} == {
        "single": ["single"],
        "worker-gpu": ["gpu"],
        "store": ["store"],
        "prometheus": ["monitoring"],
        "grafana": ["monitoring"],
    }
    for name, service in services().items():
        devices = service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", [])
        wanted = [{"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}]
        assert devices == (wanted if name == "worker-gpu" else []), name


def test_a_single_server_needs_no_other_service_and_keeps_its_keys() -> None:
    single = services()["single"]
    assert "depends_on" not in single and single["command"] == ["serve"]
    (folder,) = mounts("single")
    environment = single["environment"]
    assert environment["TELEGRAD_DATABASE_URL"] == f"sqlite:///{folder}/telegrad.db"
    assert environment["TELEGRAD_DATA_DIR"].startswith(f"{folder}/")
    assert not [name for name in environment if name.startswith(("RAY_", "PG"))]


def test_a_worker_on_a_gpu_differs_in_its_image_and_device_only() -> None:
    same = [
        {key: value for key, value in services()[name].items() if key not in {"profiles", "image", "build", "deploy"}}
        for name in ("worker", "worker-gpu")
    ]
    assert same[0] == same[1]


def test_workers_can_be_scaled() -> None:
    for name in ("worker", "worker-gpu"):
        assert not {"container_name", "hostname", "ports"} & set(services()[name])


# Its services are shut in ------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_service_is_shut_in(name: str) -> None:
    service = services()[name]
    assert service["read_only"] is True and "/tmp" in service["tmpfs"]
    assert service["cap_drop"] == ["ALL"] and "cap_add" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    user, _, _ = service["user"].partition(":")
    assert int(user) > 0
    assert not {"privileged", "pid", "ipc", "userns_mode", "env_file", "devices"} & set(service)
    assert service.get("network_mode") in ({"none"} if name == "secrets" else {None})
    assert not any("docker.sock" in str(mount) for mount in service.get("volumes", []))


@pytest.mark.parametrize("name", NAMES)
def test_a_service_may_not_take_the_whole_machine(name: str) -> None:
    service = services()[name]
    assert 0 < service["cpus"] <= 2 and service["pids_limit"] <= 2048
    assert 0 < int(service["mem_limit"]) == int(service["memswap_limit"]) <= 8 * 2**30
    assert service["logging"]["options"] == {"max-size": "10m", "max-file": "3"}


def test_ports_are_published_on_loopback_and_only_where_somebody_asks() -> None:
    ports = [port for service in services().values() for port in service.get("ports", [])]
    assert {name for name, service in services().items() if "ports" in service} == PUBLISHED
    assert all(port["host_ip"] == "127.0.0.1" for port in ports)
    assert len({port["published"] for port in ports}) == len(ports) - 1, "single is there in place of the gateway"
    for name in ("gateway", "single"):
        (port,) = services(TELEGRAD_PUBLISH="0.0.0.0:8443")[name]["ports"]
        assert (port["host_ip"], port["published"], port["target"]) == ("0.0.0.0", "8443", 8000)


@pytest.mark.parametrize("name", ["gateway", "single"])
@pytest.mark.parametrize(
    ("publish", "starts"),
    [("127.0.0.1:9000", True), ("0.0.0.0:8000", False)],
)
def test_what_other_machines_reach_does_not_start_without_keys(
    name: str, publish: str, starts: bool, tmp_path: Path
) -> None:
    service = services(TELEGRAD_PUBLISH=publish)[name]
    given = {key: value for key, value in service["environment"].items() if value is not None}
    # Here they must not listen to other machines.
    given |= {"TELEGRAD_HOST": "127.0.0.1", "TELEGRAD_PORT": "0", "TELEGRAD_DATA_DIR": str(tmp_path)}
    given["TELEGRAD_DATABASE_URL"] = f"sqlite:///{tmp_path / 'telegrad.db'}"
    (command,) = service["command"]
    if starts:
        with running(command=command, env=given):
            return
    refused = telegrad(command, **given | {"TELEGRAD_DATA_DIR": str(tmp_path / "refused")})
    assert refused.returncode == 1 and "other machines can reach" in refused.stderr
    with running(command=command, env=given | {"TELEGRAD_REQUIRE_KEYS": "true"}) as (url, _):
        assert httpx.get(f"{url}/v1/sessions").status_code == 401


def test_what_is_not_published_has_no_way_out() -> None:
    assert yaml(COMPOSE)["networks"]["cluster"] == {"internal": True}
    for name, service in services().items():
        wanted = ({"published"} if name in PUBLISHED else set()) | ({"cluster"} if name not in ALONE else set())
        assert set(service.get("networks", {})) == wanted, name


def test_each_service_sees_only_the_secrets_that_it_needs() -> None:
    needed = {
        "gateway": {"database-secret"},
        "worker": {"database-secret", "ray-secret", "store-secret"},
        "worker-gpu": {"database-secret", "ray-secret", "store-secret"},
        "ray-head": {"ray-secret"},
        "postgres": {"database-secret"},
        "store": {"store-secret"},
        "prometheus": {"monitoring-secret"},
        "secrets": {f"{secret}-secret" for secret in SECRETS},
    }
    for name in services():
        seen = {mount["source"]: mount for mount in mounts(name).values() if mount["source"].endswith("-secret")}
        assert set(seen) == needed.get(name, set()), name
        if name != "secrets":
            assert all(mount["read_only"] for mount in seen.values())
        if seen:
            assert services()[name]["user"] == OWN_USER, "the files are readable by their owner alone"


@pytest.mark.parametrize(
    "path",
    [COMPOSE, DOCKERFILE, DOCKERIGNORE, *MANIFESTS.iterdir(), *PROMETHEUS.iterdir(), *GRAFANA.rglob("*.yml")],
    ids=lambda path: path.name,
)
def test_no_secret(path: Path) -> None:
    text = path.read_text()
    names = "password|passwd|secret|token|(?:api|access|secret|private)_?key|credential"
    given = re.findall(rf"(?im)^[ -]*\w*(?:{names})\w* *[:=] *([\w+=-]{{8,}})", text)
    # Names of Kubernetes' Secrets, and of what is in them.
    assert [value for value in given if not value.startswith("telegrad-") and value != "password"] == []
    assert not re.search(r"[A-Za-z0-9+/_]{50,}", text)


def test_variables_name_files_of_secrets() -> None:
    for name, service in services().items():
        for variable, value in service.get("environment", {}).items():
            if re.search(r"PASSWORD|PGPASS|SECRET|TOKEN|CREDENTIAL", variable):
                assert value is None or value.startswith("/run/telegrad"), (name, variable)


# They start and stop in order --------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in NAMES if name != "secrets"])
def test_a_service_tells_whether_it_is_healthy(name: str) -> None:
    check = services()[name]["healthcheck"]
    assert check["test"][0] == "CMD" and check["retries"] >= 3
    assert duration(check["timeout"]) <= 10 and duration(check["start_period"]) == 60
    assert services()[name]["restart"] == "unless-stopped"


def test_services_wait_for_what_they_need() -> None:
    order = {
        name: {other: waits["condition"] for other, waits in service.get("depends_on", {}).items()}
        for name, service in services().items()
    }
    healthy, done = "service_healthy", "service_completed_successfully"
    assert order["gateway"] == {"postgres": healthy}
    assert order["worker"] == {"postgres": healthy, "ray-head": healthy, "store": healthy}
    assert order["postgres"] == order["ray-head"] == order["store"] == order["prometheus"] == {"secrets": done}
    # Without its profile, nobody waits for the store.
    assert services()["worker"]["depends_on"]["store"]["required"] is False
    assert all(waits == healthy for found in order.values() for other, waits in found.items() if other != "secrets")


def test_stopping_leaves_time_to_drain() -> None:
    for name in ("single", "worker", "worker-gpu"):
        service = services()[name]
        assert duration(service["stop_grace_period"]) > float(service["environment"]["TELEGRAD_DRAIN_S"]) + 5


# Settings ----------------------------------------------------------------------------------------


def test_every_setting_is_passed_on() -> None:
    def variables(name: str) -> set[str]:
        return {variable for variable in services()[name]["environment"] if variable.startswith("TELEGRAD_")}

    def settings(model: type[BaseSettings]) -> set[str]:
        return {f"TELEGRAD_{name.upper()}" for name in model.model_fields}

    assert variables("gateway") == settings(GatewaySettings)
    # Who speaks with a worker are a few gateways, at the address of its container.
    of_gateways = {
        "TLS_CERT",
        "TLS_KEY",
        "ALLOWED_HOST",
        "CORS_ORIGIN",
        "TRUSTED_PROXY",
        "PUBLISHED_AT",
        "MAX_CONNECTIONS_PER_PEER",
    }
    assert variables("worker") == settings(WorkerSettings) - {
        f"TELEGRAD_{name}" for name in {*of_gateways, "ADVERTISE"}
    }
    assert settings(Settings) <= variables("gateway") | variables("worker")
    assert settings(Settings) <= variables("single")


def test_a_setting_reaches_its_services() -> None:
    assert services(TELEGRAD_THREADS="3")["worker"]["environment"]["TELEGRAD_THREADS"] == "3"
    assert services(TELEGRAD_LOG_LEVEL="info")["gateway"]["environment"]["TELEGRAD_LOG_LEVEL"] == "info"
    given = services(TELEGRAD_CPUS="8", TELEGRAD_MEMORY="64g")["worker"]
    assert given["cpus"] == 8 and int(given["mem_limit"]) == int(given["memswap_limit"]) == 64 * 2**30
    keys = services(TELEGRAD_INSECURE="false", TELEGRAD_REQUIRE_KEYS="true")
    for name in OURS:
        assert services()[name]["environment"].get("TELEGRAD_INSECURE") is None, "nothing is insecure by default"
        assert keys[name]["environment"]["TELEGRAD_INSECURE"] == "false"
        assert keys[name]["environment"]["TELEGRAD_REQUIRE_KEYS"] == "true"


def test_gateway_and_workers_share_a_database_and_workers_their_sessions() -> None:
    urls = {services()[name]["environment"]["TELEGRAD_DATABASE_URL"] for name in OF_CLUSTER}
    assert urls == {"postgresql://telegrad@postgres/telegrad"}
    for name in ("worker", "worker-gpu"):
        folder = services()[name]["environment"]["TELEGRAD_DATA_DIR"]
        assert mounts(name)[folder]["source"] == "sessions"
    assert mounts("postgres")["/var/lib/postgresql"]["source"] == "database"


def test_mounted_files_are_there() -> None:
    bound = [mount for name in services() for mount in mounts(name).values() if mount["type"] == "bind"]
    assert len(bound) == 3
    for mount in bound:
        assert (
            mount["read_only"] and Path(mount["source"]).is_relative_to(ROOT) and any(Path(mount["source"]).iterdir())
        )


# The secrets -------------------------------------------------------------------------------------


def make_secrets(folder: Path) -> dict[str, str]:
    """Run the service "secrets" in a folder: the files that it has written, by their paths."""
    for name in SECRETS:
        (folder / name).mkdir(exist_ok=True)
    service = services()["secrets"]
    command = local([*service["entrypoint"], *service["command"]])
    run = subprocess.run(
        command, env={**os.environ, "SECRETS": str(folder)}, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_secrets_are_made_once_and_for_their_owner_alone(tmp_path: Path) -> None:
    made = make_secrets(tmp_path)
    assert make_secrets(tmp_path) == made, "a second start changes nothing"
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in tmp_path.rglob("*") if path.is_file())
    assert made["database/pgpass"] == f"postgres:5432:*:telegrad:{made['database/password']}\n"
    assert len(made["database/password"]) >= 40 and len(made["ray/token"]) >= 40
    # Those that a start that was cut off has not written.
    (tmp_path / "database" / "pgpass").unlink()
    (tmp_path / "store" / "credentials").unlink()
    assert make_secrets(tmp_path) == made


def test_every_file_of_secrets_that_a_service_names_is_made(tmp_path: Path) -> None:
    made = {f"/run/telegrad/{path}" for path in make_secrets(tmp_path)}
    named: dict[str, set[str]] = {}
    for name, service in services().items():
        texts = [*service.get("environment", {}).values(), *(service.get("command") or [])]
        if name == "prometheus":
            texts += (PROMETHEUS / "prometheus.yml").read_text().replace("}", "").splitlines()
        named[name] = {path for text in texts if text for path in re.findall(r"/run/telegrad/[\w/.]+$", text)}
        seen = {target for target in mounts(name) if target.startswith("/run/telegrad/")}
        assert all(any(path.startswith(target) for target in seen) for path in named[name]), name
    assert set().union(*named.values()) == made
