"""Equations of matrices whose factors are known, and the old names of products and norms."""

from __future__ import annotations

from typing import Any

from ..errors import DTypeMismatch, IndexOutOfRange, InvalidOperation, NotImplementedForDType, ShapeMismatch
from ..schema.op import composite
from ..schema.parameters import Array, Bool, Int, IntOrInts, ManyArrays
from ..shapes import wrap_dim


def _check_factor(name: str, b: Any, A: Any, what: str) -> None:
    """Raise unless the matrices ``b`` and the square ``A`` make an equation of floating numbers."""
    if b.ndim < 2:
        raise ShapeMismatch(what.format(b.ndim))
    if A.ndim < 2:
        raise ShapeMismatch(what.replace(" b ", " A ").replace("b should", "A should").format(A.ndim))
    rows, columns = A.shape[-2:]
    if rows != columns:
        raise ShapeMismatch(f"A must be batches of square matrices, but they are {rows} by {columns} matrices")
    if b.shape[-2] != rows:
        raise ShapeMismatch(
            f"Incompatible matrix sizes for {name}: each A matrix is {rows} by {rows} but each b matrix is "
            f"{b.shape[-2]} by {b.shape[-1]}"
        )
    if b.dtype is not A.dtype:
        raise DTypeMismatch(
            f"Expected b and A to have the same dtype, but found b of type {b.dtype.kernel_name} and A of type "
            f"{A.dtype.kernel_name} instead."
        )
    if not b.dtype.is_floating_point:
        raise NotImplementedForDType(f"\"{name}_cpu\" not implemented for '{b.dtype.kernel_name}'")


@composite()
def cholesky_solve(F: Any, input: Array, L: Array, upper: Bool = False) -> Any:
    """The solution of ``A @ X = input``, of which ``L`` is the Cholesky factor of A."""
    _check_factor("cholesky_solve", input, L, "b should have at least 2 dimensions, but has {} dimensions instead")
    lower = L.mT if upper else L
    # One triangle is read, and both have a gradient: torch's is that of a factor which is any matrix.
    lower = lower - F.triu(lower, 1).detach()
    return F.linalg_solve(F.matmul(lower, lower.mT), input)


@composite()
def cholesky_inverse(F: Any, L: Array, upper: Bool = False) -> Any:
    """The inverse of the matrix that ``L`` is the Cholesky factor of."""
    if L.ndim < 2:
        raise ShapeMismatch(
            f"cholesky_inverse: The input tensor A must have at least 2 dimensions but got {L.ndim} dimensions"
        )
    rows, columns = L.shape[-2:]
    if rows != columns:
        raise ShapeMismatch(
            f"cholesky_inverse: A must be batches of square matrices, but they are {rows} by {columns} matrices"
        )
    if not L.dtype.is_floating_point:
        raise NotImplementedForDType(f"\"cholesky_inverse_out_cpu\" not implemented for '{L.dtype.kernel_name}'")
    eye = F.eye(L.shape[-1], dtype=L.dtype)
    return F.cholesky_solve(F.expand(eye, tuple(L.shape)), L, upper)


@composite(method=False)
def chain_matmul(F: Any, matrices: ManyArrays) -> Any:
    """The product of several matrices; ``linalg.multi_dot`` is its new name."""
    if not matrices:
        raise InvalidOperation("chain_matmul(): Expected one or more matrices")
    return F.clone(matrices[0]) if len(matrices) == 1 else F.linalg_multi_dot(matrices)


@composite(method=False)
def frobenius_norm(F: Any, input: Array, dim: IntOrInts, keepdim: Bool = False) -> Any:
    """The square root of the sum of squares over ``dim``."""
    return F.linalg_vector_norm(input, 2, dim, keepdim)


@composite(method=False)
def nuclear_norm(F: Any, input: Array, keepdim: Bool = False) -> Any:
    """The sum of a matrix's singular values."""
    return F.linalg_matrix_norm(input, "nuc", (-2, -1), keepdim)


@composite(key="nuclear_norm.dim", method=False)
def nuclear_norm_dim(F: Any, input: Array, dim: IntOrInts, keepdim: Bool = False) -> Any:
    """The sums of the singular values of the matrices in two dimensions."""
    return F.linalg_matrix_norm(input, "nuc", dim, keepdim)


@composite(method=False)
def norm_except_dim(F: Any, v: Array, pow: Int = 2, dim: Int = 0) -> Any:
    """The norms of the slices along ``dim``, in a shape that broadcasts with them; of all elements if -1."""
    if dim == -1:
        return F.linalg_vector_norm(v, pow)
    if not v.ndim:
        raise IndexOutOfRange(f"Dimension specified as {dim} but tensor has no dimensions")
    axis = wrap_dim(dim, v.ndim)
    if not v.shape[axis]:
        raise ShapeMismatch(
            "cannot reshape tensor of 0 elements into shape [0, -1] because the unspecified dimension size -1 can be "
            "any value and is ambiguous"
        )
    others = tuple(d for d in range(v.ndim) if d != axis)
    return F.linalg_vector_norm(v, pow, others, True) if others else F.abs(v)


@composite(
    outputs=("solution", "cloned_coefficient"),
)
def triangular_solve(
    F: Any, input: Array, A: Array, upper: Bool = True, transpose: Bool = False, unitriangular: Bool = False
) -> Any:
    """The solution of ``A @ X = input`` for a triangular A, and A; ``linalg.solve_triangular`` is its new name."""
    _check_factor(
        "triangular_solve",
        input,
        A,
        "torch.triangular_solve: Expected b to have at least 2 dimensions, but it has {} dimensions instead",
    )
    matrix = A.mT if transpose else A
    solution = F.linalg_solve_triangular(matrix, input, upper=upper != transpose, unitriangular=unitriangular)
    return triangular_solve.bundle((solution, F.clone(A)))
