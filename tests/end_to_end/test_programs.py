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
RUNS = """
import runpy, sys
for path in sys.argv[1:]:
    runpy.run_path(path, run_name="__main__")
    print(end="\\f", flush=True)
"""


def with_the_import_changed(text: str) -> str:
    """The program on telegrad: lines that import torch are other lines, and nothing else is."""
    changed = text
    for pattern, replacement in IMPORTS:
        changed = pattern.sub(replacement, changed)
    for before, after in zip(text.splitlines(), changed.splitlines(), strict=True):
        assert before == after or before.startswith(("import torch", "from torch")), before
    return changed


def printed(*scripts: Path, **environment: str) -> list[str]:
    """What each of some programs prints, one after another in one process."""
    done = subprocess.run(
        [sys.executable, "-c", RUNS, *scripts],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    # torch's profiler writes lines of its own, about its devices.
    found = re.sub(r"^USDT:.*\n", "", done.stdout, flags=re.MULTILINE).split("\f")
    assert len(found) == len(scripts) + 1
    return found[:-1]


def test_there_are_six() -> None:
    assert len(NAMES) == 6


@pytest.mark.full
def test_the_same_numbers_with_the_import_changed(server: str, tmp_path: Path) -> None:
    """Those on torch share a process, because it takes long to import torch."""
    scripts = [PROGRAMS / f"{name}.py" for name in NAMES]
    for name, script, expected in zip(NAMES, scripts, printed(*scripts), strict=True):
        changed = tmp_path / f"{name}.py"
        changed.write_text(with_the_import_changed(script.read_text()))
        [found] = printed(changed, TELEGRAD_URL=server)
        assert NUMBER.sub("#", found) == NUMBER.sub("#", expected), name
        numbers = [float(number) for number in NUMBER.findall(expected)]
        assert numbers, name
        assert [float(number) for number in NUMBER.findall(found)] == pytest.approx(
            numbers, rel=0, abs=TOLERANCE.get(name, 2e-3)
        ), name
