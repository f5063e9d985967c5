"""The README's examples, typed as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ..servers import running_server

README = (Path(__file__).parents[2] / "README.md").read_text()
ADDRESS = "http://127.0.0.1:8000"


def block(language: str, containing: str) -> str:
    """The one code block of a language that has this text."""
    blocks = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    (found,) = [b for b in blocks if containing in b]
    return str(found)


@pytest.mark.parametrize(
    ("language", "containing", "command", "printed"),
    [
        ("python", "tg.connect", [sys.executable, "-c"], "tensor([4., 5., 6.])"),
        ("sh", "curl", ["bash", "-euc"], '"data":[4.0,5.0,6.0]'),
    ],
)
def test_the_example_prints_the_gradient(language: str, containing: str, command: list[str], printed: str) -> None:
    with running_server() as url:
        script = block(language, containing).replace(ADDRESS, url)
        run = subprocess.run([*command, script], capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 0, run.stderr
    assert printed in run.stdout
