"""``telegrad.backends.cpu``: the processor that this process runs on."""

from __future__ import annotations


def get_cpu_capability() -> str:
    """ "DEFAULT": NumPy chooses its instructions itself."""
    return "DEFAULT"
