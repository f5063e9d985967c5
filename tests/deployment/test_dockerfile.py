"""The Dockerfile: three slim images that are not root's, with pinned packages that are installed before the sources."""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from .files import DOCKERFILE, DOCKERIGNORE, ROOT, WAIT_S, dockerfile, duration, local, services, stages

pytestmark = pytest.mark.full

BUILT = {name: service["build"] for name, service in services().items() if "build" in service}
IMAGES = sorted({build["target"] for build in BUILT.values()})


def installs(stage: str) -> list[str]:
    """The commands of a stage that install packages into the image."""
    return [text for name, text in stages()[stage] if name == "RUN" and "/opt/telegrad/bin/python install" in text]


def extras(stage: str) -> set[str]:
    """The extras of the packages that a stage installs from their sources."""
    return {extra for named in re.findall(r"\./\w+\[([\w,-]+)\]", installs(stage)[-1]) for extra in named.split(",")}


def test_each_image_has_one_name() -> None:
    assert IMAGES == ["gateway", "worker", "worker-gpu"]
    for name, build in BUILT.items():
        assert (Path(build["context"]) / build["dockerfile"]).resolve() == DOCKERFILE
        assert services()[name]["image"] == f"telegrad-{build['target']}"


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_is_slim_and_not_roots(image: str) -> None:
    run = stages()[image]
    users = [arguments for instruction, arguments in run if instruction == "USER"]
    # By number: an orchestrator that demands another user than root can't tell from a name.
    assert users == ["10001:10001"]
    assert not any("pip" in arguments for instruction, arguments in run if instruction == "RUN")
    copied = [arguments for instruction, arguments in run if instruction == "COPY"]
    assert copied == [f"--from=build-{image} /opt/telegrad /opt/telegrad"]
    assert dict(run)["STOPSIGNAL"] == "SIGTERM"
    assert YAML(typ="safe").load(dict(run)["ENTRYPOINT"]) == ["telegrad"]


def requested(stage: str) -> set[str]:
    """The extras whose requirements a stage installs before the sources are there."""
    found = [text for name, text in stages()[stage] if name == "RUN"]
    return {word for text in found for words in re.findall(r"REQUIREMENTS}. ([^>]+) >", text) for word in words.split()}


def test_an_image_has_what_its_services_need() -> None:
    gateway, worker, gpu = (requested(f"build-{image}") for image in IMAGES)
    assert gateway == {"postgres", "zstd"}, "a gateway computes nothing"
    assert worker == gateway | {"ray", "s3"}
    assert gpu == worker | {"cupy"}
    declared: set[str] = set()
    for name in ("engine", "service"):
        project = tomllib.loads((ROOT / name / "pyproject.toml").read_text())["project"]
        declared |= set(project["optional-dependencies"])
    assert gpu <= declared


@pytest.mark.parametrize("image", IMAGES)
def test_packages_are_installed_before_the_sources_are_copied(image: str) -> None:
    build = stages()[f"build-{image}"]
    copies = [
        index
        for index, (name, text) in enumerate(build)
        if name == "COPY" and text in {"engine engine", "service service"}
    ]
    assert len(copies) == 2
    after = [text for name, text in build[copies[-1] :] if name == "RUN"]
    assert len(after) == 1 and len(installs(f"build-{image}")) >= 2
    # Their sources bring no other extras, so that all that they require is in an earlier layer.
    assert extras(f"build-{image}") <= requested(f"build-{image}")
    assert ("--no-deps" in after[0]) is (image == "gateway")


def test_the_requirements_are_those_of_the_packages() -> None:
    (script,) = [text for name, text in dockerfile() if name == "ENV" and text.startswith("REQUIREMENTS=")]
    (_, program) = shlex.split(script)[0].split("=", 1)
    run = subprocess.run(
        local(["python", "-c", program, "zstd", "postgres"]),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )
    lines = run.stdout.splitlines()
    wanted: list[str] = []
    for name, extra in (("engine", "zstd"), ("service", "postgres")):
        project = tomllib.loads((ROOT / name / "pyproject.toml").read_text())["project"]
        wanted += [line for line in project["dependencies"] if not line.startswith("telegrad")]
        wanted += project["optional-dependencies"][extra]
    assert lines == wanted


def test_what_is_copied_is_there_and_reaches_the_builder() -> None:
    patterns = [line for line in DOCKERIGNORE.read_text().splitlines() if line and line[0] != "#"]
    for instruction, arguments in dockerfile():
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
    bases = [arguments.split(" AS ")[0] for instruction, arguments in dockerfile() if instruction == "FROM"]
    assert set(bases) <= {"${PYTHON_IMAGE}", *stages()}
    (image,) = [arguments for instruction, arguments in dockerfile() if instruction == "ARG"]
    assert re.fullmatch(r"PYTHON_IMAGE=python:\d+\.\d+-slim-\w+", image)
    pip = re.search(r"^PIP_VERSION := (\S+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    commands = [arguments for _, arguments in dockerfile() if "pip" in arguments and " install" in arguments]
    assert len(commands) == 7
    for command in commands:
        if "/opt/telegrad/bin/python install" in command:
            assert "--constraint constraints.txt" in command and "--build-constraint constraints.txt" in command
        else:
            assert pip is not None and command.endswith(f"install pip=={pip[1]}")
    for constraint in set(re.findall(r"--constraint (\S+)", " ".join(commands))):
        lines = [line for line in (ROOT / constraint).read_text().splitlines() if line and line[0] != "#"]
        assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)


def test_the_images_health_check_is_the_services() -> None:
    for name in ("gateway", "worker", "worker-gpu"):
        check = dict(stages()[BUILT[name]["target"]])["HEALTHCHECK"]
        flags, _, command = check.partition(" CMD ")
        found = services()[name]["healthcheck"]
        assert ["CMD", *YAML(typ="safe").load(command)] == found["test"]
        for flag in shlex.split(flags):
            option, _, value = flag.removeprefix("--").partition("=")
            given = str(found[option.replace("-", "_")])
            assert given == value or duration(given) == duration(value)


def test_volumes_are_mounted_where_the_image_has_folders_of_its_user() -> None:
    (made,) = [text for name, text in dockerfile() if name == "RUN" and "install --directory" in text]
    assert "--owner 10001 --group 10001 --mode 0700" in made
    folders = set(made.split())
    for name in BUILT:
        for mount in services()[name].get("volumes", []):
            assert mount["target"] in folders, (name, mount["target"])


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
