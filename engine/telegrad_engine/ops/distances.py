"""Distances between all pairs of rows."""

from __future__ import annotations

from typing import Any

from ..cases import T, case
from ..errors import InvalidOperation, ShapeMismatch
from ..params import Array, Number, Str
from ..registry import composite

MODES = (
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)


@composite(
    method=False,
    cases=[
        case(T(3, 2), T(4, 2)),
        case(T(2, 3, 2), T(1, 4, 2), p=1.0),
        case(T(3, 2), T(4, 2), 3.0, "donot_use_mm_for_euclid_dist"),
        case(T(3, 2), T(4, 2), float("inf")),
        case(T(3, 2), T(4, 2), -1.0),
        case(T(3, 2), T(4, 3)),
        case(T(3), T(3)),
    ],
)
def cdist(F: Any, x1: Array, x2: Array, p: Number = 2.0, compute_mode: Str = MODES[0]) -> Any:
    """The ``p``-norms of the differences of every row of ``x1`` and every row of ``x2``: (…, rows, rows).

    They are computed from the differences in each mode, which is the most exact.
    """
    for name, x in (("X1", x1), ("X2", x2)):
        if x.ndim < 2:
            raise ShapeMismatch(f"cdist only supports at least 2D tensors, {name} got: {x.ndim}D")
    if x1.shape[-1] != x2.shape[-1]:
        raise ShapeMismatch(f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    if p < 0:
        raise InvalidOperation("cdist only supports non-negative p values")
    if compute_mode not in MODES:
        raise InvalidOperation(f"{compute_mode} is not a valid value for compute_mode")
    return F.linalg_vector_norm(F.unsqueeze(x1, -2) - F.unsqueeze(x2, -3), p, (-1,))
