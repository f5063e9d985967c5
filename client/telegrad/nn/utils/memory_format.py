"""Memory formats of modules: accepted and without effect, since the session lays out parameters itself."""

from __future__ import annotations

from typing import Any


def convert_conv2d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """``module``, unchanged."""
    return module


def convert_conv3d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """``module``, unchanged."""
    return module
