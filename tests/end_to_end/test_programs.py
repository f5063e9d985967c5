"""Programs written for torch run on a server with the import changed and nothing else, and print the same numbers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[2] / "examples" / "programs"
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.py"))
IMPORTS = (
    (re.compile(r"^import torch$", re.MULTILINE), "import telegrad as torch"),
    (re.compile(r"^(import|from) torch\b", re.MULTILINE), r"\1 telegrad"),
)
NUMBER = re.compile(r"-?\d+\.\d+")
TOLERANCE = {"transformer_amp": 0.02}
"""bfloat16 has 8 bits: sums that are taken in another order differ in the third digit."""
TIMEOUT_S = 200


def with_the_import_changed(text: str) -> str:
    """The program on telegrad: lines that import torch are other lines, and nothing else is."""
    changed = text
    for pattern, replacement in IMPORTS:
        changed = pattern.sub(replacement, changed)
    for before, after in zip(text.splitlines(), changed.splitlines(), strict=True):
        assert before == after or before.startswith(("import torch", "from torch")), before
    return changed


def printed(script: Path, **environment: str) -> str:
    """What a program prints, in a process of its own."""
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    # torch's profiler writes lines of its own, about its devices.
    return "".join(line for line in done.stdout.splitlines(keepends=True) if not line.startswith("USDT:"))


def test_there_are_six() -> None:
    assert len(NAMES) == 6


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_the_same_numbers_with_the_import_changed(name: str, server: str, tmp_path: Path) -> None:
    text = (PROGRAMS / f"{name}.py").read_text()
    changed = tmp_path / f"{name}.py"
    changed.write_text(with_the_import_changed(text))
    expected = printed(PROGRAMS / f"{name}.py")
    found = printed(changed, TELEGRAD_URL=server)
    assert NUMBER.sub("#", found) == NUMBER.sub("#", expected)
    numbers = [float(number) for number in NUMBER.findall(expected)]
    assert numbers
    assert [float(number) for number in NUMBER.findall(found)] == pytest.approx(
        numbers, rel=0, abs=TOLERANCE.get(name, 2e-3)
    )
