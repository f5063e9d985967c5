"""The deployment files: held against the Compose specification, and what they run is run here as a process.

No container is built or started: that takes a Docker engine.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from ruamel.yaml import YAML

from telegrad_service.settings import Settings

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "service" / "Dockerfile"
COMPOSE: dict[str, Any] = YAML(typ="safe").load(FILE)
SERVICES: dict[str, Any] = COMPOSE["services"]
WAIT_S = 60


def interpolated(text: str) -> str:
    """``${NAME:-default}`` as Compose reads it where NAME is not set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, continued lines joined: (name, arguments)."""
    text = re.sub(r"\\\n\s*", "", DOCKERFILE.read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines)]


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage, those of the stages that it starts from first."""
    found: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for instruction, arguments in instructions():
        if instruction == "FROM":
            base, _, name = arguments.partition(" AS ")
            found[name] = list(found.get(base, []))
        elif name:
            found[name].append((instruction, arguments))
    return found


# The compose file --------------------------------------------------------------------------------


def validate(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)


def test_the_file_is_what_the_compose_specification_allows(tmp_path: Path) -> None:
    run = validate(FILE)
    assert run.returncode == 0, run.stdout + run.stderr
    wrong = tmp_path / "docker-compose.yml"
    wrong.write_text(FILE.read_text().replace("read_only: true", "read_only: [1]"))
    assert validate(wrong).returncode == 1


def test_a_server_and_one_on_a_gpu() -> None:
    assert set(SERVICES) == {"server", "gpu"}
    assert "profiles" not in SERVICES["server"] and SERVICES["gpu"]["profiles"] == ["gpu"]
    (device,) = SERVICES["gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
    same = [
        {key: value for key, value in service.items() if key not in {"profiles", "image", "build", "ports", "deploy"}}
        for service in SERVICES.values()
    ]
    assert same[0] == same[1]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_shut_in(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True and service["tmpfs"] == ["/tmp"]
    assert service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "network_mode", "pid", "volumes", "user", "env_file"} & set(service)
    (port,) = map(interpolated, service["ports"])
    address, outside, inside = port.split(":")
    assert address == "127.0.0.1" and outside.isdigit() and inside == service["environment"]["TELEGRAD_PORT"]


def test_the_services_do_not_want_the_same_port() -> None:
    ports = [interpolated(port) for service in SERVICES.values() for port in service["ports"]]
    assert len(set(ports)) == len(ports)


def test_every_variable_is_a_setting_of_the_server() -> None:
    shown = subprocess.run(
        [*local(["telegrad"]), "serve", "--help"], capture_output=True, text=True, timeout=WAIT_S, check=True
    ).stdout
    for service in SERVICES.values():
        for variable in service["environment"]:
            assert f"--{variable.removeprefix('TELEGRAD_').lower().replace('_', '-')} " in shown


def test_every_setting_of_the_server_is_passed_on() -> None:
    settings = {f"TELEGRAD_{name.upper()}" for name in Settings.model_fields}
    for service in SERVICES.values():
        assert set(service["environment"]) == settings


def test_a_service_may_not_take_the_whole_machine() -> None:
    for service in SERVICES.values():
        assert float(interpolated(service["cpus"])) == 2
        assert interpolated(service["mem_limit"]) == interpolated(service["memswap_limit"]) == "8g"


def test_stopping_leaves_time_to_drain() -> None:
    for service in SERVICES.values():
        grace = int(service["stop_grace_period"].removesuffix("s"))
        assert grace > int(service["environment"]["TELEGRAD_DRAIN_S"]) + 5


@pytest.mark.parametrize("path", [FILE, DOCKERFILE, ROOT / ".dockerignore"], ids=lambda path: path.name)
def test_no_secret(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"(?i)(password|passwd|secret|token|api_?key|credential)s?\w*\s*[:=]", text)
    assert not re.search(r"[A-Za-z0-9+/_]{40,}", text)


# The Dockerfile ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SERVICES)
def test_an_image_is_slim_and_not_roots(name: str) -> None:
    build = SERVICES[name]["build"]
    assert (ROOT / build["context"] / build["dockerfile"]).resolve() == DOCKERFILE
    run = stages()[build["target"]]
    users = [arguments for instruction, arguments in run if instruction == "USER"]
    # By number: an orchestrator that demands another user than root can't tell from a name.
    assert users and all(re.fullmatch(r"[1-9]\d*:[1-9]\d*", user) for user in users)
    assert not any("pip" in arguments for instruction, arguments in run if instruction == "RUN")
    copied = [arguments for instruction, arguments in run if instruction == "COPY"]
    assert copied and all(arguments.startswith("--from=build") for arguments in copied)
    assert dict(run)["STOPSIGNAL"] == "SIGTERM"


def test_what_is_copied_is_there_and_reaches_the_builder() -> None:
    patterns = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    for instruction, arguments in instructions():
        assert instruction != "ADD"
        if instruction == "COPY" and "--from=" not in arguments:
            for source in arguments.split()[:-1]:
                assert (ROOT / source).exists()
                ignored = False
                for pattern in patterns:
                    if any(
                        fnmatch.fnmatch(str(part), pattern.lstrip("!"))
                        for part in (Path(source), *Path(source).parents)
                    ):
                        ignored = pattern[0] != "!"
                assert not ignored, source
    assert patterns[0] == "*", "what is not named is not sent"
    assert {line.lstrip("!") for line in patterns if line[0] == "!"} == {
        "LICENSE",
        "constraints.txt",
        "engine",
        "service",
    }


def test_stages_are_built_on_pinned_versions() -> None:
    bases = [arguments.split(" AS ")[0] for instruction, arguments in instructions() if instruction == "FROM"]
    assert set(bases) <= {"${PYTHON_IMAGE}", *stages()}
    (image,) = [arguments for instruction, arguments in instructions() if instruction == "ARG"]
    assert re.fullmatch(r"PYTHON_IMAGE=python:\d+\.\d+-slim-\w+", image)
    pip = re.search(r"^PIP_VERSION := (\S+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    installs = [arguments for _, arguments in instructions() if "pip" in arguments and " install" in arguments]
    assert len(installs) == 4
    for command in installs:
        if "/opt/telegrad/bin/python install" in command:
            assert "--constraint constraints.txt" in command and "--build-constraint constraints.txt" in command
        else:
            assert pip is not None and command.endswith(f"install pip=={pip[1]}")
    for constraint in re.findall(r"--constraint (\S+)", " ".join(installs)):
        lines = [line for line in (ROOT / constraint).read_text().splitlines() if line and line[0] != "#"]
        assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)


def test_the_images_health_check_is_the_services() -> None:
    for service in SERVICES.values():
        check = dict(stages()[service["build"]["target"]])["HEALTHCHECK"]
        flags, _, command = check.partition(" CMD ")
        assert ["CMD", *YAML(typ="safe").load(command)] == service["healthcheck"]["test"]
        for flag in shlex.split(flags):
            name, _, value = flag.removeprefix("--").partition("=")
            assert str(service["healthcheck"][name.replace("-", "_")]) == value


# What it runs, as a process ----------------------------------------------------------------------


def local(command: list[str]) -> list[str]:
    """A container's command as one here: the ``telegrad`` of this environment, installed or not."""
    scripts = tomllib.loads((ROOT / "service" / "pyproject.toml").read_text())["project"]["scripts"]
    module, function = scripts[command[0]].split(":")
    return [sys.executable, "-c", f"import {module}; {module}.{function}()", *command[1:]]


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest) -> Any:
    return SERVICES[request.param]


@pytest.fixture
def environment(service: Any) -> dict[str, str]:
    """The service's variables, but that it takes a free port, of loopback alone."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("TELEGRAD_")}
    given = {key: interpolated(value) for key, value in service["environment"].items() if value is not None}
    packages = os.pathsep.join(os.path.abspath(path) for path in sys.path if path)  # it runs in another folder
    return {**inherited, **given, "PYTHONPATH": packages, "TELEGRAD_HOST": "127.0.0.1", "TELEGRAD_PORT": "0"}


@pytest.fixture
def process(service: Any, environment: dict[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    entrypoint = YAML(typ="safe").load(dict(stages()[service["build"]["target"]])["ENTRYPOINT"])
    running = subprocess.Popen(
        local([*entrypoint, *service["command"]]),
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with running:
        yield running
        running.kill()


def test_the_command_serves_is_healthy_and_stops(
    service: Any, environment: dict[str, str], process: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert process.stdout is not None
    url = process.stdout.readline().split()[-1]
    port = url.rpartition(":")[2]
    kind, *check = service["healthcheck"]["test"]
    assert kind == "CMD"

    def health() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            local(check),
            env={**environment, "TELEGRAD_PORT": port},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

    healthy = health()
    assert healthy.returncode == 0 and '"ok"' in healthy.stdout, healthy.stderr
    session = httpx.post(f"{url}/v1/sessions", json={}).json()["id"]
    made = httpx.post(f"{url}/v1/sessions/{session}/tensors", json={"id": "x", "data": [1.0]})
    assert made.status_code == 201
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=WAIT_S)
    assert (process.returncode, errors) == (0, "")
    assert list(tmp_path.iterdir()) == [], "it writes nothing"
    unhealthy = health()
    assert unhealthy.returncode == 1 and "refused" in unhealthy.stderr and not unhealthy.stdout


@pytest.mark.parametrize(("host", "asked"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("localhost", "localhost")])
def test_the_health_check_asks_on_this_machine(host: str, asked: str) -> None:
    run = subprocess.run(
        local(["telegrad", "health", "--host", host, "--port", "1"]),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        env={**os.environ, "http_proxy": "http://127.0.0.1:2"},
    )
    assert run.returncode == 1 and f"http://{asked}:1/healthz" in run.stderr
