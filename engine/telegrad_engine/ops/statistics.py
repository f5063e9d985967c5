"""Covariances, histograms and the median of what is no NaN."""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import FLOATING, bool_, from_numpy
from ..errors import DTypeMismatch, InvalidOperation, NotImplementedForDType, ShapeMismatch
from ..schema.op import composite, op
from ..schema.parameters import Array, Bool, Int, Number, OptionalNumbers
from ..shapes import Spec
from .sorting import _order, _pick, _pick_rule, route_picked

# Covariances ---------------------------------------------------------------------------------------------


def _check_covariance(name: str, input: Any) -> None:
    if input.ndim > 2:
        raise ShapeMismatch(
            f"{name}(): expected input to have two or fewer dimensions but got an input with {input.ndim} dimensions"
        )
    if input.dtype is bool_:
        raise DTypeMismatch(f"{name}(): bool dtype is not supported for input")


def _check_weights(name: str, weights: Any, count: int) -> None:
    if weights.ndim > 1:
        raise ShapeMismatch(
            f"cov(): expected {name} to have one or fewer dimensions but got {name} with {weights.ndim} dimensions"
        )
    if weights.numel() != count:
        raise ShapeMismatch(
            f"cov(): expected {name} to have the same numel as there are observations in the input but got "
            f"{weights.numel()} != {count}"
        )


@composite()
def cov(F: Any, input: Array, *, correction: Int = 1, fweights: Array = None, aweights: Array = None) -> Any:
    """The covariances of the rows, whose columns are observations that may be weighted by count or importance."""
    _check_covariance("cov", input)
    rows = F.reshape(input, (1, -1)) if input.ndim < 2 else input
    count = rows.shape[1]
    weights = None
    if fweights is not None:
        _check_weights("fweights", fweights, count)
        if fweights.dtype.is_floating_point or fweights.dtype is bool_:
            raise DTypeMismatch("cov(): expected fweights to have integral dtype but got fweights with dtype "
                                f"{fweights.dtype.c_name}")  # fmt: skip
        weights = fweights
    if aweights is not None:
        _check_weights("aweights", aweights, count)
        if not aweights.dtype.is_floating_point:
            raise DTypeMismatch("cov(): expected aweights to have floating point dtype but got aweights with dtype "
                                f"{aweights.dtype.c_name}")  # fmt: skip
        weights = aweights if weights is None else weights * aweights
    total = count if weights is None else F.sum(weights)
    mean = F.sum(rows if weights is None else rows * weights, 1, True) / total
    centred = rows - mean
    if weights is None:
        norm = max(count - correction, 0)
    elif aweights is None or not correction:
        norm = F.clamp_min(total - correction, 0)
    else:
        norm = F.clamp_min(total - correction * F.sum(weights * aweights) / total, 0)
    products = F.mm(centred, F.t(centred if weights is None else centred * weights))
    result = F.true_divide(products, norm)
    return F.squeeze(result)


@composite()
def corrcoef(F: Any, input: Array) -> Any:
    """Pearson's correlation coefficients of the rows, clipped to [-1, 1]."""
    _check_covariance("corrcoef", input)
    covariance = F.cov(input)
    if covariance.ndim == 0:
        return covariance / covariance
    deviation = F.sqrt(F.diag(covariance))
    scaled = covariance / F.reshape(deviation, (-1, 1)) / deviation
    return F.clip(scaled, -1, 1)


# Histograms ----------------------------------------------------------------------------------------------


def _histc_rule(input: Any, bins: int = 100, min: float = 0, max: float = 0) -> Spec:
    if bins <= 0:
        raise InvalidOperation(f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")
    if min > max:
        raise InvalidOperation("torch.histc: max must be larger than min")
    if input.dtype not in FLOATING:
        raise NotImplementedForDType(f"\"histogram_cpu\" not implemented for '{from_numpy(input.dtype).kernel_name}'")
    return Spec((bins,), input.dtype)


@op(_histc_rule, scratch=10.0)
def histc(xp: Any, input: Array, bins: Int = 100, min: Number = 0, max: Number = 0) -> Any:
    """How many elements lie in each of ``bins`` equal parts of ``min`` to ``max``, by default their own range."""
    flat = xp.reshape(input, (-1,))
    low, high = _range(xp, flat, min, max)
    return _counts(xp, flat, xp.linspace(low, high, bins + 1), None).astype(input.dtype)


def _range(xp: Any, flat: Any, low: float, high: float, margin: float = 1.0) -> tuple[float, float]:
    """The bounds, or those of the elements where the bounds are equal; ``margin`` around them if there is one value."""
    if low == high and flat.shape[0]:
        low, high = float(flat.min()), float(flat.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise InvalidOperation(f"torch.histogramdd: dimension 0's range [{low:g}, {high:g}] is not finite")
    return (low - margin, high + margin) if low == high else (low, high)


def _counts(xp: Any, flat: Any, edges: Any, weights: Any) -> Any:
    """The number, or the weight, of the elements between neighbouring edges, the last one included."""
    bins = edges.shape[0] - 1
    inside = (flat >= edges[0]) & (flat <= edges[-1])
    places = xp.clip(xp.searchsorted(edges, flat, side="right") - 1, 0, bins - 1)
    shares = xp.where(inside, 1.0 if weights is None else weights, 0.0)
    return xp.index_add(xp.zeros((bins,), shares.dtype), places, shares)


def _histogram_rule(
    input: Any, bins: int, *, range: Any = None, weight: Any = None, density: bool = False
) -> list[Spec]:
    if bins <= 0:
        raise InvalidOperation(f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")
    if range is not None:
        if len(range) != 2:
            raise InvalidOperation(
                f"torch.histogramdd: for a 1-dimensional histogram range should have 2 elements, but got {len(range)}"
            )
        low, high = range
        if not (math.isfinite(low) and math.isfinite(high)):
            raise InvalidOperation(f"torch.histogramdd: dimension 0's range [{low:g}, {high:g}] is not finite")
        if low > high:
            raise InvalidOperation(
                f"torch.histogramdd: min should not exceed max, but got min {low:g} max {high:g} for dimension 0"
            )
    _check_histogram(input, weight)
    return [Spec((bins,), input.dtype), Spec((bins + 1,), input.dtype)]


def _check_histogram(input: Any, weight: Any) -> None:
    if input.dtype not in FLOATING:
        raise NotImplementedForDType(f"\"histogramdd\" not implemented for '{from_numpy(input.dtype).kernel_name}'")
    if weight is not None and tuple(weight.shape) != tuple(input.shape):
        raise ShapeMismatch(
            "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor "
            f"excluding its innermost dimension, but got input with shape {[math.prod(input.shape), 1]} and weight "
            f"with shape {list(weight.shape)}"
        )
    if weight is not None and weight.dtype != input.dtype:
        raise DTypeMismatch(
            "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should have the same "
            f"dtype, but got input({from_numpy(input.dtype).c_name}), and weight({from_numpy(weight.dtype).c_name})"
        )


def _density(xp: Any, counts: Any, edges: Any) -> Any:
    return counts / xp.sum(counts) / (edges[1:] - edges[:-1])


@op(_histogram_rule, outputs=("hist", "bin_edges"), scratch=10.0)
def histogram(
    xp: Any,
    input: Array,
    bins: Int,
    *,
    range: OptionalNumbers = None,
    weight: Array = None,
    density: Bool = False,
) -> Any:
    """How many elements, or what weight of them, lie in each of ``bins`` equal parts of a range, and its edges."""
    flat = xp.reshape(input, (-1,))
    low, high = (0, 0) if range is None else range
    low, high = (0, 1) if range is None and not flat.shape[0] else _range(xp, flat, low, high, 0.5)
    edges = xp.linspace(low, high, bins + 1).astype(input.dtype)
    counts = _counts(xp, flat, edges, None if weight is None else xp.reshape(weight, (-1,)))
    return (_density(xp, counts, edges) if density else counts).astype(input.dtype), edges


def _histogram_edges_rule(input: Any, bins: Any, *, density: bool = False, weight: Any = None) -> list[Spec]:
    if bins.dtype != input.dtype:
        raise DTypeMismatch(
            "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input with dtype "
            f"{from_numpy(input.dtype).c_name} and bins for dimension 0 with dtype {from_numpy(bins.dtype).c_name}"
        )
    if len(bins.shape) != 1:
        raise ShapeMismatch("torch.histogramdd: bins tensor should have one dimension, but got "
                            f"{len(bins.shape)} dimensions in the bins tensor for dimension 0")  # fmt: skip
    if not bins.shape[0]:
        raise ShapeMismatch("torch.histogramdd: bins tensor should have at least 1 element, but got 0 elements in the "
                            "bins tensor for dimension 0")  # fmt: skip
    _check_histogram(input, weight)
    return [Spec((bins.shape[0] - 1,), input.dtype), Spec(bins.shape, bins.dtype)]


@op(_histogram_edges_rule, key="histogram.edges", outputs=("hist", "bin_edges"), scratch=10.0)
def histogram_edges(xp: Any, input: Array, bins: Array, *, density: Bool = False, weight: Array = None) -> Any:
    """How many elements, or what weight of them, lie between neighbouring edges, and these."""
    counts = _counts(xp, xp.reshape(input, (-1,)), bins, None if weight is None else xp.reshape(weight, (-1,)))
    return (_density(xp, counts, bins) if density else counts).astype(input.dtype), bins.copy()


# The median of numbers -----------------------------------------------------------------------------------


@composite()
def nanmedian(F: Any, input: Array) -> Any:
    """The median of the elements that are no NaN; NaN where there are none."""
    if not input.dtype.is_floating_point or not input.numel():
        return F.median(input)
    values, _ = F.nanmedian_dim(F.reshape(input, (-1,)), 0)
    return values


@op(
    _pick_rule("median", "median_out"),
    key="nanmedian.dim",
    outputs=("values", "indices"),
    node="NanmedianBackward1",
    scratch=2.5,
)
def nanmedian_dim(xp: Any, input: Array, dim: Int, keepdim: Bool = False) -> Any:
    """The median along ``dim`` of the elements that are no NaN, and its index."""
    order = _order(xp, input, dim)
    if not input.ndim:
        return input, order
    numbers = input.shape[dim] - xp.sum(input != input, axis=dim, keepdims=True)
    return _pick(xp, input, order, xp.where(numbers > 0, (numbers - 1) // 2, 0), dim, keepdim)


nanmedian_dim.derivative(input=route_picked)


@composite()
def msort(F: Any, input: Array) -> Any:
    """The elements in ascending order along the first dimension."""
    return F.sort(input, 0)[0]
