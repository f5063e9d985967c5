"""Backends: a NumPy-like namespace each, and the handful of things on which they differ."""

from .numpy import NUMPY, NumpyBackend

__all__ = ["NUMPY", "NumpyBackend"]
