"""Batching rules of what reads images: convolutions, pooling, normalisation of channels, columns of windows."""

from __future__ import annotations

import math
from typing import Any

from .batched_call import BatchedCall, Lanes, shape_of
from .families import rule


def folded(call: BatchedCall, value: Any) -> Any:
    """The tensor with the batch taken into its first dimension."""
    shape = shape_of(value)
    return call.F.reshape(call.lifted(value), (call.size * shape[0], *shape[1:]))


def unfolded(call: BatchedCall, result: Any) -> Any:
    """A result of folded tensors with the batch as a dimension of its own."""
    shape = tuple(result._data.shape)
    return call.F.reshape(result, (call.size, shape[0] // call.size, *shape[1:]))


@rule("convolution")
def convolution(call: BatchedCall) -> Any:
    """The batch becomes part of the images' batch, of the output channels, or of the groups."""
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
    """Each sample is a group of its own, with the channels and weights of that sample."""
    F, size, shape = call.F, call.size, shape_of(x)
    channels = F.reshape(F.transpose(call.lifted(x), 0, 1), (shape[0], size * shape[1], *shape[2:]))
    attrs = {**call.attrs, "groups": call.attrs["groups"] * size}
    result = F.convolution(channels, folded(call, weight), None, **attrs)
    found = tuple(result._data.shape)
    return F.transpose(F.reshape(result, (found[0], size, found[1] // size, *found[2:])), 0, 1)


@rule("average", "largest", "adaptive_largest", "_adaptive_avg_pool2d")
def pooled(call: BatchedCall) -> Any:
    """Windows over the last dimensions: all that is in front of them becomes one dimension of planes."""
    (x,) = call.inputs
    ndim = next(len(call.attrs[n]) for n in ("kernel_size", "output_size") if n in call.attrs)
    shape = shape_of(x)
    planes = call.F.reshape(x.value, (call.size * math.prod(shape[: len(shape) - ndim - 1]), *shape[-ndim - 1 :]))
    return call.apply(planes, **call.attrs)


@rule("functional_unfold", "fold")
def columns(call: BatchedCall) -> Any:
    """One batch of images, or of columns, more."""
    (x,) = call.inputs
    batched = len(shape_of(x)) == (4 if call.op.key == "functional_unfold" else 3)
    return unfolded(call, call.apply(folded(call, x), **call.attrs)) if batched else call.apply(x.value, **call.attrs)


@rule("group_norm")
def group_norm(call: BatchedCall) -> Any:
    """One batch of samples; parameters that differ between samples are applied afterwards."""
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
    """Each sample has channels of its own."""
    F, size, (x, *state) = call.F, call.size, call.inputs
    shape = shape_of(x)
    channels = F.reshape(F.transpose(call.lifted(x), 0, 1), (shape[0], size * shape[1], *shape[2:]))
    state = [None if p is None else F.reshape(call.lifted(p), (-1,)) for p in state]
    result, mean, var = call.apply(channels, *state, training=call.attrs["training"], eps=call.attrs["eps"])
    apart = F.transpose(F.reshape(result, (shape[0], size, shape[1], *shape[2:])), 0, 1)
    return apart, F.reshape(mean, (size, -1)), F.reshape(var, (size, -1))


@rule("multinomial")
def multinomial(call: BatchedCall) -> Any:
    """One more dimension of rows of weights."""
    (x,) = call.inputs
    shape = shape_of(call.inputs[0])
    rows = call.F.reshape(call.lifted(x), (-1, shape[-1]))
    return call.apply(rows, **call.attrs)


@rule("affine_grid")
def affine_grid(call: BatchedCall) -> Any:
    """One more dimension of maps."""
    (theta,) = call.inputs
    n, *sizes = call.attrs["size"]
    return call.apply(folded(call, theta), **{**call.attrs, "size": (call.size * n, *sizes)})


@rule("unpooled")
def unpooled(call: BatchedCall) -> Any:
    """Planes beside planes."""
    ndim = len(call.attrs["sizes"])
    planes = [call.F.reshape(call.lifted(x), (-1, *shape_of(x)[len(shape_of(x)) - ndim - 1 :])) for x in call.inputs]
    return call.apply(*planes, **call.attrs)
