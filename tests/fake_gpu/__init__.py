"""A stand-in for CuPy on a machine with two GPUs: this folder on the path of a process is all it takes.

The numbers are NumPy's. What differs on a GPU is kept: where an array is, on which stream work is queued, which memory
is pinned, and what makes the host wait. ``cupy.cuda`` records that, and refuses what would be a race or an error.

Internals: the devices that were used stay in a table of the engine's.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
ENVIRONMENT = "FAKE_GPUS", "FAKE_GPU_BYTES"
"""The variables for the number of GPUs, and for the memory of each."""


@contextmanager
def installed() -> Iterator[Any]:
    """Put the stand-in in CuPy's place in this process, and give its ``cupy.cuda``."""
    used = importlib.import_module("telegrad_engine.devices")._devices
    real = {name: sys.modules.pop(name) for name in [*sys.modules] if name.partition(".")[0] in ("cupy", "cupyx")}
    devices = {name: used.pop(name) for name in [*used] if name.startswith("cuda")}
    sys.path.insert(0, str(FOLDER))
    importlib.invalidate_caches()
    try:
        yield importlib.import_module("cupy").cuda
    finally:
        sys.path.remove(str(FOLDER))
        for kept, where in ((real, sys.modules), (devices, used)):
            for name in [*where]:
                if name.partition(".")[0] in ("cupy", "cupyx") or name.startswith("cuda:"):
                    del where[name]
            where.update(kept)
