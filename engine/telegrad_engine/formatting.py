"""How a tensor prints: as torch's does, to the character."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from . import dtypes

LINE_WIDTH = 80
EDGE_ITEMS = 3
"""How many elements of each end of a dimension a summary shows."""
SUMMARY_ABOVE = 1000
"""Tensors of more elements are summarised."""

_PREFIX = "tensor("
_INDENT = len(_PREFIX)
_IMPLIED = (dtypes.float32, dtypes.int64, dtypes.bool_)
"""Dtypes that printed values make plain."""


def format_tensor(tensor: Any, array: Any) -> str:
    """The text of ``tensor``, whose value is ``array``.

    Of ``tensor`` only ``dtype``, ``grad_fn`` and ``requires_grad`` are read.
    """
    array = np.asarray(array)
    suffixes = []
    if array.size == 0:
        body = "[]"
        if array.ndim != 1:
            suffixes.append(f"size={array.shape}")
        implied: tuple[Any, ...] = _IMPLIED[:1]
    else:
        shown = _edges(array) if array.size > SUMMARY_ABOVE else array
        body = _format_block(array, _formatter(shown), _INDENT, array.size > SUMMARY_ABOVE)
        implied = _IMPLIED
    if tensor.dtype not in implied:
        suffixes.append(f"dtype=torch.{tensor.dtype.name}")
    if tensor.grad_fn is not None:
        suffixes.append(f"grad_fn=<{tensor.grad_fn.name()}>")
    elif tensor.requires_grad:
        suffixes.append("requires_grad=True")
    return _with_suffixes(_PREFIX + body, suffixes)


def _with_suffixes(text: str, suffixes: list[str]) -> str:
    """The suffixes behind the values, each on a new line where the last one is full."""
    column = len(text) - text.rfind("\n") - 1
    for suffix in suffixes:
        # Two columns for the comma before and two more that torch keeps free.
        if column + len(suffix) + 4 > LINE_WIDTH:
            text += ",\n" + " " * _INDENT + suffix
            column = _INDENT + len(suffix) - 2
        else:
            text += ", " + suffix
            column += len(suffix) + 2
    return text + ")"


def _edges(array: Any) -> Any:
    """What a summary shows of ``array``: the widths of numbers are theirs alone."""
    for axis, size in enumerate(array.shape):
        if size > 2 * EDGE_ITEMS:
            array = array.take([*range(EDGE_ITEMS), *range(size - EDGE_ITEMS, size)], axis=axis)
    return array


def _format_block(array: Any, formatted: _Padded, indent: int, summarise: bool) -> str:
    """``array`` in brackets, ``indent`` columns from the left."""
    if array.ndim == 0:
        return formatted.text(array.item())
    skipped = summarise and array.shape[0] > 2 * EDGE_ITEMS
    rows = [*array[:EDGE_ITEMS], *array[-EDGE_ITEMS:]] if skipped else list(array)
    if array.ndim == 1:
        parts = [formatted(row.item()) for row in rows]
        # As wide as the formatter pads to; longer strays (inf among short numbers) do not count.
        per_line = max(1, (LINE_WIDTH - indent) // (formatted.width + 2))
        if skipped:
            parts.insert(EDGE_ITEMS, " ...")
        lines = [", ".join(parts[i : i + per_line]) for i in range(0, len(parts), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    blocks = [_format_block(row, formatted, indent + 1, summarise) for row in rows]
    if skipped:
        blocks.insert(EDGE_ITEMS, "...")
    gap = "\n" * int(array.ndim - 1)
    return "[" + ("," + gap + " " * (indent + 1)).join(blocks) + "]"


class _Padded:
    """Numbers as text, right-aligned in ``width`` columns."""

    def __init__(self, text: Callable[[Any], str], width: int) -> None:
        self.text, self.width = text, width

    def __call__(self, value: Any) -> str:
        return self.text(value).rjust(self.width)


def _formatter(shown: Any) -> _Padded:
    """The one format of all the numbers ``shown``: the plainest that tells them apart."""
    if dtypes.from_numpy(shown.dtype).is_floating_point:
        return _float_formatter(shown.astype(np.float64).reshape(-1))
    return _Padded(str, max(len(str(v)) for v in shown.reshape(-1).tolist()))


def _float_formatter(values: Any) -> _Padded:
    telling = values[np.isfinite(values) & (values != 0)]
    text = _whole
    if telling.size:
        sizes = np.abs(telling)
        small, large = float(sizes.min()), float(sizes.max())
        whole = bool(np.all(telling == np.ceil(telling)))
        if large / small > 1000.0 or large > 1.0e8 or (not whole and small < 1.0e-4):
            text = "{:.4e}".format
        elif not whole:
            text = "{:.4f}".format
    width = max((len(text(v)) for v in telling.tolist()), default=1)
    return _Padded(text, width)


def _whole(value: float) -> str:
    return f"{value:.0f}." if math.isfinite(value) else f"{value:.0f}"
