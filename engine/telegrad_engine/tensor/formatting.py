"""Formats tensors exactly as torch prints them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..context import state
from ..errors import InvalidOperation


class Options(NamedTuple):
    """The print options, with torch's names and defaults; they apply to the whole process."""

    precision: int = 4
    """Digits after the decimal point."""
    threshold: float = 1000
    """Tensors with more elements than this are summarised."""
    edgeitems: int = 3
    """The number of elements that a summary shows at each end of a dimension."""
    linewidth: int = 80
    sci_mode: bool | None = None
    """Whether floats are printed with an exponent; None decides by the values."""


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
    """Set the print options. ``profile`` is "default", "short" or "full"; ``sci_mode`` lasts until the next call.

    ``precision`` is the number of digits after the point, ``threshold`` the number of elements from which on a tensor
    is summarized, ``edgeitems`` how many of them are shown at each end, and ``linewidth`` the number of characters in
    a line. None leaves an option as it is.

    Examples:
        >>> tg.set_printoptions(precision=2)
        >>> tg.tensor([1 / 3])
        tensor([0.33])
        >>> tg.set_printoptions(profile="default")
    """
    global _options
    base = PROFILES.get(profile, _options) if profile is not None else _options
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    _options = base._replace(**changes, sci_mode=sci_mode)


_PREFIX = "tensor("
_INDENT = len(_PREFIX)
_IMPLIED = (dtypes.float32, dtypes.int64, dtypes.bool_)
"""Dtypes that the printed values imply, so that they are not printed."""


def indices_shown(shape: Sequence[int]) -> list[list[int] | None]:
    """Return, for each dimension, the indices that are printed, or None for all of them."""
    ends = _options.edgeitems
    if math.prod(shape) <= _options.threshold:
        return [None] * len(shape)
    return [[*range(ends), *range(size - ends, size)] if size > 2 * ends else None for size in shape]


def format_tensor(tensor: Any, array: Any, shape: Sequence[int] | None = None) -> str:
    """Return the text of ``tensor``, whose value is ``array``.

    If ``shape`` is given, it is the tensor's shape, and ``array`` has only the elements at ``indices_shown(shape)``.
    Of ``tensor``, only ``dtype``, ``grad_fn``, ``requires_grad`` and the tangent are read.
    """
    array = np.asarray(array)
    indices = indices_shown(array.shape if shape is None else shape)
    suffixes = []
    if array.size == 0:
        body = "[]"
        if array.ndim != 1:
            suffixes.append(f"size={array.shape}")
        implied: tuple[Any, ...] = _IMPLIED[:1]
    else:
        if shape is None:
            for axis, chosen in enumerate(indices):
                array = array if chosen is None else array.take(chosen, axis=axis)
        # The column width depends only on the numbers that are shown.
        body = _format_block(array, _formatter(array), _INDENT, [chosen is not None for chosen in indices])
        implied = _IMPLIED
    if tensor.dtype not in implied:
        suffixes.append(f"dtype={tensor.dtype!r}")
    try:
        grad_fn = tensor.grad_fn
    except InvalidOperation:
        grad_fn = "<Invalid>"  # as torch prints a view whose base was changed where that is not allowed
    if grad_fn is not None:
        suffixes.append(f"grad_fn={grad_fn}")
    elif tensor.requires_grad:
        suffixes.append("requires_grad=True")
    tangent = None if state.observer is None else state.observer.tangent(tensor)
    if tangent is not None:
        suffixes.append(f"tangent={tangent!r}")
    return _with_suffixes(_PREFIX + body, suffixes)


def _with_suffixes(text: str, suffixes: list[str]) -> str:
    """Return ``text`` followed by the suffixes, each on a new line if the current one is full."""
    column = len(text) - text.rfind("\n") - 1
    for suffix in suffixes:
        # Two columns for the comma and space, and two that torch keeps free.
        if column + len(suffix) + 4 > _options.linewidth:
            text += ",\n" + " " * _INDENT + suffix
            column = _INDENT + len(suffix) - 2
        else:
            text += ", " + suffix
            column += len(suffix) + 2
    return text + ")"


def _format_block(array: Any, formatted: _Padded, indent: int, cut: Sequence[bool]) -> str:
    """Return ``array`` in brackets at column ``indent``; ``cut`` tells which dimensions lack their middle."""
    if array.ndim == 0:
        return formatted.text(array.item())
    if array.ndim == 1:
        parts = [formatted(row.item()) for row in array]
        # Line breaks follow the padded width, even if a text is longer, such as inf among short numbers.
        per_line = max(1, (_options.linewidth - indent) // (formatted.width + 2))
        if cut[0]:
            parts.insert(_options.edgeitems, " ...")
        lines = [", ".join(parts[i : i + per_line]) for i in range(0, len(parts), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    blocks = [_format_block(row, formatted, indent + 1, cut[1:]) for row in array]
    if cut[0]:
        blocks.insert(_options.edgeitems, "...")
    gap = "\n" * int(array.ndim - 1)
    return "[" + ("," + gap + " " * (indent + 1)).join(blocks) + "]"


class _Padded:
    """Numbers as text, right-aligned in ``width`` columns."""

    def __init__(self, text: Callable[[Any], str], width: int) -> None:
        self.text, self.width = text, width

    def __call__(self, value: Any) -> str:
        return self.text(value).rjust(self.width)


def _formatter(array: Any) -> _Padded:
    """Return the format shared by all these numbers, chosen as torch does."""
    if dtypes.from_numpy(array.dtype).is_floating_point:
        return _float_formatter(array.astype(np.float64).reshape(-1))
    return _Padded(str, max(len(str(v)) for v in array.reshape(-1).tolist()))


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
