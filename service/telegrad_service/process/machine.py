"""How many cores and how much memory this process may use: the machine's, or its container's if that has fewer."""

from __future__ import annotations

import math
import os
from pathlib import Path

from .control_groups import cpu_quota, memory_limit

SESSIONS_SHARE = 0.8
"""The share of the memory that sessions may use by default."""
ASSUMED_BYTES = 4 * 2**30
"""The memory of a machine whose operating system does not say."""


def usable_cores(root: Path = Path("/")) -> int:
    """How many cores this process may keep busy, at least 1. Control groups are looked up below ``root``."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(cores, cpu_quota(root))))


def memory_bytes(root: Path = Path("/")) -> int:
    """How many bytes of memory this process may use. Control groups are looked up below ``root``."""
    return int(min(_physical_bytes(), memory_limit(root)))


def default_process_bytes() -> int:
    """The bytes that all sessions together may use by default."""
    return int(SESSIONS_SHARE * memory_bytes())


def _physical_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return ASSUMED_BYTES
