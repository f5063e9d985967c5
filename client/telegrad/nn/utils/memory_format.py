"""Memory formats of modules, which have no effect because the session chooses the layout of parameters."""

from __future__ import annotations

from typing import Any


def convert_conv2d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Return ``module`` unchanged."""
    return module


def convert_conv3d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Return ``module`` unchanged."""
    return module
