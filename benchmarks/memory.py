"""The peak memory of a training step, without its parameters and its batch.

Each side runs in its own process, which reads its peak memory from the kernel; Linux only.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from . import nets
from .timing import Call, Comparison

NET = (784, 1024, 1024, 10)
ROWS = 4096
STEPS = 3
MIB = 2**20
_STEPS: dict[str, Callable[[nets.Net], Call]] = {"ours": nets.our_step, "theirs": nets.their_step}


class Peak(NamedTuple):
    """A comparison of peak memory."""

    name: str
    against: str
    limit: float

    def measure(self, advance: Callable[[float], None]) -> Comparison:
        """Measure the peak memory of a step of each side, in MiB."""
        peaks = {}
        for side in _STEPS:
            run = subprocess.run(
                [sys.executable, "-m", "benchmarks.memory", side], capture_output=True, text=True, check=True
            )
            peaks[side] = float(run.stdout)
            advance(0.5)
        return Comparison(self.name, self.against, self.limit, peaks["ours"], peaks["theirs"], "MiB")


def _resident(which: str) -> float:
    """The current resident memory (``VmRSS``) or its peak (``VmHWM``), in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(which):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"the kernel does not tell {which}")


def main(side: str) -> None:
    """Print the peak memory of a few steps, minus the memory before the first one."""
    step = _STEPS[side](nets.mlp(NET, ROWS))
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    before = _resident("VmRSS")
    for _ in range(STEPS):
        step()
    print(_resident("VmHWM") - before)


SUITES = (
    [Peak(f"MLP {'-'.join(map(str, NET))}, batch {ROWS}, peak memory of a training step", "torch eager", 1.2)]
    if sys.platform == "linux"
    else []
)

if __name__ == "__main__":
    main(sys.argv[1])
