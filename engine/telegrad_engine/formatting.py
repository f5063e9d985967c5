"""How a tensor prints: as torch's does, to the character."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from . import dtypes
from .forward_ad import tangent_of


class Options(NamedTuple):
    """How values print; as torch's, for the whole process."""

    precision: int = 4
    """Digits behind the point."""
    threshold: float = 1000
    """Tensors of more elements are summarised."""
    edgeitems: int = 3
    """How many elements of each end of a dimension a summary shows."""
    linewidth: int = 80
    sci_mode: bool | None = None
    """Whether floats have an exponent; None decides by their sizes."""


PROFILES = {
    "default": Options(),
    "short": Options(precision=2, edgeitems=2),
    "full": Options(threshold=math.inf),
}
_options = Options()


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Change how tensors print. ``profile`` is "default", "short" or "full"; ``sci_mode`` holds until the next call."""
    global _options
    base = PROFILES.get(profile, _options) if profile is not None else _options
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    _options = base._replace(**changes, sci_mode=sci_mode)


_PREFIX = "tensor("
_INDENT = len(_PREFIX)
_IMPLIED = (dtypes.float32, dtypes.int64, dtypes.bool_)
"""Dtypes that printed values make plain."""


def format_tensor(tensor: Any, array: Any) -> str:
    """The text of ``tensor``, whose value is ``array``.

    Of ``tensor`` only ``dtype``, ``grad_fn``, ``requires_grad`` and its tangent are read.
    """
    array = np.asarray(array)
    suffixes = []
    if array.size == 0:
        body = "[]"
        if array.ndim != 1:
            suffixes.append(f"size={array.shape}")
        implied: tuple[Any, ...] = _IMPLIED[:1]
    else:
        shown = _edges(array) if array.size > _options.threshold else array
        body = _format_block(array, _formatter(shown), _INDENT, array.size > _options.threshold)
        implied = _IMPLIED
    if tensor.dtype not in implied:
        suffixes.append(f"dtype=torch.{tensor.dtype.name}")
    if tensor.grad_fn is not None:
        suffixes.append(f"grad_fn={tensor.grad_fn!r}")
    elif tensor.requires_grad:
        suffixes.append("requires_grad=True")
    tangent = tangent_of(tensor)
    if tangent is not None:
        suffixes.append(f"tangent={tangent!r}")
    return _with_suffixes(_PREFIX + body, suffixes)


def _with_suffixes(text: str, suffixes: list[str]) -> str:
    """The suffixes behind the values, each on a new line where the last one is full."""
    column = len(text) - text.rfind("\n") - 1
    for suffix in suffixes:
        # Two columns for the comma before and two more that torch keeps free.
        if column + len(suffix) + 4 > _options.linewidth:
            text += ",\n" + " " * _INDENT + suffix
            column = _INDENT + len(suffix) - 2
        else:
            text += ", " + suffix
            column += len(suffix) + 2
    return text + ")"


def _edges(array: Any) -> Any:
    """What a summary shows of ``array``: the widths of numbers are theirs alone."""
    for axis, size in enumerate(array.shape):
        if size > 2 * _options.edgeitems:
            array = array.take([*range(_options.edgeitems), *range(size - _options.edgeitems, size)], axis=axis)
    return array


def _format_block(array: Any, formatted: _Padded, indent: int, summarise: bool) -> str:
    """``array`` in brackets, ``indent`` columns from the left."""
    if array.ndim == 0:
        return formatted.text(array.item())
    skipped = summarise and array.shape[0] > 2 * _options.edgeitems
    rows = [*array[: _options.edgeitems], *array[-_options.edgeitems :]] if skipped else list(array)
    if array.ndim == 1:
        parts = [formatted(row.item()) for row in rows]
        # As wide as the formatter pads to; longer strays (inf among short numbers) do not count.
        per_line = max(1, (_options.linewidth - indent) // (formatted.width + 2))
        if skipped:
            parts.insert(_options.edgeitems, " ...")
        lines = [", ".join(parts[i : i + per_line]) for i in range(0, len(parts), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    blocks = [_format_block(row, formatted, indent + 1, summarise) for row in rows]
    if skipped:
        blocks.insert(_options.edgeitems, "...")
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
    text: Callable[[Any], str] = _whole
    if telling.size:
        sizes = np.abs(telling)
        small, large = float(sizes.min()), float(sizes.max())
        whole = bool(np.all(telling == np.ceil(telling)))
        exponent = _options.sci_mode
        if exponent is None:
            exponent = large / small > 1000.0 or large > 1.0e8 or (not whole and small < 1.0e-4)
        if exponent:
            text = f"{{:.{_options.precision}e}}".format
        elif not whole:
            text = f"{{:.{_options.precision}f}}".format
    width = max((len(text(v)) for v in telling.tolist()), default=1)
    return _Padded(text, width)


def _whole(value: float) -> str:
    return f"{value:.0f}." if math.isfinite(value) else f"{value:.0f}"
