"""Distances between all pairs of rows, of two matrices or of one."""

from __future__ import annotations

from typing import Any

from ..cases import T, case
from ..errors import DTypeMismatch, InvalidOperation, ShapeMismatch
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
    for name, x in (("X1", x1), ("X2", x2)):
        if not x.is_floating_point():
            raise InvalidOperation(f"cdist only supports floating-point dtypes, {name} got: {x.dtype.kernel_name}")
    if x1.shape[-1] != x2.shape[-1]:
        raise ShapeMismatch(f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    if not p >= 0:
        raise InvalidOperation("cdist only supports non-negative p values")
    if compute_mode not in MODES:
        raise InvalidOperation(f"{compute_mode} is not a valid value for compute_mode")
    if x1.dtype is not x2.dtype:
        raise DTypeMismatch(f"expected scalar type {x1.dtype.kernel_name} but found {x2.dtype.kernel_name}")
    return F.linalg_vector_norm(F.unsqueeze(x1, -2) - F.unsqueeze(x2, -3), p, (-1,))


@composite(
    cases=[
        case(T(4, 2)),
        case(T(4, 2), 1.0),
        case(T(3, 5), 3),
        case(T(3, 2), float("inf")),
        case(T(1, 2)),
        case(T(0, 2, constant=True)),
        case(T(4, 2), -1),
        case(T(4)),
    ],
    functional=True,
    method=False,
)
def pdist(F: Any, input: Array, p: Number = 2.0) -> Any:
    """The ``p``-norms of the differences of every two rows of (N, M): N (N - 1) / 2 of them, those of row 0 first."""
    if input.dim() != 2:
        raise ShapeMismatch(f"pdist only supports 2D tensors, got: {input.dim()}D")
    if not input.is_floating_point():
        raise DTypeMismatch("pdist only supports floating-point dtypes")
    if not p >= 0:
        raise InvalidOperation("pdist only supports non-negative p values")
    first, second = F.unbind(F.triu_indices(input.shape[0], input.shape[0], 1))
    differences = F.index_select(input, 0, first) - F.index_select(input, 0, second)
    return F.linalg_vector_norm(differences, p, (-1,))
