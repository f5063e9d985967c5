"""Batching rules of random ops, for samples that each get their own numbers."""

from __future__ import annotations

from typing import Any

from .batched_call import BatchedCall, shape_of
from .families import rule


@rule
def randperm(call: BatchedCall) -> Any:
    """Draw a permutation for each sample."""
    return call.F.stack([call.apply(**call.attrs) for _ in range(call.size)])


@rule
def multinomial(call: BatchedCall) -> Any:
    """Draw for the rows of all samples in one call."""
    (x,) = call.inputs
    shape = shape_of(call.inputs[0])
    rows = call.F.reshape(call.lifted(x), (-1, shape[-1]))
    return call.apply(rows, **call.attrs)
