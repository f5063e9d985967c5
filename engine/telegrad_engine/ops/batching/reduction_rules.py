"""Batching rules of reductions and of searching."""

from __future__ import annotations

import math
from typing import Any

from ...dtypes import is_floating
from .batched_call import BatchedCall, BatchedValue, is_tensor, shape_of
from .families import rule


@rule
def of_all(call: BatchedCall) -> Any:
    """Reduce all elements of each sample."""
    shape = call.inputs[0].shape
    flat = call.F.reshape(call.inputs[0].value, (call.size, math.prod(shape)))
    if call.op.key == "median" and not math.prod(shape):
        return NotImplemented
    if call.op.key == "prod":
        return call.F.prod_dim(flat, 1, dtype=call.attrs["dtype"])
    if call.op.key == "median":
        return _median(call.F, flat)
    return (call.F.amax if call.op.key == "max" else call.F.amin)(flat, (1,))


def _median(F: Any, rows: Any) -> Any:
    """Return the median of each row, whose gradient is shared by all elements equal to it, as for ``median``."""
    found = F.median_dim(rows.detach(), 1)[0]
    if not is_floating(rows._data.dtype):
        return found
    wanted = F.unsqueeze(found, 1)
    same = F.logical_or(rows == wanted, F.logical_and(F.isnan(rows), F.isnan(wanted)))
    return F.sum(F.where(same, rows, 0.0), (1,)) / F.sum(same, (1,))


@rule
def quantile(call: BatchedCall) -> Any:
    """Compute the quantiles of each sample; NotImplemented if ``q`` differs between samples."""
    F, (x, q), attrs = call.F, call.inputs, dict(call.attrs)
    if isinstance(q, BatchedValue):
        return NotImplemented
    value, dim = x.value, attrs["dim"]
    ndim = len(x.shape)
    if dim is None or not ndim:
        value, dim = F.reshape(value, (call.size, -1)), 0
    else:
        dim = dim % ndim
    found = call.apply(value, q, **{**attrs, "dim": dim + 1, "keepdim": False if not ndim else attrs["keepdim"]})
    return F.movedim(found, 1, 0) if shape_of(q) else found


@rule
def searchsorted(call: BatchedCall) -> Any:
    """Search the sequences of all samples in one call; with one sequence per sample, the values are flattened."""
    F, (sequence, values, sorter) = call.F, call.inputs
    lifted = [None if x is None else call.lifted(x) for x in (sequence, sorter)]
    if not is_tensor(values):
        wanted: Any = F.full((call.size, 1), values)
    elif len(shape_of(sequence)) > 1:
        wanted = call.lifted(values)
    else:
        wanted = F.reshape(call.lifted(values), (call.size, -1))
    return call.apply(lifted[0], wanted, lifted[1], **call.attrs)
