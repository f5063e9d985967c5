"""Optimizer steps. Importing this package registers all algorithms."""

from . import adaptive, algorithms, muon

__all__ = ["adaptive", "algorithms", "muon"]
