"""Optimizers' steps. Importing this package enters all algorithms."""

from . import adaptive, algorithms, muon

__all__ = ["adaptive", "algorithms", "muon"]
