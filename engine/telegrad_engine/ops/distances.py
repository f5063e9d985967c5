"""Distances between all pairs of rows, of two matrices or of one."""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import is_floating, widened
from ..errors import DTypeMismatch, InvalidOperation, ShapeMismatch
from ..schema.memory_admission import BLOCK, reserved
from ..schema.op import composite, op
from ..schema.parameters import Array, Number, Str
from ..shapes import Spec, broadcast_axes, broadcast_shapes
from .blocks import reduce_in_blocks
from .norms import norm_of, vector_norm_grad

MODES = (
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)


@composite(
    method=False,
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
    if _differences(x1, x2) * x1.dtype.itemsize > BLOCK:
        return F.cdist_in_blocks(x1, x2, p)
    return F.linalg_vector_norm(F.unsqueeze(x1, -2) - F.unsqueeze(x2, -3), p, (-1,))


def _differences(x1: Any, x2: Any) -> int:
    """How many numbers all pairs of rows differ by."""
    batch = broadcast_shapes(tuple(x1.shape[:-2]), tuple(x2.shape[:-2]))
    return math.prod((*batch, x1.shape[-2], x2.shape[-2], x1.shape[-1]))


def _pairs_rule(x1: Any, x2: Any, p: float) -> Spec:
    if min(len(x1.shape), len(x2.shape)) < 2 or x1.shape[-1] != x2.shape[-1] or not x1.shape[-1]:
        shapes = f"{list(x1.shape)} and {list(x2.shape)}"
        raise ShapeMismatch(f"cdist_in_blocks(): rows must be of one length, and not empty, but got {shapes}")
    if x1.dtype != x2.dtype or not is_floating(x1.dtype):
        raise DTypeMismatch("cdist_in_blocks(): both inputs must have one floating point dtype")
    batch = broadcast_shapes(tuple(x1.shape[:-2]), tuple(x2.shape[:-2]))
    return Spec((*batch, x1.shape[-2], x2.shape[-2]), x1.dtype)


def _block_bytes(x1: Any, x2: Any) -> int:
    """The bytes of the differences that are computed at once: those of a block, or of one pair."""
    itemsize = max(x1.dtype.itemsize, 4)
    return int(itemsize * min(_differences(x1, x2), max(BLOCK // itemsize, x1.shape[-1])))


def _pairs_scratch(x1: Any, x2: Any, p: float) -> int:
    return int(4 * _block_bytes(x1, x2) + 3 * _pairs_rule(x1, x2, p).size * max(x1.dtype.itemsize, 4))


@op(_pairs_rule, internal=True, method=False, node="CdistBackward0", scratch=_pairs_scratch)
def cdist_in_blocks(xp: Any, x1: Array, x2: Array, p: Number) -> Any:
    """``cdist`` of so many rows that not all differences are computed at once."""
    rows, columns = x1[..., None, :], x2[..., None, :, :]
    return norm_of(xp, lambda x, y: widened(x - y), (rows, columns), p, (max(rows.ndim, columns.ndim) - 1,))


@cdist_in_blocks.joint_derivative
def _pairs_grads(F: Any, grad: Any, needs: Any, x1: Any, x2: Any, result: Any, p: float) -> Any:
    """The slopes of the norms of the differences, summed where a row was repeated."""
    arrays = [F.unsqueeze(x, dim) for x, dim in ((x1, -2), (x2, -3), (grad, -1), (result, -1))]
    repeated = [broadcast_axes(tuple(x.shape), (*result.shape, x1.shape[-1])) for x in arrays[:2]]
    if p == 0:
        sums = [F.zeros_like(x) for x in arrays[:2]]
    elif F.xp is None:
        slopes = vector_norm_grad(F, arrays[2], arrays[0] - arrays[1], arrays[3], p, (-1,), True)
        sums = [F.sum(slopes, axis, True) if axis else slopes for axis in repeated]
    else:
        with reserved(4 * _block_bytes(x1, x2)):
            sums = [
                _sum_slopes(F, arrays, p, axis) if need else None for axis, need in zip(repeated, needs, strict=True)
            ]
    by_row, by_column = sums
    return (
        F.reshape(by_row, tuple(x1.shape)) if needs[0] else None,
        -F.reshape(by_column, tuple(x2.shape)) if needs[1] else None,
    )


def _sum_slopes(F: Any, arrays: Any, p: float, axis: tuple[int, ...]) -> Any:
    """The slopes of the norms for each difference, summed over ``axis`` in blocks."""

    def slopes(x: Any, y: Any, grad: Any, norm: Any) -> Any:
        return vector_norm_grad(F, grad[..., :1], x - y, norm[..., :1], p, (-1,), True)

    return reduce_in_blocks(F.xp, F.xp.sum, slopes, arrays, axis, True, whole=1)


@composite(functional=True, method=False)
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
