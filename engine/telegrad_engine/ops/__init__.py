"""The ops, grouped as in torch. Importing this package registers them in the catalogue and as tensor methods."""

from ..graph.node import Node
from ..tensor.graph_inspection import install_saved_values
from ..tensor.methods import install_methods
from . import linalg, math, nn, random, shape

install_methods()
install_saved_values(Node)

__all__ = ["linalg", "math", "nn", "random", "shape"]
