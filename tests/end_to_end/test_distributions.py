"""What is published, the three wheels, and how docs/get-started/install.md installs them in a project of one's own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from itertools import chain
from pathlib import Path

import pytest

from telegrad_engine import __version__

pytestmark = pytest.mark.full  # a minute of building and installing, from a package index

ROOT = Path(__file__).parents[2]
FOLDERS = {"telegrad-engine": "engine", "telegrad": "client", "telegrad-service": "service"}
STUBS = {
    "telegrad-engine": {"telegrad_engine/tensor/_op_methods.pyi"},
    "telegrad": {"telegrad/_functions.pyi", "telegrad/linalg/_linalg.pyi", "telegrad/nn/_functional.pyi"},
}
BUILT = {"telegrad": "telegrad/notebook/static", "telegrad-service": "telegrad_service/console/static"}
"""What `make console` builds, which may not be there."""
BLOCKS = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "get-started" / "install.md").read_text(), re.DOTALL)
TRAINS = """
import telegrad as tg
from telegrad_service.launch import running_server

with running_server() as url, tg.connect(url):
    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    tg.linalg.norm(x * x).backward()
    print(tg.__version__, x.grad.shape, tg.__file__)
"""
TYPED = """
from typing import assert_type
import telegrad as tg
import telegrad.nn.functional as F

x = tg.softmax(tg.ones(2, 3), dim=-1)
assert_type(x, tg.Tensor)
assert_type(x.sum(0).mul_(2), tg.Tensor)
assert_type(F.relu(x, inplace=True), tg.Tensor)
assert_type(tg.linalg.inv(x), tg.Tensor)
assert_type(tg.sort(x).indices, tg.Tensor)
tg.softmax(x, "columns")  # type: ignore[arg-type]
"""


def accepted_by_mypy(python: str | Path, folder: Path) -> None:
    """Check a program against the Telegrad that an interpreter has; an unknown function would be an error or Any."""
    (folder / "typed.py").write_text(TYPED)
    # Where torch is installed, reading it would take three times as long as all else.
    (folder / "mypy.ini").write_text("[mypy]\nstrict = True\n[mypy-torch.*]\nfollow_imports = skip\n")
    run(sys.executable, "-m", "mypy", "--python-executable", python, "typed.py", folder=folder)


def run(*command: str | Path, folder: Path) -> str:
    """What a command prints; it sees neither this checkout nor settings of Telegrad's."""
    hidden = {"PYTHONPATH", "VIRTUAL_ENV"}
    kept = {name: value for name, value in os.environ.items() if name not in hidden and name[:9] != "TELEGRAD_"}
    # Little of what is installed is imported. To pip, the variable of --no-compile says whether to compile.
    environment = kept | {"PIP_CONSTRAINT": str(ROOT / "constraints.txt"), "PIP_NO_COMPILE": "false"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with a source distribution and a wheel of each, the wheel made from the former."""
    folder = tmp_path_factory.mktemp("dist")
    for name in FOLDERS.values():
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT / name, folder=folder)
    return folder


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


@pytest.mark.parametrize("name", FOLDERS)
def test_a_wheel_says_what_it_is(dist: Path, name: str) -> None:
    (wheel,) = dist.glob(f"{name.replace('-', '_')}-*.whl")
    said = metadata(wheel)
    assert said["Version"] == __version__ and said["License-Expression"] == "Apache-2.0" and said["Author"]
    assert said.get_payload().startswith(f"# {name}\n")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert any(name.endswith("/py.typed") for name in names)
    assert not any(name.startswith("tests/") for name in names)
    assert {file for file in names if file.endswith(".pyi")} == STUBS.get(name, set())
    if name in BUILT:
        root = ROOT / FOLDERS[name]
        built = {path.relative_to(root).as_posix() for path in (root / BUILT[name]).rglob("*") if path.is_file()}
        assert built == {file for file in names if file.startswith(f"{BUILT[name]}/")}


def test_the_commands_of_the_page_install_in_a_project_of_ones_own(dist: Path, tmp_path: Path) -> None:
    """From wheels, and then from the checkout, which pip installs in place of the wheels of the same version."""
    project = tmp_path / "project"
    project.mkdir()
    python, telegrad = (project / ".venv" / "bin" / name for name in ("python", "telegrad"))
    begins = "python3 -m venv .venv && "
    (attempt,) = [block for block in BLOCKS if "import telegrad" in block]
    for source, place in {"WHEELS": dist, "CHECKOUT": ROOT}.items():
        (install,) = [block for block in BLOCKS if f"{source}=" in block]
        install = re.sub(rf"{source}=\S+", f"{source}={place}", install)
        assert place == ROOT or "CHECKOUT" not in install
        assert install.startswith(begins)
        if python.exists():
            install = install.removeprefix(begins)
        printed = run("bash", "-euc", f"{install}\n{attempt}", folder=project)
        origins = (project / ".venv").rglob("telegrad*.dist-info/direct_url.json")
        assert [f"{place}/" in origin.read_text() for origin in origins] == [True] * 3, source
        assert "tensor([2., 2., 2.])" in printed and "usage: telegrad serve" in printed, source
        version, *shape, file = run(python, "-c", TRAINS, folder=project).split()
        assert version == __version__ and " ".join(shape) == "telegrad.Size([3])", source
        assert file.startswith(str(project)), source
        assert run(telegrad, "--version", folder=project).split() == ["telegrad", __version__], source
    for each in (sys.executable, python):  # beside the checkout, and installed
        accepted_by_mypy(each, tmp_path)


def test_nothing_tells_to_install_from_an_index_what_is_not_published() -> None:
    pages = [
        ROOT / "README.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / name / "README.md" for name in FOLDERS.values()),
    ]
    sources = chain.from_iterable((ROOT / name).rglob("*.py") for name in FOLDERS.values())
    for path in [*pages, *sources]:
        for command in re.findall(r"pip install ([^`\n]*)", path.read_text(encoding="utf-8")):
            assert not re.search(r"(?<![\w/$-])telegrad", command), (path, command)


def test_the_readme_installs_as_the_page_does() -> None:
    (install,) = [block for block in BLOCKS if "CHECKOUT=" in block]
    assert install in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("folder", FOLDERS.values())
def test_the_distributions_take_each_other_at_this_version(folder: str) -> None:
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    lines = list(chain(project["dependencies"], *project.get("optional-dependencies", {}).values()))
    minor = ".".join(__version__.split(".")[:2])
    ours = [line for line in lines if line.startswith("telegrad")]
    assert ours or folder == "engine"
    assert all(line.endswith(f"~={minor}.0") for line in ours)
