"""Batching rules of ops on shapes."""

from __future__ import annotations

import math
from typing import Any

from .batched_call import BatchedCall, shape_of
from .families import along_dims, rule, shifted


@rule
def reshape(call: BatchedCall) -> Any:
    """Reshape to the batch followed by the shape of a sample's result."""
    return call.apply(call.inputs[0].value, shape=(call.size, *call.specs[0].shape))


@rule
def expand(call: BatchedCall) -> Any:
    """Expand with new dimensions between the batch and the sample's dimensions."""
    target = call.specs[0].shape
    return call.apply(call.aligned(call.inputs[0], len(target)), size=(call.size, *target))


@rule
def squeeze(call: BatchedCall) -> Any:
    """Remove the sample's dimensions of size 1, or those of them that ``dim`` names."""
    x, dims = call.inputs[0], call.attrs["dim"]
    shape = x.shape
    if not shape:
        return call.F.view(x.value, (call.size,))
    named = range(len(shape)) if dims is None else [d % len(shape) for d in dims]
    removed = tuple([d + 1 for d in named if shape[d] == 1])
    return call.apply(x.value, dim=removed) if removed else call.F.view(x.value, (call.size, *shape))


@rule
def unsqueeze(call: BatchedCall) -> Any:
    """Insert the new dimension; ``dim`` counts the dimensions of the result."""
    dim = shifted(call.attrs["dim"], len(call.specs[0].shape))
    first = call.inputs[0]
    if isinstance(first, tuple):
        return call.apply(tuple([call.lifted(x) for x in first]), dim=dim)
    return call.apply(first.value, dim=dim)


@rule
def cat(call: BatchedCall) -> Any:
    """Concatenate, leaving out empty vectors: the op skips them, but would not skip a batch of them."""
    (tensors,) = call.inputs
    parts = tuple([x for x in tensors if shape_of(x) != (0,)]) or tensors
    return along_dims(BatchedCall(call.F, call.size, call.op, (parts,), call.attrs, call.specs))


@rule
def permute(call: BatchedCall) -> Any:
    """Permute the dimensions after the batch."""
    x, dims = call.inputs[0], call.attrs["dims"]
    return call.apply(x.value, dims=(0, *shifted(dims, len(dims)))) if dims else call.F.view(x.value, (call.size,))


@rule
def t(call: BatchedCall) -> Any:
    """Transpose matrices; return vectors unchanged."""
    x = call.inputs[0]
    return call.F.transpose(x.value, 1, 2) if len(x.shape) == 2 else call.F.view(x.value, (call.size, *x.shape))


@rule
def repeat(call: BatchedCall) -> Any:
    """Repeat the dimensions after the batch."""
    repeats = call.attrs["repeats"]
    return call.apply(call.aligned(call.inputs[0], len(repeats)), repeats=(1, *repeats))


@rule
def roll(call: BatchedCall) -> Any:
    """Roll along a sample's dimensions, or along its flattened elements."""
    x, shifts, dims = call.inputs[0], call.attrs["shifts"], call.attrs["dims"]
    if dims == () or not x.shape:
        return call.apply(call.F.reshape(x.value, (call.size, -1)), shifts=shifts, dims=(1,))
    return call.apply(x.value, shifts=shifts, dims=shifted(dims, len(x.shape)))


@rule
def strided(call: BatchedCall) -> Any:
    """Add a stride from sample to sample; NotImplemented unless the batched tensor is contiguous."""
    x, *part = [call.lifted(value) for value in call.inputs]
    if not x.is_contiguous():
        return NotImplemented
    attrs = {**call.attrs, "size": (call.size, *call.attrs["size"])}
    attrs["stride"] = (math.prod(shape_of(call.inputs[0])), *call.attrs["stride"])
    return call.apply(x, *part, **attrs)
