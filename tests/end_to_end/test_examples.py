"""The examples run as they stand."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest

import telegrad as tg

DIGITS = Path(__file__).parents[2] / "examples" / "digits.py"


def test_digits_are_learned_and_shown(tmp_path: Path) -> None:
    command = [sys.executable, DIGITS, "--picture", tmp_path / "here.svg"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "\x1b" not in run.stdout + run.stderr
    assert max(map(len, run.stdout.replace(str(tmp_path), "").splitlines())) <= 80
    accuracy = re.search(r"test accuracy\W+([\d.]+)", run.stdout)
    assert accuracy is not None
    assert float(accuracy.group(1)) >= 0.97
    assert re.search(r"requests per step\W+1\.00", run.stdout)
    assert "step 630" in run.stdout and "██" in run.stdout and "make demo ARGS=--keep" in run.stdout
    assert str(tmp_path / "here.svg") in run.stdout
    picture = ElementTree.parse(tmp_path / "here.svg").getroot()
    shown = [text for text in picture.itertext() if re.fullmatch(r"\d(, is \d)?", text)]
    assert len(shown) == 8 and shown[3].count("is") <= 1 and all(len(text) == 1 for text in shown[:3])


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Tests that run in the background of a shell ignore interrupts, and what they start would, too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.full
@pytest.mark.usefixtures("interruptible")
def test_a_kept_server_has_the_trained_model_until_ctrl_c(tmp_path: Path) -> None:
    """As from a terminal, Ctrl-C reaches the script and its server."""
    command = [sys.executable, DIGITS, "--keep", "--picture", tmp_path / "here.svg"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        printed = ""
        for line in process.stdout:
            printed += line
            if "In Python: " in line:
                break
        found: Any = re.search(r"webbrowser (\S+)\n\s+curl -sS (\S+)\nIn Python: (.+)", printed)
        assert httpx.get(found[1]).status_code < 400
        assert httpx.get(found[2]).json()["shape"] == [64]
        assert {"model.0.weight", "model.2.bias"} <= eval(found[3]).keys()
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=240)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    with pytest.raises(ConnectionError):
        tg.connect(found[1])


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_example_leaves_no_server() -> None:
    process = subprocess.Popen([sys.executable, DIGITS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            if found:
                break
        else:
            raise AssertionError("the example named no server")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=240)
    finally:
        process.kill()
        process.wait()
    assert process.returncode != 0
    with pytest.raises(ConnectionError):
        tg.connect(found.group())
