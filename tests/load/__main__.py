"""``python -m tests.load [sessions] [flood] [bombs]``: run what is named, or everything, and print the figures.

Exits with 1 if a figure exceeds its bound. The bounds of times hold on a machine that does nothing else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from . import bombs, flood, sessions
from .server import Figure

RUNS: dict[str, Callable[[], list[Figure]]] = {"sessions": sessions.run, "flood": flood.run, "bombs": bombs.run}


def main(names: list[str]) -> int:
    """Run what these names stand for."""
    unknown = set(names) - set(RUNS)
    if unknown:
        print(f"no such run: {', '.join(sorted(unknown))}; there are {', '.join(RUNS)}", file=sys.stderr)
        return 2
    held = True
    for name in names or RUNS:
        print(f"{name}, at a load average of {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
        figures = RUNS[name]()
        for figure in figures:
            print(" ", figure, flush=True)
            held &= figure.held
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
