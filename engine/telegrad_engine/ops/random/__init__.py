"""Random sampling."""

from . import distributions, sampling

__all__ = ["distributions", "sampling"]
