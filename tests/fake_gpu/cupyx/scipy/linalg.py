"""What stands for ``cupyx.scipy.linalg``."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
import scipy.linalg


def _solve(a: Any, b: Any, lower: bool, unit_diagonal: bool) -> Any:
    assert a.shape[:-2] == b.shape[:-2], "CuPy: incompatible batch count"
    (trsm,) = scipy.linalg.get_blas_funcs(("trsm",), (a, b))
    result = np.empty(b.shape, b.dtype)
    for at in np.ndindex(*a.shape[:-2]):
        result[at] = trsm(1.0, a[at], b[at], lower=lower, diag=unit_diagonal)
    return result


def solve_triangular(
    a: Any,
    b: Any,
    trans: Any = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = False,
) -> Any:
    return cupy.on_the_gpu("solve_triangular", _solve)(a, b, lower, unit_diagonal)
