"""This process: the cores and memory that control groups allow it, the tuning of memory and BLAS to them, its end; and
the end of child processes.

In version 2, a group has the files ``cpu.max`` and ``memory.max``; in version 1, each controller has its own hierarchy.
The strictest limit of the process's group and its ancestors applies. Inside a container, the path of the group may not
be visible; the mount point is then the container's group.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info, threadpool_limits

from telegrad_engine.arrays import NUMPY
from telegrad_engine.arrays.blocked_matmul import KERNELS

SESSIONS_SHARE = 0.8
"""The share of the memory that sessions may use by default."""
ASSUMED_BYTES = 4 * 2**30
"""The assumed memory if the operating system does not report it."""


def usable_cores(root: Path = Path("/")) -> int:
    """The number of cores this process may use, at least 1. Control groups are looked up below ``root``."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(cores, cpu_quota(root))))


def memory_bytes(root: Path = Path("/")) -> int:
    """The bytes of memory this process may use. Control groups are looked up below ``root``."""
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        physical = ASSUMED_BYTES
    return int(min(physical, memory_limit(root)))


def default_process_bytes() -> int:
    """The bytes that all sessions together may use by default."""
    return int(SESSIONS_SHARE * memory_bytes())


MOUNT = "sys/fs/cgroup"
CPU_HIERARCHIES = ("cpu", "cpu,cpuacct", "cpuacct,cpu")
"""The possible mount points of version 1's CPU controller."""


def cpu_quota(root: Path = Path("/")) -> float:
    """The CPU quota of this process's groups, in cores; infinity without one. Files are below ``root``."""
    quotas = [_read(group / "cpu.max").partition(" ")[::2] for group in _groups(root, "")]
    for hierarchy in CPU_HIERARCHIES:
        for group in _groups(root, "cpu", hierarchy):
            quotas.append((_read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")))
    return _least_ratio(quotas)


def memory_limit(root: Path = Path("/")) -> float:
    """The memory limit of this process's groups, in bytes; infinity without one. Files are below ``root``."""
    files = [group / "memory.max" for group in _groups(root, "")]
    files += [group / "memory.limit_in_bytes" for group in _groups(root, "memory", "memory")]
    return _least_ratio([(_read(file), "1") for file in files])


def _least_ratio(ratios: Iterable[tuple[str, str]]) -> float:
    """The least ratio of positive numbers, or infinity; ``max`` and -1 mean that there is no limit."""
    found = [math.inf]
    for dividend, divisor in ratios:
        with suppress(ValueError, ZeroDivisionError):
            found.append(int(dividend) / int(divisor))
    return min(ratio for ratio in found if ratio > 0)


def _groups(root: Path, controller: str, hierarchy: str = "") -> Iterator[Path]:
    """The process's group and its ancestors, innermost first. Without a ``controller``, those of version 2."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controller in controllers.split(","):
            parts = [part for part in path.split("/") if part and part != ".."]
            for end in range(len(parts), -1, -1):
                yield root.joinpath(MOUNT, hierarchy, *parts[:end])


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


# The interpreter ------------------------------------------------------------------------------------------

SWITCH_S = 0.0005
"""Seconds that a thread keeps the interpreter's lock while others want it; Python's default is ten times as long."""
COLLECT_AFTER = 10_000
"""New objects before garbage is looked for among them; Python's default is 700."""


def shorten_pauses() -> None:
    """Shorten the time that a session waits for other sessions' Python code, when all of the server is imported.

    A collection holds the interpreter's lock. A full one begins when many objects were made, as a long program makes
    them, and visits all objects but those that were frozen. docs/maintainers/tuning.md has the measurements.
    """
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    sys.setswitchinterval(SWITCH_S)


# Memory and BLAS ------------------------------------------------------------------------------------------

MIB = 2**20
# From glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 256 * MIB
LARGEST_KEPT = 32 * MIB


def tune(blas_threads: int) -> None:
    """Keep freed memory for the next program, and limit the threads of BLAS (0: all cores but one).

    By default, glibc returns arrays freed in threads other than the main one to the operating system, and BLAS leaves
    no core for the event loop. docs/maintainers/tuning.md has the measurements.
    """
    if (mallopt := _glibc("mallopt")) is not None:
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)  # of each arena
        mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)
    threads = blas_threads or default_blas_threads(usable_cores())
    threadpool_limits(threads, user_api="blas")
    if threads == 1 and any(library.get("architecture") in KERNELS for library in threadpool_info()):
        NUMPY.multiply_in_pieces()


def default_blas_threads(cores: int) -> int:
    """All cores but one, which is left for the event loop and for a client on this machine."""
    return max(1, cores - 1)


def return_freed_memory() -> None:
    """Make glibc return the memory that it keeps to the operating system. On other systems, do nothing."""
    if (trim := _glibc("malloc_trim")) is not None:
        trim(0)


def _glibc(name: str) -> Any:
    """A function of glibc; None on other systems."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None


ADDRESS = re.compile(r'https?://[^\s"]+')
"""The address in what a server, a gateway or a worker announces."""


def end(process: subprocess.Popen[Any], wait_s: float) -> None:
    """End a child process by SIGTERM, and by SIGKILL after this time."""
    process.terminate()
    try:
        process.wait(wait_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def stop_after(descriptor: int) -> None:
    """Send SIGTERM to this process when a file ends, which a thread reads.

    It does not read through ``sys.stdin``: the interpreter aborts if it exits while a thread holds that object's lock.
    """

    def read() -> None:
        with suppress(OSError):
            while os.read(descriptor, 2**16):
                pass
        signal.raise_signal(signal.SIGTERM)

    threading.Thread(target=read, name="stdin", daemon=True).start()
