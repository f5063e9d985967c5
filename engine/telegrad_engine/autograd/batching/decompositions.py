"""Batching by decomposition into other ops, and rules for losses, random draws and quantiles."""

from __future__ import annotations

from typing import Any

from ...shapes import broadcast_shapes
from .batched_call import BatchedCall, Lanes, is_tensor, shape_of
from .families import decomposition, rule


@rule("smooth_l1_loss", "huber_losses", "binary_cross_entropy", "binary_cross_entropy_with_logits")
def losses(call: BatchedCall) -> Any:
    """Compute the losses of all elements, then reduce them over each sample."""
    F = call.F
    shapes = [shape_of(x) for x in call.inputs[:2]]
    ndim = max(map(len, shapes))
    inputs = [None if x is None else call.aligned(Lanes(call.lifted(x)), ndim) for x in call.inputs]
    reduction = call.attrs["reduction"]
    found = call.apply(*inputs, **{**call.attrs, "reduction": "none"})
    if reduction == "none" or not ndim:
        return found
    return (F.sum if reduction == "sum" else F.mean)(found, tuple(range(1, ndim + 1)))


@decomposition("squared_errors")
def _squared_errors(F: Any, input: Any, target: Any, reduction: str = "mean") -> Any:
    gaps = input - target
    return (gaps * gaps).mean() if reduction == "mean" else (gaps * gaps).sum()


@decomposition("nll_loss")
def _nll_loss(
    F: Any, input: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean"
) -> Any:
    dim = min(input.dim() - 1, 1)
    counted = target != ignore_index
    classes = F.where(counted, target, 0)
    picked = input.gather(dim, classes.unsqueeze(dim)).squeeze(dim)
    factors = counted.to(dtype=input.dtype) if weight is None else F.where(counted, weight[classes], 0.0)
    found = F.where(counted, -picked * factors, 0.0)
    if reduction == "none":
        return found
    return found.sum() if reduction == "sum" else found.sum() / factors.sum()


@decomposition("masked_fill")
def _masked_fill(F: Any, input: Any, mask: Any, value: Any) -> Any:
    if hasattr(value, "_data"):
        value = value.to(dtype=input.dtype)
        return F.where(mask, value, input)
    return F.where(mask, F.full_like(input, value), input)


@decomposition("prelu")
def _prelu(F: Any, input: Any, weight: Any) -> Any:
    if weight.numel() > 1:
        weight = weight.reshape((-1, *(1,) * max(input.dim() - 2, 0)))
    elif weight.dim():
        weight = weight.reshape(())
    return F.where(input > 0, input, input * weight)


@decomposition("masked_select")
def _masked_select(F: Any, input: Any, mask: Any) -> Any:
    shape = broadcast_shapes(tuple(input.shape), tuple(mask.shape))
    return F.broadcast_to(input, shape)[F.broadcast_to(mask, shape)]


@rule("randperm")
def randperm(call: BatchedCall) -> Any:
    """Draw a permutation for each sample."""
    return call.F.stack([call.apply(**call.attrs) for _ in range(call.size)])


@rule("normal")
def normal(call: BatchedCall) -> Any:
    """Draw for each sample, with its mean and standard deviation."""
    ndim = max(len(shape_of(x)) for x in call.inputs)
    return call.apply(*[call.aligned(Lanes(call.lifted(x)), ndim) if is_tensor(x) else x for x in call.inputs])


@rule("quantile", "nanquantile")
def quantile(call: BatchedCall) -> Any:
    """Compute the quantiles of each sample; NotImplemented if ``q`` differs between samples."""
    F, (x, q), attrs = call.F, call.inputs, dict(call.attrs)
    if isinstance(q, Lanes):
        return NotImplemented
    value, dim = x.value, attrs["dim"]
    ndim = len(x.shape)
    if dim is None or not ndim:
        value, dim = F.reshape(value, (call.size, -1)), 0
    else:
        dim = dim % ndim
    found = call.apply(value, q, **{**attrs, "dim": dim + 1, "keepdim": False if not ndim else attrs["keepdim"]})
    return F.movedim(found, 1, 0) if shape_of(q) else found
