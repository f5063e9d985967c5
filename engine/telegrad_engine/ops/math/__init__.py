"""Elementwise functions, comparisons, reductions, sorting and statistics."""

from . import (
    arithmetic,
    comparison,
    cumulative,
    elementary,
    floating_point,
    reduction,
    searching,
    sorting,
    special,
    statistics,
)

__all__ = ["arithmetic", "comparison", "elementary", "floating_point", "special"]
__all__ += ["cumulative", "reduction", "searching", "sorting", "statistics"]
