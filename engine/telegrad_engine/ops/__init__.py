"""The ops, a file a family. Importing this package fills the catalogue and the methods."""

from ..methods import install_methods
from . import create, einsum, elementwise, index, linalg, loss, nn, random, reduce, shape

install_methods()

__all__ = ["create", "einsum", "elementwise", "index", "linalg", "loss", "nn", "random", "reduce", "shape"]
