"""Matrix products of NumPy arrays, whole or in blocks of rows that are small enough for OpenBLAS to skip packing.

OpenBLAS packs matrices before it multiplies them, which takes a third of the time for a batch and a layer's weight. Its
AVX-512 kernels skip packing for small matrices; kernel/x86_64/sgemm_small_kernel_permit_skylakex.c in its sources has
the limits. The NumPy backend's ``dot`` is :func:`dot_whole`, or :func:`dot_in_blocks` if the server finds such kernels
(docs/maintainers/tuning.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np

KERNELS = frozenset(["SkylakeX"])
"""OpenBLAS's names for the kernels that are known to skip packing."""
DTYPES = frozenset([np.dtype(np.float32), np.dtype(np.float64)])
MAX_UNPACKED = 10**6
"""The maximum number of multiplications in a product without packing."""
MAX_OF_RESULT = 1200
"""The maximum elements of such a product's result if the right matrix is column-major, like a layer's weight."""
LONG = 256
"""The minimum length of rows and columns for a gain if the right matrix is column-major."""
LARGE = 2**16
"""The elements of a result for which clearing takes longer than what :func:`numpy.matmul` takes more than ``dot``."""
EVEN = 8
"""The number of rows in a block is a multiple of this if possible, because 9 rows take longer than 8."""


def rows_at_a_time(a: Any, b: Any) -> int:
    """The number of rows of a matrix (m, k) to multiply with a matrix (k, n) at a time; 0 means all at once."""
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
    if most < least or np.may_share_memory(a, b):  # BLAS computes only half of the product of a matrix with itself
        return 0
    return most // EVEN * EVEN or least


def dot_whole(a: Any, b: Any) -> Any:
    """Like ``numpy.dot``, but without clearing a large result first.

    NumPy does that while it holds the interpreter's lock: for new memory of 9 MB, all other threads stand still for
    16 ms. ``numpy.matmul`` does not clear, but calls BLAS only for contiguous matrices.
    """
    if a.ndim == b.ndim == 2 and len(a) * b.shape[1] >= LARGE and a.dtype in DTYPES and a.flags.forc and b.flags.forc:
        return np.matmul(a, b)
    return np.dot(a, b)


def dot_in_blocks(a: Any, b: Any) -> Any:
    """Like ``numpy.dot``, but in blocks if that is faster; the last digits of the result may then differ."""
    rows = rows_at_a_time(a, b) if a.ndim == b.ndim == 2 else 0
    if not rows:
        return dot_whole(a, b)
    (m, k), n = a.shape, b.shape[1]
    even = m - m % rows
    result = np.empty((m, n), a.dtype)
    np.matmul(a[:even].reshape(-1, rows, k), b, out=result[:even].reshape(-1, rows, n))
    if even < m:
        np.dot(a[even:], b, out=result[even:])
    return result
