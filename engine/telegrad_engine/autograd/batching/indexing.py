"""Batching rules for ops on shapes and for indexing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...dtypes import from_numpy, is_floating
from ...shapes import broadcast_shapes
from ...tensor.indexing import WHOLE
from .batched_call import BatchedCall, Lanes, is_tensor, shape_of
from .families import along_dims, rule, shifted

# Shapes ------------------------------------------------------------------------------------------------


@rule("reshape", "view")
def reshape(call: BatchedCall) -> Any:
    """Reshape to the batch followed by the shape of a sample's result."""
    return call.apply(call.inputs[0].value, shape=(call.size, *call.specs[0].shape))


@rule("expand", "broadcast_to")
def expand(call: BatchedCall) -> Any:
    """Expand with new dimensions between the batch and the sample's dimensions."""
    target = call.specs[0].shape
    return call.apply(call.aligned(call.inputs[0], len(target)), size=(call.size, *target))


@rule("squeeze")
def squeeze(call: BatchedCall) -> Any:
    """Remove the sample's dimensions of size 1, or those of them that ``dim`` names."""
    x, dims = call.inputs[0], call.attrs["dim"]
    shape = x.shape
    if not shape:
        return call.F.view(x.value, (call.size,))
    named = range(len(shape)) if dims is None else [d % len(shape) for d in dims]
    removed = tuple([d + 1 for d in named if shape[d] == 1])
    return call.apply(x.value, dim=removed) if removed else call.F.view(x.value, (call.size, *shape))


@rule("unsqueeze", "stack")
def unsqueeze(call: BatchedCall) -> Any:
    """Insert the new dimension; ``dim`` counts the dimensions of the result."""
    dim = shifted(call.attrs["dim"], len(call.specs[0].shape))
    first = call.inputs[0]
    if isinstance(first, tuple):
        return call.apply(tuple([call.lifted(x) for x in first]), dim=dim)
    return call.apply(first.value, dim=dim)


@rule("cat")
def cat(call: BatchedCall) -> Any:
    """Concatenate, leaving out empty vectors: the op skips them, but would not skip a batch of them."""
    (tensors,) = call.inputs
    parts = tuple([x for x in tensors if shape_of(x) != (0,)]) or tensors
    return along_dims(BatchedCall(call.F, call.size, call.op, (parts,), call.attrs, call.specs))


@rule("permute")
def permute(call: BatchedCall) -> Any:
    """Permute the dimensions after the batch."""
    x, dims = call.inputs[0], call.attrs["dims"]
    return call.apply(x.value, dims=(0, *shifted(dims, len(dims)))) if dims else call.F.view(x.value, (call.size,))


@rule("t")
def t(call: BatchedCall) -> Any:
    """Transpose matrices; return vectors unchanged."""
    x = call.inputs[0]
    return call.F.transpose(x.value, 1, 2) if len(x.shape) == 2 else call.F.view(x.value, (call.size, *x.shape))


@rule("repeat")
def repeat(call: BatchedCall) -> Any:
    """Repeat the dimensions after the batch."""
    repeats = call.attrs["repeats"]
    return call.apply(call.aligned(call.inputs[0], len(repeats)), repeats=(1, *repeats))


@rule("roll")
def roll(call: BatchedCall) -> Any:
    """Roll along a sample's dimensions, or along its flattened elements."""
    x, shifts, dims = call.inputs[0], call.attrs["shifts"], call.attrs["dims"]
    if dims == () or not x.shape:
        return call.apply(call.F.reshape(x.value, (call.size, -1)), shifts=shifts, dims=(1,))
    return call.apply(x.value, shifts=shifts, dims=shifted(dims, len(x.shape)))


@rule("median", "max", "min", "prod")
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


@rule("as_strided", "as_strided_scatter")
def strided(call: BatchedCall) -> Any:
    """Add a stride from sample to sample; NotImplemented unless the batched tensor is contiguous."""
    x, *part = [call.lifted(value) for value in call.inputs]
    if not x.is_contiguous():
        return NotImplemented
    attrs = {**call.attrs, "size": (call.size, *call.attrs["size"])}
    attrs["stride"] = (math.prod(shape_of(call.inputs[0])), *call.attrs["stride"])
    return call.apply(x, *part, **attrs)


@rule("new_zeros", "new_ones", "new_full")
def new(call: BatchedCall) -> Any:
    """Make a tensor for each sample, because it may be modified in place."""
    return call.apply(call.inputs[0].value, **{**call.attrs, "size": (call.size, *call.specs[0].shape)})


@rule("rand", "randn", "randint", "randint.high", "normal.size")
def drawn(call: BatchedCall) -> Any:
    """Draw for each sample."""
    return call.apply(**{**call.attrs, "size": (call.size, *call.attrs["size"])})


@rule("copy", "fill")
def copy(call: BatchedCall) -> Any:
    """Broadcast the source to each sample and copy it."""
    x, source = call.inputs
    ndim = len(shape_of(x))
    if not is_tensor(source):
        return call.apply(call.lifted(x), source)
    while len(shape_of(source)) > ndim:  # torch lets a value have more leading dimensions of size 1
        source = Lanes(call.F.squeeze(call.lifted(source), (1,)))
    return call.F.copy(call.lifted(x), call.broadcast(source, shape_of(x)))


# Indexing ----------------------------------------------------------------------------------------------


@rule("getitem")
def getitem(call: BatchedCall) -> Any:
    """Index the whole batch in one call."""
    return call.apply(call.inputs[0].value, index=(WHOLE, *call.attrs["index"]))


@rule("getitem_scatter")
def getitem_scatter(call: BatchedCall) -> Any:
    """Scatter the whole batch in one call."""
    attrs = call.attrs
    return call.apply(call.inputs[0].value, size=(call.size, *attrs["size"]), index=(WHOLE, *attrs["index"]))


class _Picked:
    """Indexing by tensors, with the indexed dimensions moved to the front and the result's moved back."""

    def __init__(self, call: BatchedCall, indices: Sequence[Any]) -> None:
        self.call = call
        F = call.F
        dims = [d for d, i in enumerate(indices) if i is not None]
        self.picks = [indices[d] for d in dims]
        ndim = len(shape_of(call.inputs[0]))
        self.order = (*dims, *[d for d in range(ndim) if d not in dims])
        self.width = max(len(shape_of(i)) for i in self.picks)
        adjacent = dims == list(range(dims[0], dims[-1] + 1))
        self.lead = dims[0] if adjacent else 0
        """The number of unindexed dimensions that precede those of the indices in the result."""
        self.batched = any(isinstance(i, Lanes) for i in self.picks)
        self.indices = tuple([call.aligned(i, self.width) for i in self.picks])
        self.F = F

    def turned(self, value: Any) -> Any:
        """Return the input with the indexed dimensions first, after the batch if it has one."""
        if isinstance(value, Lanes):
            return self.F.permute(value.value, (0, *[d + 1 for d in self.order]))
        return self.F.permute(value, self.order)

    def result(self, value: Any) -> Any:
        """Return a result (batch, *indices, *rest) with the index dimensions moved to where torch has them."""
        rest = len(value._data.shape) - 1 - self.width
        if not self.lead:
            return value
        places = range(1 + self.width, 1 + self.width + rest)
        middle = tuple(range(1, 1 + self.width))
        return self.F.permute(value, (0, *places[: self.lead], *middle, *places[self.lead :]))

    def values(self, value: Any) -> Any:
        """Return values of the result's shape, permuted to (batch, *indices, *rest)."""
        if not self.lead:
            return value
        ndim = len(value._data.shape)
        middle = range(1 + self.lead, 1 + self.lead + self.width)
        rest = [d for d in range(1, ndim) if d not in middle]
        return self.F.permute(value, (0, *middle, *rest))


@rule("index")
def index(call: BatchedCall) -> Any:
    """Index the batch; if the indices differ between samples, the sample numbers index dimension 0."""
    x, indices = call.inputs
    picked = _Picked(call, indices)
    F, source = call.F, picked.turned(x)
    if not isinstance(x, Lanes):
        found = F.index(source, picked.indices)
    elif picked.batched:
        found = F.index(source, (call.numbers(picked.width), *picked.indices))
    else:
        found = F.index(source, (None, *picked.indices))
    return picked.result(found)


@rule("index_put")
def index_put(call: BatchedCall) -> Any:
    """Like ``index``, with the values broadcast to the shape that the index selects."""
    x, indices, values = call.inputs
    picked = _Picked(call, indices)
    F, shape = call.F, shape_of(x)
    source = picked.turned(Lanes(call.lifted(x)))
    if is_tensor(values):
        rest = [shape[d] for d in picked.order[len(picked.picks) :]]
        sizes = broadcast_shapes(*[shape_of(i) for i in picked.picks])
        wanted = (*rest[: picked.lead], *sizes, *rest[picked.lead :])
        values = picked.values(call.broadcast(values, wanted))
    places = (call.numbers(picked.width), *picked.indices)
    written = F.index_put(source, places, values, accumulate=call.attrs["accumulate"])
    back = [picked.order.index(d) + 1 for d in range(len(shape))]
    return F.permute(written, (0, *back))


@rule("gather", "scatter", "scatter.value", "scatter_add", "scatter_reduce", "diagonal_scatter")
def alike(call: BatchedCall) -> Any:
    """Give all tensors the batch dimension and shift the dimension numbers by one."""
    return along_dims(call)


@rule("index_select", "index_add", "index_copy")
def along_index(call: BatchedCall) -> Any:
    """Apply the op itself if the index is the same for all samples; otherwise use the rules of index tensors."""
    F, (x, at, *others) = call.F, call.inputs
    dim = call.attrs["dim"]
    if not isinstance(at, Lanes) and shape_of(x) and shape_of(at):
        rest = [call.lifted(o) if is_tensor(o) and shape_of(o) else o for o in others]
        if not any(isinstance(o, Lanes) for o in rest):
            return call.apply(call.lifted(x), at, *rest, **{**call.attrs, "dim": shifted(dim, len(shape_of(x)))})
    whole = not shape_of(x)
    source = Lanes(F.reshape(call.lifted(x), (call.size, 1))) if whole else x
    dim = dim % max(len(shape_of(x)), 1)
    at = Lanes(F.reshape(call.lifted(at), (call.size, -1)))
    indices = (*(None,) * dim, at)
    if call.op.key == "index_select":
        return index(BatchedCall(F, call.size, call.op, (source, indices), {}, call.specs))
    value = others[0]
    if call.op.key == "index_add" and call.attrs["alpha"] != 1:
        value = Lanes(call.lifted(value) * call.attrs["alpha"])
    attrs = {"accumulate": call.op.key == "index_add"}
    return index_put(BatchedCall(F, call.size, call.op, (source, indices, value), attrs, call.specs))


@rule("index_fill")
def index_fill(call: BatchedCall) -> Any:
    """Fill with a mask of the indexed positions; repeated indices make no difference."""
    F, (x, at, value) = call.F, call.inputs
    ndim = len(shape_of(x))
    if not isinstance(at, Lanes) and not isinstance(value, Lanes) and ndim:
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


@rule("take")
def take(call: BatchedCall) -> Any:
    """Take from the flattened elements of each sample."""
    F, (x, at) = call.F, call.inputs
    flat = F.reshape(call.lifted(x), (call.size, -1))
    places = F.reshape(call.lifted(at), (call.size, -1))
    n = flat._data.shape[1]
    places = F.where(places < 0, places + n, places)
    return F.gather(flat, 1, places)


@rule("put")
def put(call: BatchedCall) -> Any:
    """Put into the flattened elements of each sample."""
    flat, places, values = [call.F.reshape(call.lifted(value), (call.size, -1)) for value in call.inputs]
    return call.F.index_put(flat, (call.numbers(1), places), values, accumulate=call.attrs["accumulate"])


@rule("masked_scatter")
def masked_scatter(call: BatchedCall) -> Any:
    """Fill the nth true position of each sample's mask with the nth element of its source."""
    F, (x, mask, source), shape = call.F, call.inputs, call.specs[0].shape
    whole, chosen = [F.reshape(call.broadcast(value, shape), (call.size, math.prod(shape))) for value in (x, mask)]
    elements = F.reshape(call.lifted(source), (call.size, math.prod(shape_of(source))))
    # Index 0 is for positions where the mask is false.
    elements = F.cat((F.new_zeros(elements, (call.size, 1)), elements), 1)
    return F.where(chosen, F.gather(elements, 1, F.where(chosen, F.cumsum(chosen, 1), 0)), whole)


@rule("embedded")
def embedded(call: BatchedCall) -> Any:
    """Look up rows in the weights; weights that differ between samples are concatenated."""
    F, (at, weight), attrs = call.F, call.inputs, call.attrs
    if not isinstance(weight, Lanes):
        return call.apply(at.value, weight, **attrs)
    rows, width = weight.shape
    numbers = call.numbers(len(shape_of(at))) * rows
    flat = F.reshape(weight.value, (call.size * rows, width))
    places = call.aligned(at, len(shape_of(at))) + numbers
    padding = attrs["padding_idx"]
    if padding < 0:
        return call.apply(places, flat, **attrs)
    rest = {**attrs, "padding_idx": -1}
    padded = F.unsqueeze(F.eq(call.lifted(at), padding), -1)
    return F.where(padded, call.apply(places, flat.detach(), **rest), call.apply(places, flat, **rest))


@rule("searchsorted")
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
