"""Batching rules of neural-network ops: convolution, pooling, normalization, losses and sequences."""

from __future__ import annotations

import math
from typing import Any

from .rules import BatchedCall, BatchedValue, decomposition, rule, shape_of


def folded(call: BatchedCall, value: Any) -> Any:
    """Return the tensor with the batch merged into its first dimension."""
    shape = shape_of(value)
    return call.F.reshape(call.lifted(value), (call.size * shape[0], *shape[1:]))


def unfolded(call: BatchedCall, result: Any) -> Any:
    """Undo ``folded`` on a result: split the batch off its first dimension."""
    shape = tuple(result._data.shape)
    return call.F.reshape(result, (call.size, shape[0] // call.size, *shape[1:]))


@rule
def convolution(call: BatchedCall) -> Any:
    """Merge the batch into the image batch if the weight is the same for all samples, else into the groups."""
    F, (x, weight, bias), attrs = call.F, call.inputs, call.attrs
    shared = None if isinstance(bias, BatchedValue) else bias
    if not isinstance(weight, BatchedValue):
        result = unfolded(call, F.convolution(folded(call, x), weight, shared, **attrs))
    else:
        result = _by_groups(call, x, weight)
        if shared is not None:
            result = result + F.reshape(shared, (-1, *(1,) * (len(shape_of(x)) - 2)))
    if isinstance(bias, BatchedValue):
        result = result + F.reshape(bias.value, (call.size, 1, -1, *(1,) * (len(shape_of(x)) - 2)))
    return result


def _by_groups(call: BatchedCall, x: Any, weight: BatchedValue) -> Any:
    """Convolve each sample as a separate group, with that sample's channels and weights."""
    F, size, shape = call.F, call.size, shape_of(x)
    channels = F.reshape(F.transpose(call.lifted(x), 0, 1), (shape[0], size * shape[1], *shape[2:]))
    attrs = {**call.attrs, "groups": call.attrs["groups"] * size}
    result = F.convolution(channels, folded(call, weight), None, **attrs)
    found = tuple(result._data.shape)
    return F.transpose(F.reshape(result, (found[0], size, found[1] // size, *found[2:])), 0, 1)


@rule
def pooled(call: BatchedCall) -> Any:
    """Merge the batch and all dimensions before the channels into one, and pool over the last dimensions."""
    (x,) = call.inputs
    ndim = next(len(call.attrs[n]) for n in ("kernel_size", "output_size") if n in call.attrs)
    shape = shape_of(x)
    planes = call.F.reshape(x.value, (call.size * math.prod(shape[: len(shape) - ndim - 1]), *shape[-ndim - 1 :]))
    return call.apply(planes, **call.attrs)


@rule
def unpooled(call: BatchedCall) -> Any:
    """Merge the batch and all dimensions before the channels into one, and unpool over the last dimensions."""
    ndim = len(call.attrs["sizes"])
    planes = [call.F.reshape(call.lifted(x), (-1, *shape_of(x)[len(shape_of(x)) - ndim - 1 :])) for x in call.inputs]
    return call.apply(*planes, **call.attrs)


@rule
def columns(call: BatchedCall) -> Any:
    """Merge the batch into the op's own batch dimension, or use it as that dimension if a sample has none."""
    (x,) = call.inputs
    batched = len(shape_of(x)) == (4 if call.op.key == "functional_unfold" else 3)
    return call.apply(folded(call, x) if batched else x.value, **call.attrs)


@rule
def affine_grid(call: BatchedCall) -> Any:
    """Merge the batch into the op's own batch dimension."""
    (theta,) = call.inputs
    n, *sizes = call.attrs["size"]
    return call.apply(folded(call, theta), **{**call.attrs, "size": (call.size * n, *sizes)})


@rule
def group_norm(call: BatchedCall) -> Any:
    """Merge the batch into the op's own batch dimension; apply per-sample parameters afterwards."""
    x, weight, bias = call.inputs
    attrs = {name: call.attrs[name] for name in ("num_groups", "eps")}
    apart = isinstance(weight, BatchedValue) or isinstance(bias, BatchedValue)
    result = unfolded(call, call.apply(folded(call, x), *((None, None) if apart else (weight, bias)), **attrs))
    if not apart:
        return result
    lead = (1, -1, *(1,) * (len(shape_of(x)) - 2))
    if weight is not None:
        result = result * _by_channel(call, weight, lead)
    return result if bias is None else result + _by_channel(call, bias, lead)


def _by_channel(call: BatchedCall, parameter: Any, lead: tuple[int, ...]) -> Any:
    return call.F.reshape(call.lifted(parameter), (call.size, *lead))


@rule
def layer_norm(call: BatchedCall) -> Any:
    """Normalise over the last dimensions; apply per-sample parameters afterwards."""
    x, *parameters = call.inputs
    attrs = {name: call.attrs[name] for name in ("normalized_shape", "eps")}
    if isinstance(x, BatchedValue) and not any(isinstance(p, BatchedValue) for p in parameters):
        return call.apply(x.value, *parameters, **attrs)
    ndim = len(shape_of(x))
    result = call.apply(call.lifted(x), *[None] * len(parameters), **attrs)
    weight, bias = (*parameters, None)[:2]
    if weight is not None:
        result = result * call.aligned(weight, ndim)
    return result if bias is None else result + call.aligned(bias, ndim)


@rule
def batch_norm_with_moments(call: BatchedCall) -> Any:
    """Merge the batch into the channels, so that each sample has separate moments."""
    F, size, (x, *state) = call.F, call.size, call.inputs
    shape = shape_of(x)
    channels = F.reshape(F.transpose(call.lifted(x), 0, 1), (shape[0], size * shape[1], *shape[2:]))
    state = [None if p is None else F.reshape(call.lifted(p), (-1,)) for p in state]
    result, mean, var = call.apply(channels, *state, training=call.attrs["training"], eps=call.attrs["eps"])
    apart = F.transpose(F.reshape(result, (shape[0], size, shape[1], *shape[2:])), 0, 1)
    return apart, F.reshape(mean, (size, -1)), F.reshape(var, (size, -1))


@rule
def embedded(call: BatchedCall) -> Any:
    """Look up rows in the weights; weights that differ between samples are concatenated."""
    F, (at, weight), attrs = call.F, call.inputs, call.attrs
    if not isinstance(weight, BatchedValue):
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


@decomposition
def prelu(F: Any, input: Any, weight: Any) -> Any:
    """Multiply by the channel's weight where the input is not positive."""
    if weight.numel() > 1:
        weight = weight.reshape((-1, *(1,) * max(input.dim() - 2, 0)))
    elif weight.dim():
        weight = weight.reshape(())
    return F.where(input > 0, input, input * weight)


@rule
def losses(call: BatchedCall) -> Any:
    """Compute the losses of all elements, then reduce them over each sample."""
    F = call.F
    shapes = [shape_of(x) for x in call.inputs[:2]]
    ndim = max(map(len, shapes))
    inputs = [None if x is None else call.aligned(BatchedValue(call.lifted(x)), ndim) for x in call.inputs]
    reduction = call.attrs["reduction"]
    found = call.apply(*inputs, **{**call.attrs, "reduction": "none"})
    if reduction == "none" or not ndim:
        return found
    return (F.sum if reduction == "sum" else F.mean)(found, tuple(range(1, ndim + 1)))


@decomposition
def squared_errors(F: Any, input: Any, target: Any, reduction: str = "mean") -> Any:
    """Square the differences, and reduce them."""
    gaps = input - target
    return (gaps * gaps).mean() if reduction == "mean" else (gaps * gaps).sum()


@decomposition
def nll_loss(
    F: Any, input: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean"
) -> Any:
    """Pick each target's element, weight it, and reduce."""
    dim = min(input.dim() - 1, 1)
    counted = target != ignore_index
    classes = F.where(counted, target, 0)
    picked = input.gather(dim, classes.unsqueeze(dim)).squeeze(dim)
    factors = counted.to(dtype=input.dtype) if weight is None else F.where(counted, weight[classes], 0.0)
    found = F.where(counted, -picked * factors, 0.0)
    if reduction == "none":
        return found
    return found.sum() if reduction == "sum" else found.sum() / factors.sum()


@rule
def recurrent_layer(call: BatchedCall) -> Any:
    """Merge the batch into the batch of sequences; NotImplemented if the weights differ between samples."""
    count = 3 if call.op.key == "lstm_layer" else 2
    sequences, parameters = call.inputs[:count], call.inputs[count:]
    if any(isinstance(p, BatchedValue) for p in parameters):
        return NotImplemented
    F, size = call.F, call.size

    def beside(value: Any) -> Any:
        batch = len(shape_of(value)) - 2
        moved = F.movedim(call.lifted(value), 0, batch)
        return F.flatten(moved, batch, batch + 1)

    def apart(result: Any, shape: tuple[int, ...]) -> Any:
        batch = len(shape) - 2
        return F.movedim(F.reshape(result, (*shape[:batch], size, *shape[batch:])), batch, 0)

    results = call.apply(*map(beside, sequences), *parameters, **call.attrs)
    results = results if isinstance(results, (list, tuple)) else [results]
    return [apart(result, spec.shape) for result, spec in zip(results, call.specs, strict=True)]


@rule
def ctc_losses(call: BatchedCall) -> Any:
    """Merge the batch into the batch of sequences; targets in one vector are concatenated."""
    F, (log_probs, targets, *lengths) = call.F, call.inputs
    steps, batch, classes = shape_of(log_probs)
    beside = F.reshape(F.movedim(call.lifted(log_probs), 0, 1), (steps, call.size * batch, classes))
    return call.apply(beside, folded(call, targets), *[folded(call, x) for x in lengths], **call.attrs)


@rule
def bag_places(call: BatchedCall) -> Any:
    """Apply the op to the whole batch of numbers; NotImplemented if the offsets differ between samples."""
    numbers, offsets = call.inputs
    return (
        NotImplemented if isinstance(offsets, BatchedValue) else call.apply(call.lifted(numbers), offsets, **call.attrs)
    )
