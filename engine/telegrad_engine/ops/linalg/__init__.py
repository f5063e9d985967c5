"""Products, decompositions and equations of matrices, and norms."""

from . import decompositions, least_squares, matmul, matrix_norms, norms, products, solving

__all__ = ["decompositions", "least_squares", "matmul", "matrix_norms", "norms", "products", "solving"]
