"""``telegrad.backends.cpu``: the processor that this process runs on."""

from __future__ import annotations

from ..exclusions import attribute_of


def get_cpu_capability() -> str:
    """ "DEFAULT": NumPy chooses its instructions itself."""
    return "DEFAULT"


__getattr__ = attribute_of("backends.cpu")
