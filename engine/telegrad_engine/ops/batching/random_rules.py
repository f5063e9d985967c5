"""Batching rules of random ops, for samples that each get their own numbers."""

from __future__ import annotations

from typing import Any

from .batched_call import BatchedCall, Lanes, is_tensor, shape_of
from .families import rule


@rule
def randperm(call: BatchedCall) -> Any:
    """Draw a permutation for each sample."""
    return call.F.stack([call.apply(**call.attrs) for _ in range(call.size)])


@rule
def normal(call: BatchedCall) -> Any:
    """Draw for each sample, with its mean and standard deviation."""
    ndim = max(len(shape_of(x)) for x in call.inputs)
    return call.apply(*[call.aligned(Lanes(call.lifted(x)), ndim) if is_tensor(x) else x for x in call.inputs])


@rule
def multinomial(call: BatchedCall) -> Any:
    """Draw for the rows of all samples in one call."""
    (x,) = call.inputs
    shape = shape_of(call.inputs[0])
    rows = call.F.reshape(call.lifted(x), (-1, shape[-1]))
    return call.apply(rows, **call.attrs)
