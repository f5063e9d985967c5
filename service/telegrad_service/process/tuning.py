"""Memory and cores of the server's process: settings that matter most to small programs.

Measured on a training step of a 784-128-10 network: in a thread other than the main one, glibc gave the
freed arrays of every step back to the system and took 174 page faults to get them again, which doubled
the step's time; and BLAS on every core left none for the event loop and whoever waits for the answer.
"""

from __future__ import annotations

import ctypes
import os
import sys

from threadpoolctl import threadpool_info, threadpool_limits

from telegrad_engine.arrays import NUMPY
from telegrad_engine.arrays.blocked_matmul import KERNELS

from .control_groups import usable_cores

MIB = 2**20
# From glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 256 * MIB
LARGEST_KEPT = 32 * MIB


def tune(blas_threads: int) -> None:
    """Keep freed memory for the next program, and bound BLAS and XLA to so many threads (0: all cores but one)."""
    keep_freed_memory()
    threads = blas_threads or default_blas_threads(usable_cores())
    threadpool_limits(threads, user_api="blas")
    if threads == 1 and any(library.get("architecture") in KERNELS for library in threadpool_info()):
        NUMPY.multiply_in_pieces()
    os.environ.setdefault("PJRT_NPROC", str(threads))  # XLA asks for it where JAX begins


def default_blas_threads(cores: int) -> int:
    """All cores but one, which is left for the event loop and for a client on this machine."""
    return max(1, cores - 1)


def keep_freed_memory() -> None:
    """Have glibc keep up to 256 MiB an arena, and arrays of up to 32 MiB in arenas; elsewhere nothing."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)
