"""Every script of the gallery prints under telegrad, over HTTP, what it prints under torch."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import telegrad as tg

GALLERY = Path(__file__).parents[2] / "examples" / "gallery"
SCRIPTS = sorted(path.stem for path in GALLERY.glob("*.py") if path.stem != "library")
NUMBER = re.compile(r"-?\d+\.\d+")


def load(name: str) -> ModuleType:
    """A file of the gallery as a module."""
    spec = importlib.util.spec_from_file_location(f"gallery_{name}", GALLERY / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def script(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script of this name, which finds library.py as it does when it is started."""
    monkeypatch.setitem(sys.modules, "library", load("library"))
    return load(request.param)


@pytest.mark.parametrize("script", SCRIPTS, indirect=True)
def test_both_libraries_print_the_same(script: ModuleType, server: str, capsys: pytest.CaptureFixture[str]) -> None:
    script.main(torch)
    expected = capsys.readouterr().out
    with tg.connect(server, seed=0) as session:
        script.main(tg)
        assert session.requests > 0
    printed = capsys.readouterr().out
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", expected)
    numbers = [float(text) for text in NUMBER.findall(printed)]
    assert numbers
    assert numbers == pytest.approx([float(text) for text in NUMBER.findall(expected)], rel=0, abs=1e-4)


@pytest.mark.parametrize("arguments", [[], ["numpy"], ["torch", "telegrad"]])
def test_a_script_says_how_it_is_started(arguments: list[str]) -> None:
    script = GALLERY / "basic_autograd.py"
    run = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 1
    assert "torch|telegrad" in run.stderr


def test_a_script_computes_on_the_server_that_the_environment_names(server: str) -> None:
    run = subprocess.run(
        [sys.executable, GALLERY / "basic_autograd.py", "telegrad"],
        env={**os.environ, "TELEGRAD_URL": server},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "dz/dx: 2.00000" in run.stdout


def test_every_script_is_in_the_list() -> None:
    listed = re.findall(
        r"^\| \[`(\w+)`\]", (GALLERY.parents[1] / "docs" / "how-to" / "gallery.md").read_text(), re.MULTILINE
    )
    assert sorted(listed) == SCRIPTS
