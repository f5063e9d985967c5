"""Products and decompositions of matrices, linear equations, and norms."""

from . import decompositions, matmul, matrix_norms, norms, products, solving

__all__ = ["decompositions", "matmul", "matrix_norms", "norms", "products", "solving"]
