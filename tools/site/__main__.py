"""``python -m tools.site``: write the pages of the site to ``build/pages``; with ``--watch``, after each change too."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from .staging import DOCS, stage

PAGES = Path("build/pages")
INTERVAL_S = 1.0


def newest() -> float:
    """When a page of ``docs/`` last changed, in seconds since the epoch."""
    return max(path.stat().st_mtime for path in DOCS.rglob("*"))


def main(arguments: list[str]) -> None:
    """Write the pages, once or for as long as the process lives."""
    print(f"{stage(PAGES)} pages are in {PAGES}")
    written = newest()
    while "--watch" in arguments:
        time.sleep(INTERVAL_S)
        if newest() > written:
            written = newest()
            stage(PAGES)


if __name__ == "__main__":
    main(sys.argv[1:])
