"""What ``make`` says before it does something long; nothing is installed here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


def make(folder: Path, target: str) -> str:
    command = ["make", "--file", str(ROOT / "Makefile"), f"VENV={folder}", target]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_first_run_says_what_it_installs_and_how_long_that_takes(tmp_path: Path, target: str) -> None:
    said = make(tmp_path, f".first-{target}")
    assert f"first 'make {target}' installs" in said and "minutes" in said
    (tmp_path / f".stamp-{target}").touch()
    assert "installs" not in make(tmp_path, f".first-{target}")


def test_the_targets_begin_with_that() -> None:
    lines = (ROOT / "Makefile").read_text().splitlines()
    for target in ("demo", "test"):
        (line,) = [line for line in lines if line.startswith(f"{target}: ")]
        assert line.split()[1] == f".first-{target}"


def test_the_tests_say_how_long_they_take_and_not_why_some_are_skipped() -> None:
    printed = subprocess.run(
        ["make", "--dry-run", "--always-make", "test"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert "minutes on two cores" in printed
    settings = (ROOT / "pyproject.toml").read_text()
    assert '"-ra"' not in settings
