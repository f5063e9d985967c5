"""Rosenbrock's function and its gradient, by hand in NumPy, for the peers' servers.

H. H. Rosenbrock, "An automatic method for finding the greatest or least value of a function", 1960; the sum over
neighbouring pairs.
"""

from __future__ import annotations

import numpy as np

SIZE = 1000


def point() -> np.ndarray:
    """The point at which the gradient is computed: SIZE numbers in float64."""
    return np.random.default_rng(0).standard_normal(SIZE)


def value(x: np.ndarray) -> float:
    """The function at ``x``, of shape (n,)."""
    return float((100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum())


def gradient(x: np.ndarray) -> np.ndarray:
    """The gradient at ``x``, of shape (n,)."""
    result = np.zeros_like(x)
    off = x[1:] - x[:-1] ** 2
    result[:-1] = -400 * x[:-1] * off - 2 * (1 - x[:-1])
    result[1:] += 200 * off
    return result


def check(found: object) -> None:
    """Raise AssertionError unless this is the gradient at ``point()``."""
    np.testing.assert_allclose(np.asarray(found), gradient(point()), rtol=1e-6)
