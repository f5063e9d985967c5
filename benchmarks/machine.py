"""The machine and the library versions of a run, which every record of results has."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_info

import telegrad as tg

from . import peers


def machine() -> dict[str, str]:
    """The machine and the library versions of this run."""
    return {
        "processor": processor(),
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        "telegrad": tg.__version__,
        "numpy": np.__version__,
        "its BLAS": blas(),
        "torch": torch.__version__,
        "torch threads": str(torch.get_num_threads()),
        **peers.versions(),
    }


def blas() -> str:
    """NumPy's BLAS, and the processor for which its kernels were selected."""
    found = next((pool for pool in threadpool_info() if "numpy" in pool["filepath"]), None)
    if found is None:
        return "unknown"
    forced = " by OPENBLAS_CORETYPE" if "OPENBLAS_CORETYPE" in os.environ else ""
    return f"{found['internal_api']} {found['version']} for {found.get('architecture', 'any')}{forced}"


def processor() -> str:
    """The processor's model name if the system reports it, else its architecture."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
