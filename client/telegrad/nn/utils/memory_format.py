"""Memory formats of modules, which have no effect because the session chooses the layout of parameters."""

from __future__ import annotations

from typing import Any


def convert_conv2d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Return ``module`` unchanged.

    ``memory_format`` has no effect: the session chooses the layout.

    Examples:
        >>> conv = tg.nn.Conv2d(3, 8, 3)
        >>> tg.nn.utils.convert_conv2d_weight_memory_format(conv, tg.channels_last) is conv
        True
    """
    return module


def convert_conv3d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Return ``module`` unchanged.

    ``memory_format`` has no effect: the session chooses the layout.

    Examples:
        >>> conv = tg.nn.Conv3d(3, 8, 3)
        >>> tg.nn.utils.convert_conv3d_weight_memory_format(conv, tg.channels_last_3d) is conv
        True
    """
    return module
