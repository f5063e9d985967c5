"""Typical training loops, each written once for torch and Telegrad; tests compare them and benchmarks time them."""

from . import batches, layers, numbers, procedures, reads, sequences, sessions
from .loop import LARGE, LOOPS, SMALL, Loop, Size

__all__ = [
    "LARGE", "LOOPS", "SMALL", "Loop", "Size",
    "batches", "layers", "numbers", "procedures", "reads", "sequences", "sessions",
]  # fmt: skip
