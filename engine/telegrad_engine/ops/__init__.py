"""The ops, in torch's families. Importing this package fills the catalogue and the methods."""

from ..tensor.graph_inspection import install_saved_values
from ..tensor.methods import install_methods
from . import linalg, math, nn, random, shape

install_methods()
install_saved_values()

__all__ = ["linalg", "math", "nn", "random", "shape"]
