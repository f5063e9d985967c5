"""Reducing slices into the places that an index names."""

from __future__ import annotations

from typing import Any

from ..dtypes import int32, int64
from ..errors import DTypeMismatch, IndexOutOfRange, InvalidOperation, ShapeMismatch
from ..schema.op import composite
from ..schema.parameters import Array, Bool, Int, Str
from ..shapes import size_at, wrap_dim

REDUCTIONS = ("prod", "mean", "amax", "amin")


def _check(input: Any, axis: int, index: Any, source: Any, reduce: str) -> None:
    name = "index_reduce_()"
    if reduce not in REDUCTIONS:
        raise InvalidOperation(
            f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}."
        )
    if index.dim() > 1:
        raise IndexOutOfRange(
            f"{name}: Index is supposed to be a vector, but got dim: {index.dim()} with type: "
            f"{index.dtype.kernel_name} and size: {list(index.shape)}"
        )
    if index.dtype not in (int64, int32):
        raise DTypeMismatch(f"{name}: Expected dtype int32/int64 for index but got: {index.dtype.kernel_name}")
    if source.dtype != input.dtype:
        raise DTypeMismatch(
            f"{name}: self ({input.dtype.kernel_name}) and source ({source.dtype.kernel_name}) must have the same "
            "scalar type"
        )
    if index.numel() != size_at(source.shape, axis):
        raise ShapeMismatch(
            f"{name}: Number of indices ({index.numel()}) should be equal to source.size(dim): "
            f"({source.shape[axis]}), for dim: {axis}"
        )
    if any(n != m for d, (n, m) in enumerate(zip(input.shape, source.shape, strict=False)) if d != axis) or (
        input.ndim != source.ndim
    ):
        raise ShapeMismatch(
            "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = "
            f"{list(input.shape)} source.shape = {list(source.shape)}"
        )


@composite(
    inplace=True,
)
def index_reduce(
    F: Any, input: Array, dim: Int, index: Array, source: Array, reduce: Str, *, include_self: Bool = True
) -> Any:
    """``input`` with the slices of ``source`` reduced into it along ``dim`` at ``index``."""
    if not input.ndim and not source.ndim:
        wrap_dim(dim, 0)
        rows = F.reshape(source, (1,))
        return F.reshape(F.index_reduce(F.reshape(input, (1,)), 0, index, rows, reduce, include_self=include_self), ())
    axis = wrap_dim(dim, len(input.shape))
    _check(input, axis, index, source, reduce)
    along = F.reshape(index, tuple(-1 if d == axis else 1 for d in range(len(source.shape))))
    places = F.expand(along, tuple(source.shape))
    return F.scatter_reduce(input, dim, places, source, reduce, include_self=include_self)
