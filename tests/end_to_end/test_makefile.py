"""What ``make`` says before and while it does something long; nothing is installed here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRESS = ROOT / ".ci" / "progress.py"
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


def make(folder: Path, target: str) -> str:
    command = ["make", "--file", str(ROOT / "Makefile"), f"VENV={folder}", target]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=True).stdout


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
        ["make", "--dry-run", "--always-make", "test"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    ).stdout
    assert "minutes on two cores" in printed
    settings = (ROOT / "pyproject.toml").read_text()
    assert '"-ra"' not in settings


# While it waits -----------------------------------------------------------------------------------


def told(program: str) -> subprocess.CompletedProcess[str]:
    """A Python program as a command that is waited for."""
    return subprocess.run(
        [sys.executable, PROGRESS, sys.executable, "-c", program], capture_output=True, text=True, check=False
    )


def test_long_silence_and_large_downloads_are_told() -> None:
    lines = ["Collecting torch==2.13.0 (from -r x)", "  Downloading torch-2.13.0-cp311-cp311-linux.whl (204.1 MB)"]
    lines += ["Collecting idle>=3", "  Downloading idle-3.4-py3-none-any.whl (61 kB)"]
    last = "Installing collected packages: a, b"
    run = told(f"import time; print(*{lines!r}, sep='\\n', flush=True); time.sleep(7); print({last!r})")
    assert (run.returncode, run.stderr) == (0, "")
    large, silence, installing = (line.split("s  ")[1] for line in run.stdout.splitlines())
    assert (large, silence) == ("downloading torch-2.13.0, 204.1 MB", "collecting idle")
    assert installing == "installing 2 packages"


def test_a_failure_shows_what_was_printed_before() -> None:
    run = told("import sys; print('the reason'); print('an error', file=sys.stderr); sys.exit(3)")
    assert (run.returncode, run.stdout) == (3, "")
    assert "the reason" in run.stderr and "an error" in run.stderr
