"""Optimizer steps. Importing this package registers all algorithms."""

from . import adaptive, algorithms

__all__ = ["adaptive", "algorithms"]
