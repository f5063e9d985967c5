"""Products and decompositions of matrices, linear equations, and norms."""

from . import decompositions, least_squares, matmul, matrix_norms, norms, products, solving

__all__ = ["decompositions", "least_squares", "matmul", "matrix_norms", "norms", "products", "solving"]
