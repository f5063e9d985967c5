"""Batching rules of ops on shapes, of indexing, masks and copies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...dtypes import from_numpy
from ...shapes import broadcast_shapes
from ...tensor.indexing import WHOLE
from .rules import BatchedCall, BatchedValue, along_dims, decomposition, is_tensor, rule, shape_of, shifted


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


@rule
def getitem(call: BatchedCall) -> Any:
    """Index the whole batch in one call."""
    return call.apply(call.inputs[0].value, index=(WHOLE, *call.attrs["index"]))


@rule
def getitem_scatter(call: BatchedCall) -> Any:
    """Scatter the whole batch in one call."""
    attrs = call.attrs
    return call.apply(call.inputs[0].value, size=(call.size, *attrs["size"]), index=(WHOLE, *attrs["index"]))


class _Picked:
    """Indexing by tensors, with the indexed dimensions moved to the front and the result's moved back."""

    def __init__(self, call: BatchedCall, indices: Sequence[Any]) -> None:
        self.F = call.F
        self.dims = dims = [d for d, i in enumerate(indices) if i is not None]
        self.picks = [indices[d] for d in dims]
        self.width = max(len(shape_of(i)) for i in self.picks)
        self.lead = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
        """The number of unindexed dimensions that precede those of the indices in the result."""
        self.batched = any(isinstance(i, BatchedValue) for i in self.picks)
        self.indices = tuple([call.aligned(i, self.width) for i in self.picks])

    def turned(self, value: Any) -> Any:
        """Return the input with the indexed dimensions first, after the batch if it has one."""
        if isinstance(value, BatchedValue):
            return self._moved(value.value, [d + 1 for d in self.dims], range(1, len(self.dims) + 1))
        return self._moved(value, self.dims, range(len(self.dims)))

    def turned_back(self, value: Any) -> Any:
        """Return a batch of inputs with the indexed dimensions where torch has them."""
        return self._moved(value, range(1, len(self.dims) + 1), [d + 1 for d in self.dims])

    def result(self, value: Any) -> Any:
        """Return a result (batch, *indices, *rest) with the index dimensions moved to where torch has them."""
        own = range(1, self.width + 1)
        return self._moved(value, own, [d + self.lead for d in own])

    def values(self, value: Any) -> Any:
        """Return values of the result's shape, permuted to (batch, *indices, *rest)."""
        own = range(1, self.width + 1)
        return self._moved(value, [d + self.lead for d in own], own)

    def _moved(self, value: Any, source: Sequence[int], destination: Sequence[int]) -> Any:
        same = list(source) == list(destination)
        return value if same else self.F.movedim(value, tuple(source), tuple(destination))


def _index(call: BatchedCall) -> Any:
    """Index the batch; if the indices differ between samples, the sample numbers index dimension 0."""
    x, indices = call.inputs
    picked = _Picked(call, indices)
    F, source = call.F, picked.turned(x)
    if not isinstance(x, BatchedValue):
        found = F.index(source, picked.indices)
    elif picked.batched:
        found = F.index(source, (call.numbers(picked.width), *picked.indices))
    else:
        found = F.index(source, (None, *picked.indices))
    return picked.result(found)


index = rule(_index)


def _index_put(call: BatchedCall) -> Any:
    """Like ``index``, with the values broadcast to the shape that the index selects."""
    x, indices, values = call.inputs
    picked = _Picked(call, indices)
    F, shape = call.F, shape_of(x)
    source = picked.turned(BatchedValue(call.lifted(x)))
    if is_tensor(values):
        rest = [n for d, n in enumerate(shape) if d not in picked.dims]
        sizes = broadcast_shapes(*[shape_of(i) for i in picked.picks])
        wanted = (*rest[: picked.lead], *sizes, *rest[picked.lead :])
        values = picked.values(call.broadcast(values, wanted))
    places = (call.numbers(picked.width), *picked.indices)
    written = F.index_put(source, places, values, accumulate=call.attrs["accumulate"])
    return picked.turned_back(written)


index_put = rule(_index_put)


@rule
def along_index(call: BatchedCall) -> Any:
    """Apply the op itself if the index is the same for all samples; otherwise use the rules of index tensors."""
    F, (x, at, *others) = call.F, call.inputs
    dim = call.attrs["dim"]
    if not isinstance(at, BatchedValue) and shape_of(x) and shape_of(at):
        rest = [call.lifted(o) if is_tensor(o) and shape_of(o) else o for o in others]
        if not any(isinstance(o, BatchedValue) for o in rest):
            return call.apply(call.lifted(x), at, *rest, **{**call.attrs, "dim": shifted(dim, len(shape_of(x)))})
    whole = not shape_of(x)
    source = BatchedValue(F.reshape(call.lifted(x), (call.size, 1))) if whole else x
    dim = dim % max(len(shape_of(x)), 1)
    at = BatchedValue(F.reshape(call.lifted(at), (call.size, -1)))
    indices = (*(None,) * dim, at)
    if call.op.key == "index_select":
        return _index(BatchedCall(F, call.size, call.op, (source, indices), {}, call.specs))
    value = others[0]
    if call.op.key == "index_add" and call.attrs["alpha"] != 1:
        value = BatchedValue(call.lifted(value) * call.attrs["alpha"])
    attrs = {"accumulate": call.op.key == "index_add"}
    return _index_put(BatchedCall(F, call.size, call.op, (source, indices, value), attrs, call.specs))


@rule
def index_fill(call: BatchedCall) -> Any:
    """Fill with a mask of the indexed positions; repeated indices make no difference."""
    F, (x, at, value) = call.F, call.inputs
    ndim = len(shape_of(x))
    if not isinstance(at, BatchedValue) and not isinstance(value, BatchedValue) and ndim:
        return call.apply(call.lifted(x), at, value, dim=shifted(call.attrs["dim"], ndim))
    dim, size = call.attrs["dim"] % max(ndim, 1), shape_of(x)[call.attrs["dim"]] if ndim else 1
    places = F.reshape(call.lifted(at), (call.size, -1, 1))
    places = F.where(places < 0, places + size, places)
    filled = F.any(places == F.arange(size), (1,))
    mask = F.reshape(filled, (call.size, *(size if d == dim else 1 for d in range(ndim))))
    source = call.lifted(x)
    if is_tensor(value):
        value = call.aligned(value, ndim).to(dtype=from_numpy(source._data.dtype))
    return F.where(mask, value, source)


@rule
def copy(call: BatchedCall) -> Any:
    """Broadcast the source to each sample and copy it."""
    x, source = call.inputs
    ndim = len(shape_of(x))
    if not is_tensor(source):
        return call.apply(call.lifted(x), source)
    while len(shape_of(source)) > ndim:  # torch lets a value have more leading dimensions of size 1
        source = BatchedValue(call.F.squeeze(call.lifted(source), (1,)))
    return call.F.copy(call.lifted(x), call.broadcast(source, shape_of(x)))


@decomposition
def masked_fill(F: Any, input: Any, mask: Any, value: Any) -> Any:
    """Select from the input and the value by the mask."""
    if hasattr(value, "_data"):
        value = value.to(dtype=input.dtype)
        return F.where(mask, value, input)
    return F.where(mask, F.full_like(input, value), input)


@decomposition
def masked_select(F: Any, input: Any, mask: Any) -> Any:
    """Index the broadcast input with the broadcast mask."""
    shape = broadcast_shapes(tuple(input.shape), tuple(mask.shape))
    return F.broadcast_to(input, shape)[F.broadcast_to(mask, shape)]


@rule
def masked_scatter(call: BatchedCall) -> Any:
    """Fill the nth true position of each sample's mask with the nth element of its source."""
    F, (x, mask, source), shape = call.F, call.inputs, call.specs[0].shape
    whole, chosen = [F.reshape(call.broadcast(value, shape), (call.size, math.prod(shape))) for value in (x, mask)]
    elements = F.reshape(call.lifted(source), (call.size, math.prod(shape_of(source))))
    # Index 0 is for positions where the mask is false.
    elements = F.cat((F.new_zeros(elements, (call.size, 1)), elements), 1)
    return F.where(chosen, F.gather(elements, 1, F.where(chosen, F.cumsum(chosen, 1), 0)), whole)


@rule
def take(call: BatchedCall) -> Any:
    """Take from the flattened elements of each sample."""
    F, (x, at) = call.F, call.inputs
    flat = F.reshape(call.lifted(x), (call.size, -1))
    places = F.reshape(call.lifted(at), (call.size, -1))
    n = flat._data.shape[1]
    places = F.where(places < 0, places + n, places)
    return F.gather(flat, 1, places)


@rule
def put(call: BatchedCall) -> Any:
    """Put into the flattened elements of each sample."""
    flat, places, values = [call.F.reshape(call.lifted(value), (call.size, -1)) for value in call.inputs]
    return call.F.index_put(flat, (call.numbers(1), places), values, accumulate=call.attrs["accumulate"])
