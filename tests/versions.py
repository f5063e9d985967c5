"""Runs the server's tests with other versions of what it is built on: ``python -m tests.versions FOLDER``.

``lowest`` has the lowest version that our packages name of each requirement, ``newest`` the newest there is; each later
Python that is installed has the versions of ``constraints.txt``. Each has an environment of its own in FOLDER.
``--list`` in place of the folder prints the names of the environments.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LATER = ("3.12", "3.13", "3.14")
NEEDS_TORCH = ("test_at_once.py", "test_functions.py")


def requirements() -> list[str]:
    """What our packages need, from their declarations: sessions in this process and zstd included."""
    lines: list[str] = []
    for folder, extras in (("engine", ["zstd"]), ("client", ["local"]), ("service", ["postgres"])):
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
        lines += project["dependencies"]
        for extra in extras:
            lines += project["optional-dependencies"][extra]
    return sorted({line for line in lines if not line.startswith("telegrad")})


def lowest(line: str) -> str:
    """``numpy>=2.0`` as ``numpy==2.0``."""
    return re.sub(r">=([\w.]+)(,<[\w.]+)?", r"==\1", line)


def environments() -> Iterator[tuple[str, str, list[str], list[str]]]:
    """Of each environment its name, its Python, what is installed, and options that constrain it."""
    pinned = ["--constraint", str(ROOT / "constraints.txt")]
    yield "lowest", sys.executable, [lowest(line) for line in requirements()], []
    yield "newest", sys.executable, requirements(), ["--upgrade"]
    for version in LATER:
        python = f"python{version}"
        try:
            subprocess.run([python, "--version"], capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        yield version, python, requirements(), pinned


def run(*command: str | Path) -> int:
    """A command in the repository's root, with our packages as they stand there; its exit status."""
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("engine", "client", "service"))
    return subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": paths}, check=False).returncode


def tested(name: str, python: str, wanted: list[str], options: list[str], folder: Path) -> bool:
    """Install, and run the tests; whether both went well."""
    environment, own = folder / name, folder / name / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(own), "install", "--quiet", "--no-input"]
    tests = ["-m", "pytest", "--quiet", "--numprocesses", "2", "-p", "no:cacheprovider"]
    # As the setting, not as an argument: what an argument names runs in full.
    chosen = ["-o", "testpaths=tests/service", *(f"--ignore=tests/service/{file}" for file in NEEDS_TORCH)]
    if name == "lowest":
        chosen += ["-W", "default"]  # old libraries warn of what this Python or pytest deprecates
    return not (
        run(python, "-m", "venv", "--without-pip", environment)
        or run(*pip, *options, *wanted)
        # With the same requirements once more: the tools must not move them.
        or run(*pip, *wanted, "--group", "tools")
        or run(own, *tests, *chosen)
    )


def main() -> int:
    """Print how each environment did; 1 if any failed."""
    if sys.argv[1] == "--list":
        print(*(name for name, *_ in environments()))
        return 0
    failed = []
    for name, python, wanted, options in environments():
        print(f"The server's tests, {name if name in ('lowest', 'newest') else 'Python ' + name}:", flush=True)
        start = time.monotonic()
        if not tested(name, python, wanted, options, Path(sys.argv[1])):
            failed.append(name)
        print(f"{name}: {'failed' if name in failed else 'passed'} in {time.monotonic() - start:.0f} s", flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
