"""Batching rules for ops on images: convolution, pooling, normalisation and unfolding."""

from __future__ import annotations

import math
from typing import Any

from .batched_call import BatchedCall, Lanes, shape_of
from .families import rule


def folded(call: BatchedCall, value: Any) -> Any:
    """Return the tensor with the batch merged into its first dimension."""
    shape = shape_of(value)
    return call.F.reshape(call.lifted(value), (call.size * shape[0], *shape[1:]))


def unfolded(call: BatchedCall, result: Any) -> Any:
    """Undo ``folded`` on a result: split the batch off its first dimension."""
    shape = tuple(result._data.shape)
    return call.F.reshape(result, (call.size, shape[0] // call.size, *shape[1:]))


@rule("convolution")
def convolution(call: BatchedCall) -> Any:
    """Merge the batch into the image batch if the weight is the same for all samples, else into the groups."""
    F, (x, weight, bias), attrs = call.F, call.inputs, call.attrs
    shared = None if isinstance(bias, Lanes) else bias
    if not isinstance(weight, Lanes):
        result = unfolded(call, F.convolution(folded(call, x), weight, shared, **attrs))
    else:
        result = _by_groups(call, x, weight)
        if shared is not None:
            result = result + F.reshape(shared, (-1, *(1,) * (len(shape_of(x)) - 2)))
    if isinstance(bias, Lanes):
        result = result + F.reshape(bias.value, (call.size, 1, -1, *(1,) * (len(shape_of(x)) - 2)))
    return result


def _by_groups(call: BatchedCall, x: Any, weight: Lanes) -> Any:
    """Convolve each sample as a separate group, with that sample's channels and weights."""
    F, size, shape = call.F, call.size, shape_of(x)
    channels = F.reshape(F.transpose(call.lifted(x), 0, 1), (shape[0], size * shape[1], *shape[2:]))
    attrs = {**call.attrs, "groups": call.attrs["groups"] * size}
    result = F.convolution(channels, folded(call, weight), None, **attrs)
    found = tuple(result._data.shape)
    return F.transpose(F.reshape(result, (found[0], size, found[1] // size, *found[2:])), 0, 1)


@rule("average", "largest", "adaptive_largest", "_adaptive_avg_pool2d")
def pooled(call: BatchedCall) -> Any:
    """Merge the batch and all dimensions before the channels into one, and pool over the last dimensions."""
    (x,) = call.inputs
    ndim = next(len(call.attrs[n]) for n in ("kernel_size", "output_size") if n in call.attrs)
    shape = shape_of(x)
    planes = call.F.reshape(x.value, (call.size * math.prod(shape[: len(shape) - ndim - 1]), *shape[-ndim - 1 :]))
    return call.apply(planes, **call.attrs)


@rule("functional_unfold", "fold")
def columns(call: BatchedCall) -> Any:
    """Merge the batch into the op's own batch dimension, or use it as that dimension if a sample has none."""
    (x,) = call.inputs
    batched = len(shape_of(x)) == (4 if call.op.key == "functional_unfold" else 3)
    return unfolded(call, call.apply(folded(call, x), **call.attrs)) if batched else call.apply(x.value, **call.attrs)


@rule("group_norm")
def group_norm(call: BatchedCall) -> Any:
    """Merge the batch into the op's own batch dimension; apply per-sample parameters afterwards."""
    x, weight, bias = call.inputs
    attrs = {name: call.attrs[name] for name in ("num_groups", "eps")}
    apart = isinstance(weight, Lanes) or isinstance(bias, Lanes)
    result = unfolded(call, call.apply(folded(call, x), *((None, None) if apart else (weight, bias)), **attrs))
    if not apart:
        return result
    lead = (1, -1, *(1,) * (len(shape_of(x)) - 2))
    if weight is not None:
        result = result * _by_channel(call, weight, lead)
    return result if bias is None else result + _by_channel(call, bias, lead)


def _by_channel(call: BatchedCall, parameter: Any, lead: tuple[int, ...]) -> Any:
    return call.F.reshape(call.lifted(parameter), (call.size, *lead))


@rule("batch_norm_with_moments")
def batch_norm_with_moments(call: BatchedCall) -> Any:
    """Merge the batch into the channels, so that each sample has separate moments."""
    F, size, (x, *state) = call.F, call.size, call.inputs
    shape = shape_of(x)
    channels = F.reshape(F.transpose(call.lifted(x), 0, 1), (shape[0], size * shape[1], *shape[2:]))
    state = [None if p is None else F.reshape(call.lifted(p), (-1,)) for p in state]
    result, mean, var = call.apply(channels, *state, training=call.attrs["training"], eps=call.attrs["eps"])
    apart = F.transpose(F.reshape(result, (shape[0], size, shape[1], *shape[2:])), 0, 1)
    return apart, F.reshape(mean, (size, -1)), F.reshape(var, (size, -1))


@rule("multinomial")
def multinomial(call: BatchedCall) -> Any:
    """Draw for the rows of all samples in one call."""
    (x,) = call.inputs
    shape = shape_of(call.inputs[0])
    rows = call.F.reshape(call.lifted(x), (-1, shape[-1]))
    return call.apply(rows, **call.attrs)


@rule("affine_grid")
def affine_grid(call: BatchedCall) -> Any:
    """Merge the batch into the op's own batch dimension."""
    (theta,) = call.inputs
    n, *sizes = call.attrs["size"]
    return call.apply(folded(call, theta), **{**call.attrs, "size": (call.size * n, *sizes)})


@rule("unpooled")
def unpooled(call: BatchedCall) -> Any:
    """Merge the batch and all dimensions before the channels into one, and unpool over the last dimensions."""
    ndim = len(call.attrs["sizes"])
    planes = [call.F.reshape(call.lifted(x), (-1, *shape_of(x)[len(shape_of(x)) - ndim - 1 :])) for x in call.inputs]
    return call.apply(*planes, **call.attrs)
