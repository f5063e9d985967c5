"""Writes the pages of the documentation site: those of ``docs/``, and those that are made from the code."""

from .staging import stage

__all__ = ["stage"]
