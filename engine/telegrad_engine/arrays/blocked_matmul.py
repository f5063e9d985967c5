"""Products of matrices, some rows at a time, where OpenBLAS need not pack blocks of that size.

OpenBLAS first packs what it multiplies; for a batch and a layer's weight that takes a third of the time. Its AVX-512
kernels do without up to a size, which kernel/x86_64/sgemm_small_kernel_permit_skylakex.c in its sources says. The NumPy
backend's ``dot`` is this module's once the server has found that it is faster (docs/explanation/tuning.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np

KERNELS = frozenset(["SkylakeX"])
"""OpenBLAS's names for the kernels of which that is known."""
DTYPES = frozenset([np.dtype(np.float32), np.dtype(np.float64)])
MAX_UNPACKED = 10**6
"""How many multiplications a product may have to go without packing,"""
MAX_OF_RESULT = 1200
"""and elements, where the matrix on the right is stored by columns, as a layer's weight is."""
LONG = 256
"""Such rows and columns are to be so long to gain by it."""
EVEN = 8
"""Rows of a piece are a multiple of this where they can be: 9 take longer than 8."""


def rows_at_a_time(a: Any, b: Any) -> int:
    """How many rows of a matrix (m, k) to multiply with another (k, n) at a time; 0 is all at once."""
    (m, k), n = a.shape, b.shape[1]
    if m * n * k <= MAX_UNPACKED or a.dtype != b.dtype or a.dtype not in DTYPES:
        return 0
    most, left, right = MAX_UNPACKED // (n * k), a.flags, b.flags
    if right.c_contiguous and (left.c_contiguous or left.f_contiguous):
        least = EVEN if left.c_contiguous else 2 * EVEN
    elif right.f_contiguous and left.c_contiguous and k >= LONG:
        most, least = min(most, MAX_OF_RESULT // n), EVEN // 2
    else:
        return 0
    if most < least or np.may_share_memory(a, b):  # of a matrix by itself BLAS computes but one half
        return 0
    return most // EVEN * EVEN or least


def dot(a: Any, b: Any) -> Any:
    """``numpy.dot`` of arrays; a product that is worth it is taken in pieces, and may differ in its last digits."""
    rows = rows_at_a_time(a, b) if a.ndim == b.ndim == 2 else 0
    if not rows:
        return np.dot(a, b)
    (m, k), n = a.shape, b.shape[1]
    even = m - m % rows
    result = np.empty((m, n), a.dtype)
    np.matmul(a[:even].reshape(-1, rows, k), b, out=result[:even].reshape(-1, rows, n))
    if even < m:
        np.dot(a[even:], b, out=result[even:])
    return result
