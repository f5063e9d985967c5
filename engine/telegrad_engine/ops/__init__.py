"""The ops, a file a family. Importing this package fills the catalogue and the methods."""

from ..methods import install_methods
from . import (
    arithmetic,
    compare,
    create,
    einsum,
    elementary,
    extremes,
    index,
    linalg,
    loss,
    nn,
    parts,
    random,
    reduce,
    scatter,
    shape,
)

install_methods()

__all__ = [
    "arithmetic",
    "compare",
    "create",
    "einsum",
    "elementary",
    "extremes",
    "index",
    "linalg",
    "loss",
    "nn",
    "parts",
    "random",
    "reduce",
    "scatter",
    "shape",
]
