"""Diagonals of matrices: read, written, and made into matrices."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidOperation, ShapeMismatch
from ..schema.op import composite, op
from ..schema.parameters import Array, Int
from ..shapes import Spec, wrap_dim

# Diagonals -----------------------------------------------------------------------------------------------


def _diagonal_rule(input: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Spec:
    ndim = len(input.shape)
    first, second = wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)
    if first == second:
        raise InvalidOperation(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    rows, columns = input.shape[first], input.shape[second]
    n = max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)
    return Spec((*(m for i, m in enumerate(input.shape) if i not in (first, second)), n), input.dtype)


@op(
    _diagonal_rule,
    view=True,
)
def diagonal(xp: Any, input: Array, offset: Int = 0, dim1: Int = 0, dim2: Int = 1) -> Any:
    """The diagonal of the matrices in ``dim1`` and ``dim2``, ``offset`` above the main one, as last dimension."""
    n = _diagonal_rule(input, offset, dim1, dim2).shape[-1]
    down, right = (max(-offset, 0), max(offset, 0)) if n else (0, 0)
    matrices = xp.moveaxis(input, (dim1, dim2), (-2, -1))
    # Unlike NumPy's diagonal, einsum's can be written to.
    return xp.einsum("...ii->...i", matrices[..., down : down + n, right : right + n])


diagonal.derivative(
    input=lambda F, grad, input_shape, offset, dim1, dim2: F.diagonal_scatter(
        F.new_zeros(grad, input_shape), grad, offset, dim1, dim2
    )
)


@composite(
    may_alias=True,
    key="diagonal",
    namespace="torch.linalg",
)
def linalg_diagonal(F: Any, A: Array, *, offset: Int = 0, dim1: Int = -2, dim2: Int = -1) -> Any:
    """The diagonal of each matrix, as last dimension."""
    return F.diagonal(A, offset, dim1, dim2)


def _diagonal_scatter_rule(input: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Spec:
    part = _diagonal_rule(input, offset, dim1, dim2).shape
    if tuple(src.shape) != part:
        raise ShapeMismatch(
            f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, "
            f"slice size = {list(part)}"
        )
    return Spec(input.shape, input.dtype)


@op(_diagonal_scatter_rule, scratch=1.25)
def diagonal_scatter(xp: Any, input: Array, src: Array, offset: Int = 0, dim1: Int = 0, dim2: Int = 1) -> Any:
    """``input`` with ``src`` in place of the diagonal of its matrices."""
    places = diagonal.raw(xp, xp.reshape(xp.arange(input.size), input.shape), offset, dim1, dim2)
    return xp.reshape(xp.index_set(xp.reshape(input, (-1,)), places, src), input.shape)


diagonal_scatter.derivative(
    input=lambda F, grad, src_shape, offset, dim1, dim2: F.diagonal_scatter(
        grad, F.new_zeros(grad, src_shape), offset, dim1, dim2
    ),
    src=lambda F, grad, offset, dim1, dim2: F.diagonal(grad, offset, dim1, dim2),
)


@composite()
def diag_embed(F: Any, input: Array, offset: Int = 0, dim1: Int = -2, dim2: Int = -1) -> Any:
    """Matrices in ``dim1`` and ``dim2`` with the last dimension on a diagonal, the rest zeros."""
    ndim = len(input.shape) + 1
    first, second = wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)
    if first == second:
        raise InvalidOperation(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    *shape, n = input.shape
    for axis in sorted((first, second)):
        shape.insert(axis, n + abs(offset))
    return F.diagonal_scatter(F.new_zeros(input, tuple(shape)), input, offset, first, second)


@composite()
def diag(F: Any, input: Array, diagonal: Int = 0) -> Any:
    """A matrix with this vector on a diagonal, or a copy of a diagonal of this matrix."""
    ndim = len(input.shape)
    if ndim not in (1, 2):
        raise ShapeMismatch(f"diag(): Supports 1D or 2D tensors. Got {ndim}D")
    return F.diag_embed(input, diagonal) if ndim == 1 else F.clone(F.diagonal(input, diagonal))
