"""Muon, which updates matrices by orthogonalized momentum; declared as in algorithms.py."""

from __future__ import annotations

from typing import Any

from ..dtypes import bfloat16
from ..errors import InvalidArgument, InvalidValue
from .algorithms import Moved, optimizer

MAX_ITERATIONS = 100


def _rounded(array: Any) -> Any:
    """Round to bfloat16, the precision of the iterations, and return float32, in which products are summed."""
    return array.astype(bfloat16.numpy).astype("float32")


def _orthogonalized(matrix: Any, coefficients: tuple[float, float, float], iterations: int, eps: float) -> Any:
    """Approximate the nearest semi-orthogonal matrix by the Newton-Schulz iteration with a quintic polynomial.

    The form and the precision are those of Jordan et al. 2024, "Muon: An optimizer for hidden layers".
    """
    a, b, c = coefficients
    tall = matrix.shape[0] > matrix.shape[1]
    x = _rounded(matrix.T if tall else matrix)
    x = _rounded(x / _rounded(_rounded((x * x).sum() ** 0.5).clip(eps)))
    for _ in range(iterations):
        gram = _rounded(x @ x.T)
        polynomial = _rounded(b * gram + c * (gram @ gram))
        x = _rounded(a * x + polynomial @ x)
    return x.T if tall else x


@optimizer("muon", "momentum_buffer", weight_decay=0.1, decoupled=True)
def muon(
    p: Any,
    g: Any,
    buffer: Any,
    *,
    lr: float = 1e-3,
    momentum: float = 0.95,
    nesterov: bool = True,
    ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
    eps: float = 1e-7,
    ns_steps: int = 5,
    match_rms_adamw: bool = False,
) -> Moved:
    """Muon: Jordan et al. 2024; ``match_rms_adamw`` scales the steps as in Liu et al. 2025, equation 4."""
    if p.ndim != 2:
        raise InvalidArgument("Param gradient must be a 2D matrix")
    if ns_steps >= MAX_ITERATIONS:
        raise InvalidValue("Number of steps must be less than 100 for computational efficiency")
    rows, columns = p.shape
    buffer += (1 - momentum) * (g - buffer)
    change = g + momentum * (buffer - g) if nesterov else buffer
    change = _orthogonalized(change, ns_coefficients, int(ns_steps), eps)
    ratio = 0.2 * max(rows, columns) ** 0.5 if match_rms_adamw else max(1.0, rows / max(columns, 1)) ** 0.5
    p -= (lr * ratio * change).astype(p.dtype)
    return p, buffer
