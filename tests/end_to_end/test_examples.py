"""The examples run as they stand."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

DIGITS = Path(__file__).parents[2] / "examples" / "digits.py"


def test_digits_are_learned() -> None:
    run = subprocess.run([sys.executable, DIGITS], capture_output=True, text=True, timeout=110, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "\x1b" not in run.stdout + run.stderr
    accuracy = re.search(r"test accuracy\W+([\d.]+)", run.stdout)
    assert accuracy is not None
    assert float(accuracy.group(1)) >= 0.97
    assert re.search(r"requests per step\W+1\.00", run.stdout)
    assert re.search(r"http://127\.0\.0\.1:\d+/docs", run.stdout)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Tests that run in the background of a shell ignore interrupts, and what they start would, too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


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
        process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode != 0
    import telegrad as tg

    with pytest.raises(ConnectionError):
        tg.connect(found.group())
