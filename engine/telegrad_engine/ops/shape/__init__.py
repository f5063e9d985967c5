"""Tensor creation, views, joining and splitting, rearranging and indexing."""

from . import creation, indexing, joining, rearrangement, scatter, views

__all__ = ["creation", "indexing", "joining", "rearrangement", "scatter", "views"]
