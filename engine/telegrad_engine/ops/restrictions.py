"""Sums and norms that bring a tensor to a size, and running areas and slopes."""

from __future__ import annotations

from typing import Any

from ..dtypes import bool_, int64
from ..errors import InvalidOperation, ShapeMismatch
from ..schema.op import composite
from ..schema.parameters import Array, Bool, Int, Ints, Number, OptionalInt
from ..shapes import broadcast_shapes, wrap_dim
from .differences import _areas, _widths


@composite(
    may_alias=True,
)
def sum_to_size(F: Any, input: Array, size: Ints) -> Any:
    """The sums over the dimensions that ``size`` lacks or has as 1, so that the result is of that size."""
    shape = tuple(input.shape)
    try:
        fits = broadcast_shapes(tuple(size), shape) == shape
    except ShapeMismatch:
        fits = False
    if not fits:
        raise ShapeMismatch(f"size {{{list(size)}}} is not expandable to size {{{list(shape)}}}.")
    lead = len(shape) - len(size)
    result = F.sum(input, tuple(range(lead))) if lead else input
    lone = tuple(d for d, n in enumerate(size) if n == 1 and shape[lead + d] != 1)
    return F.sum(result, lone, True) if lone else result


@composite(
    inplace=True,
)
def renorm(F: Any, input: Array, p: Number, dim: Int, maxnorm: Number) -> Any:
    """The slices along ``dim`` whose p-norm is above ``maxnorm`` scaled down to it."""
    if not p > 0:
        raise InvalidOperation("renorm: non-positive-norm not supported")
    if input.ndim < 2:
        raise ShapeMismatch(f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions")
    if not maxnorm >= 0:
        raise InvalidOperation(f"renorm: expected maxnorm to be >= 0 but got {maxnorm:g}")
    axis = wrap_dim(dim, input.ndim)
    others = tuple(d for d in range(input.ndim) if d != axis)
    norms = F.linalg_vector_norm(input, p, others, True)
    return input * F.where(norms > maxnorm, maxnorm / (norms + 1e-7), 1.0)


@composite()
def diagflat(F: Any, input: Array, offset: Int = 0) -> Any:
    """A matrix with the elements, flattened, on a diagonal."""
    return F.diag(F.reshape(input, (-1,)), offset)


@composite(
    method=False,
)
def vander(F: Any, x: Array, N: OptionalInt = None, increasing: Bool = False) -> Any:
    """Vandermonde's matrix: the powers N - 1 to 0 of the elements of a vector, or 0 to N - 1 if ``increasing``."""
    if x.ndim != 1:
        raise ShapeMismatch("x must be a one-dimensional tensor.")
    columns = x.shape[0] if N is None else N
    if columns < 0:
        raise InvalidOperation("N must be non-negative.")
    if not columns:
        return F.new_zeros(x, (x.shape[0], 0))
    base = x.to(dtype=int64) if x.dtype is bool_ else x
    powers = F.arange(columns) if increasing else F.arange(columns - 1, -1, -1)
    return F.pow(F.unsqueeze(base, -1), powers)


@composite(key="cumulative_trapezoid.dx", method=False)
def cumulative_trapezoid_dx(F: Any, y: Array, *, dx: Number = 1, dim: Int = -1) -> Any:
    """The running area below the lines that join neighbours along ``dim``, ``dx`` apart."""
    if y.dtype is bool_:
        raise InvalidOperation("cumulative_trapezoid: received a bool input for `y`, but bool is not supported")
    axis = wrap_dim(dim, y.ndim)
    return F.cumsum(_areas(F, y, dx, axis), axis)


@composite(
    method=False,
)
def cumulative_trapezoid(F: Any, y: Array, x: Array, *, dim: Int = -1) -> Any:
    """The running area below the lines that join neighbours along ``dim``, which are at ``x``."""
    if bool_ in (x.dtype, y.dtype):
        raise InvalidOperation("cumulative_trapezoid: received a bool input for `x` or `y`, but bool is not supported")
    axis = wrap_dim(dim, y.ndim)
    return F.cumsum(_areas(F, y, _widths(F, y, x, axis), axis), axis)
