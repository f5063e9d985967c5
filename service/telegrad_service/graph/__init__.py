"""Drawings of the computation graph."""
