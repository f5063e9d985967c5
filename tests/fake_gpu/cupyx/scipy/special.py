"""What stands for ``cupyx.scipy.special``: SciPy's functions."""

from __future__ import annotations

from typing import Any

import cupy
import scipy.special


def __getattr__(name: str) -> Any:
    return cupy.on_the_gpu(name, getattr(scipy.special, name))
