"""Elementwise functions, comparisons, reductions, sorting and statistics."""

from . import arithmetic, cumulative, elementary, floating_point, reduction, searching, sorting, statistics

__all__ = ["arithmetic", "elementary", "floating_point"]
__all__ += ["cumulative", "reduction", "searching", "sorting", "statistics"]
