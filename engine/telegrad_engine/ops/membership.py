"""Membership, bucketing, and combinations of elements."""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import bool_, int64
from ..errors import DataDependentShape, InvalidOperation, ShapeMismatch
from ..schema.op import composite, op
from ..schema.parameters import Array, Bool, Int, ManyArrays, Operand, OptionalInt
from ..shapes import Spec, size_at, wrap_dim


@composite(
    method=False,
)
def isin(
    F: Any, elements: Operand, test_elements: Operand, *, assume_unique: Bool = False, invert: Bool = False
) -> Any:
    """Whether each of ``elements`` is one of ``test_elements``, or, with ``invert``, is none."""
    for x in (elements, test_elements):
        if hasattr(x, "_data") and x.dtype is bool_:
            raise InvalidOperation("Unsupported input type encountered for isin(): Bool")
    others = F.reshape(test_elements, (-1,)) if hasattr(test_elements, "_data") else test_elements
    each = F.unsqueeze(elements, -1) if hasattr(elements, "_data") else elements
    found = F.eq(each, others) if hasattr(each, "_data") else F.eq(others, each)
    found = F.any(found, -1)
    return F.logical_not(found) if invert else found


@composite(
    method=False,
)
def bucketize(F: Any, input: Operand, boundaries: Array, *, out_int32: Bool = False, right: Bool = False) -> Any:
    """How many of the ascending ``boundaries`` are below each value (or, with ``right``, not above it)."""
    if boundaries.ndim != 1:
        raise ShapeMismatch(f"boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
    return F.searchsorted(boundaries, input, out_int32=out_int32, right=right)


@composite(
    may_alias=True,
    method=False,
)
def cartesian_prod(F: Any, tensors: ManyArrays) -> Any:
    """A row for every way of taking one element of each vector."""
    for x in tensors:
        if x.ndim != 1:
            raise ShapeMismatch(f"Expect a 1D vector, but got shape {list(x.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    return F.stack([F.reshape(grid, (-1,)) for grid in F.meshgrid(list(tensors), indexing="ij")], 1)


@composite(
    method=False,
)
def combinations(F: Any, input: Array, r: Int = 2, with_replacement: Bool = False) -> Any:
    """A row for every choice of ``r`` elements of a vector, each once or, with replacement, repeatedly."""
    if input.ndim != 1:
        raise ShapeMismatch(f"Expect a 1D vector, but got shape {list(input.shape)}")
    if r < 0:
        raise InvalidOperation(f"Expect a non-negative number, but got {r}")
    if not r:
        return F.new_zeros(input, (0,))
    n = input.shape[0]
    if not n or (r > n and not with_replacement):
        return F.reshape(F.index_select(input, 0, F.arange(0)), (0, r))
    columns = F.unbind(F.combination_indices(n, r, with_replacement), 1)
    return F.stack([F.index_select(input, 0, column) for column in columns], 1)


@composite()
def argwhere(F: Any, input: Array) -> Any:
    """The indices of the elements that are not zero, a row each."""
    return F.nonzero(input)


@composite(
    key="nonzero.as_tuple",
    lists_outputs=True,
)
def nonzero_as_tuple(F: Any, input: Array, *, as_tuple: Bool) -> Any:
    """The indices of the elements that are not zero, a vector a dimension."""
    places = F.nonzero(input if input.ndim or not as_tuple else F.reshape(input, (1,)))
    return F.unbind(places, 1) if as_tuple else places


@composite(
    key="where.condition",
    method=False,
    lists_outputs=True,
)
def where_condition(F: Any, condition: Array) -> Any:
    """The indices of the elements that are not zero, a vector a dimension."""
    return F.nonzero(condition, as_tuple=True)


def _nonzero_static_rule(input: Any, *, size: int, fill_value: int = -1) -> Spec:
    if size < 0:
        raise InvalidOperation("nonzero_static: 'size' must be an non-negative integer")
    return Spec((size, len(input.shape)), int64.numpy)


@op(
    _nonzero_static_rule,
)
def nonzero_static(xp: Any, input: Array, *, size: Int, fill_value: Int = -1) -> Any:
    """The first ``size`` indices of elements that are not zero, a row each, and rows of ``fill_value`` after them."""
    places = xp.argwhere(input)[:size]
    rest = xp.full((size - places.shape[0], input.ndim), fill_value)
    return xp.concatenate([places, rest], axis=0).astype(int64.numpy)


def _runs_rule(input: Any, dim: int = 0) -> list[Spec]:
    if isinstance(input, Spec):
        raise DataDependentShape("the shape of unique_consecutive's result depends on the input's values")
    n = size_at(input.shape, dim)
    return [Spec(input.shape, input.dtype), Spec((n,), int64.numpy), Spec((n,), int64.numpy)]


@op(_runs_rule, method=False, internal=True, outputs=("values", "inverse", "counts"), scratch=4.0)
def _runs(xp: Any, input: Array, dim: Int = 0) -> Any:
    """The slices along ``dim``, of equal neighbours one; the run that each belongs to; and how long each run is."""
    n = input.shape[dim]
    rows = xp.reshape(xp.moveaxis(input, dim, 0), (n, math.prod(input.shape) // max(n, 1)))
    starts = xp.concatenate([xp.ones((min(n, 1),), bool), xp.any(rows[1:] != rows[:-1], axis=1)])
    (first,) = xp.nonzero(starts)
    counts = xp.concatenate([first[1:], xp.full((min(n, 1),), n)]) - first
    return xp.take(input, first, axis=dim), xp.cumsum(starts) - 1, counts


@composite()
def unique_consecutive(
    F: Any, input: Array, return_inverse: Bool = False, return_counts: Bool = False, dim: OptionalInt = None
) -> Any:
    """The elements, or slices along ``dim``, of equal neighbours only the first; on demand which, and how many."""
    source = F.reshape(input, (-1,)) if dim is None else input
    if dim is not None and any(not n for i, n in enumerate(input.shape) if i != wrap_dim(dim, input.ndim)):
        raise ShapeMismatch("There are 0 sized dimensions, and they aren't selected, so unique cannot be applied")
    values, inverse, counts = F._runs(source, 0 if dim is None else wrap_dim(dim, input.ndim))
    if dim is None:
        inverse = F.reshape(inverse, tuple(input.shape))
    wanted = (values, *([inverse] if return_inverse else []), *([counts] if return_counts else []))
    return wanted if len(wanted) > 1 else values
