"""Covariances, histograms, medians and quantiles."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from ...dtypes import bool_, float32, float64, from_numpy, int64
from ...errors import DTypeMismatch, InvalidOperation, ShapeMismatch
from ...schema.declaration import hiding, named, scratch
from ...schema.derivative_plan import Rule
from ...schema.op import composite, op
from ...schema.parameters import Array, Bool, Int, Number, Operand, OptionalInt, OptionalNumbers, Str
from ...schema.promotion import FLOAT32_ON_CPU
from ...shapes import Spec, is_array, reduced_shape, wrap_dim
from ..batching import math_rules
from ..guards import check_floats
from .sorting import pick, pick_rule, route_picked, sort_order


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


def _check_bins(bins: int) -> None:
    if bins <= 0:
        raise InvalidOperation(f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")


def _check_finite(low: float, high: float) -> None:
    if not (math.isfinite(low) and math.isfinite(high)):
        raise InvalidOperation(f"torch.histogramdd: dimension 0's range [{low:g}, {high:g}] is not finite")


def _histc_rule(input: Any, bins: int, min: float, max: float) -> Spec:
    _check_bins(bins)
    if min > max:
        raise InvalidOperation("torch.histc: max must be larger than min")
    check_floats("histogram_cpu", input)
    return Spec((bins,), input.dtype)


@op(_histc_rule, memory=scratch(10.0), may_raise=True)
def histc(xp: Any, input: Array, bins: Int = 100, min: Number = 0, max: Number = 0) -> Any:
    """How many elements lie in each of ``bins`` equal parts of ``min`` to ``max``, by default their own range."""
    flat = xp.reshape(input, (-1,))
    low, high = _range(xp, flat, min, max)
    return _counts(xp, flat, xp.linspace(low, high, bins + 1), None).astype(input.dtype)


def _range(xp: Any, flat: Any, low: float, high: float, margin: float = 1.0) -> tuple[float, float]:
    """The bounds, or the range of the elements if the bounds are equal; a single value is widened by ``margin``."""
    if low == high and flat.shape[0]:
        low, high = float(flat.min()), float(flat.max())
    _check_finite(low, high)
    return (low - margin, high + margin) if low == high else (low, high)


def _counts(xp: Any, flat: Any, edges: Any, weights: Any) -> Any:
    """The number or the total weight of elements in each bin; the last bin includes its upper edge."""
    bins = edges.shape[0] - 1
    inside = (flat >= edges[0]) & (flat <= edges[-1])
    places = xp.clip(xp.searchsorted(edges, flat, side="right") - 1, 0, bins - 1)
    shares = xp.where(inside, 1.0 if weights is None else weights, 0.0)
    return xp.index_add(xp.zeros((bins,), shares.dtype), places, shares)


def _histogram_rule(input: Any, bins: int, range: Any, weight: Any) -> list[Spec]:
    _check_bins(bins)
    if range is not None:
        if len(range) != 2:
            raise InvalidOperation(
                f"torch.histogramdd: for a 1-dimensional histogram range should have 2 elements, but got {len(range)}"
            )
        low, high = range
        _check_finite(low, high)
        if low > high:
            raise InvalidOperation(
                f"torch.histogramdd: min should not exceed max, but got min {low:g} max {high:g} for dimension 0"
            )
    _check_histogram(input, weight)
    return [Spec((bins,), input.dtype), Spec((bins + 1,), input.dtype)]


def _check_histogram(input: Any, weight: Any) -> None:
    check_floats("histogramdd", input)
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


def _histogram(xp: Any, flat: Any, edges: Any, weight: Any, density: bool) -> tuple[Any, Any]:
    """The counts, weights or densities of the bins, and the edges."""
    counts = _counts(xp, flat, edges, None if weight is None else xp.reshape(weight, (-1,)))
    shares = counts / xp.sum(counts) / (edges[1:] - edges[:-1]) if density else counts
    return shares.astype(flat.dtype), edges


@op(_histogram_rule, results=named("hist", "bin_edges"), memory=scratch(10.0), may_raise=True)
def histogram(
    xp: Any,
    input: Array,
    bins: Int = 100,
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
    return _histogram(xp, flat, edges, weight, density)


def _histogram_edges_rule(input: Any, bins: Any, weight: Any) -> list[Spec]:
    if bins.dtype != input.dtype:
        raise DTypeMismatch(
            "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input with dtype "
            f"{from_numpy(input.dtype).c_name} and bins for dimension 0 with dtype {from_numpy(bins.dtype).c_name}"
        )
    if len(bins.shape) != 1:
        raise ShapeMismatch(
            f"torch.histogramdd: bins tensor should have one dimension, but got {len(bins.shape)} dimensions in the "
            "bins tensor for dimension 0"
        )
    if not bins.shape[0]:
        raise ShapeMismatch(
            "torch.histogramdd: bins tensor should have at least 1 element, but got 0 elements in the bins tensor for "
            "dimension 0"
        )
    _check_histogram(input, weight)
    return [Spec((bins.shape[0] - 1,), input.dtype), Spec(bins.shape, bins.dtype)]


@op(_histogram_edges_rule, key="histogram.edges", results=named("hist", "bin_edges"), memory=scratch(10.0))
def histogram_edges(xp: Any, input: Array, bins: Array, *, density: Bool = False, weight: Array = None) -> Any:
    """How many elements, or what weight of them, lie between neighbouring edges, and these."""
    return _histogram(xp, xp.reshape(input, (-1,)), bins.copy(), weight, density)


# Medians without NaNs ------------------------------------------------------------------------------------


@composite()
def nanmedian(F: Any, input: Array) -> Any:
    """The median of the elements that are no NaN; NaN where there are none."""
    if not input.dtype.is_floating_point or not input.numel():
        return F.median(input)
    values, _ = F.nanmedian_dim(F.reshape(input, (-1,)), 0)
    return values


@op(
    partial(pick_rule, "median", "median_out"),
    key="nanmedian.dim",
    node="NanmedianBackward1",
    results=named("values", "indices"),
    memory=scratch(2.5),
)
def nanmedian_dim(xp: Any, input: Array, dim: Int, keepdim: Bool = False) -> Any:
    """The median along ``dim`` of the elements that are no NaN, and its index."""
    order = sort_order(xp, input, dim)
    if not input.ndim:
        return input, order
    numbers = input.shape[dim] - xp.sum(input != input, axis=dim, keepdims=True)
    return pick(xp, input, order, xp.where(numbers > 0, (numbers - 1) // 2, 0), dim, keepdim)


nanmedian_dim.derivative(input=route_picked)


@composite()
def msort(F: Any, input: Array) -> Any:
    """The elements in ascending order along the first dimension."""
    return F.sort(input, 0)[0]


# Quantiles with and without NaNs -------------------------------------------------------------------------

INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantile_rule(input: Any, q: Any, dim: int | None, keepdim: bool, interpolation: str) -> Spec:
    if not is_array(q) and not 0 <= q <= 1:
        raise InvalidOperation(f"quantile() q must be in the range [0, 1] but got {q:g}")
    if not math.prod(input.shape):
        raise InvalidOperation("quantile() input tensor must be non-empty")
    if is_array(q) and len(q.shape) > 1:
        raise ShapeMismatch("quantile() q must be a scalar or 1D tensor")
    if input.dtype not in (float32.numpy, float64.numpy):
        raise DTypeMismatch("quantile() input tensor must be either float or double dtype")
    if is_array(q) and q.dtype != input.dtype:
        raise DTypeMismatch("quantile() q tensor must be same dtype as the input tensor")
    if interpolation not in INTERPOLATIONS:
        raise InvalidOperation(
            "quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, "
            f"but got {interpolation}"
        )
    ndim = len(input.shape)
    dims = tuple(range(ndim)) if dim is None else (wrap_dim(dim, ndim),)
    lead = q.shape if is_array(q) else ()
    return Spec((*lead, *reduced_shape(input.shape, dims, keepdim)), input.dtype)


def _lead(input_shape: Any, dim: int | None) -> tuple[int, ...]:
    """The shape of the rows that quantiles are computed over: the sizes without ``dim``."""
    return () if dim is None or not input_shape else reduced_shape(input_shape, (dim % len(input_shape),), False)


def _rows(F: Any, input: Any, dim: int | None) -> Any:
    return F.reshape(input, (-1,)) if dim is None or not input.shape else F.movedim(input, dim, -1)


def _quantile_hidden(input: Any, q: Any, dim: int | None) -> tuple[Spec, Spec]:
    spec = Spec((*_lead(input.shape, dim), math.prod(q.shape) if is_array(q) else 1), int64.numpy)
    return spec, spec


_quantile_op = op(
    _quantile_rule,
    results=hiding("lower", "upper", rule=_quantile_hidden),
    memory=scratch(4.0),
    may_raise=True,
    autocast=FLOAT32_ON_CPU,
    batching=math_rules.quantile,
)


@_quantile_op
def quantile(
    xp: Any, input: Array, q: Operand, dim: OptionalInt = None, keepdim: Bool = False, *, interpolation: Str = "linear"
) -> Any:
    """The values below which the parts ``q`` of the elements are, between neighbours as ``interpolation`` says."""

    def ranks(rows: Any, order: Any, places: Any) -> Any:
        last = xp.take_along_axis(rows, order[..., -1:], axis=-1)
        # NaN sorts last; a row that has one returns NaN for every q.
        return xp.where(xp.isnan(last), rows.shape[-1] - 1, places * (rows.shape[-1] - 1))

    return _quantiles(xp, input, q, dim, keepdim, interpolation, ranks)


@_quantile_op
def nanquantile(
    xp: Any, input: Array, q: Operand, dim: OptionalInt = None, keepdim: Bool = False, *, interpolation: Str = "linear"
) -> Any:
    """As ``quantile``, of the elements that are no NaN; NaN where there are none."""

    def ranks(rows: Any, order: Any, places: Any) -> Any:
        last = xp.sum(~xp.isnan(rows), axis=-1, keepdims=True) - 1
        return places * xp.maximum(last, 0)

    return _quantiles(xp, input, q, dim, keepdim, interpolation, ranks)


def _quantiles(
    xp: Any, input: Any, q: Any, dim: int | None, keepdim: bool, interpolation: str, find_ranks: Callable[..., Any]
) -> tuple[Any, Any, Any]:
    """The quantiles at the ranks that ``find_ranks`` returns, and the indices of their lower and upper neighbours."""
    places = xp.reshape(xp.asarray(q, input.dtype), (-1,))
    if xp.is_invalid(xp.any(~((places >= 0) & (places <= 1)))):
        raise InvalidOperation("quantile() q values must be in the range [0, 1]")
    rows = xp.reshape(input, (-1,)) if dim is None or not input.ndim else xp.moveaxis(input, dim, -1)
    order = xp.argsort(rows, axis=-1, kind="stable")
    ranks = find_ranks(rows, order, places).astype(input.dtype)
    snap = {"lower": xp.floor, "higher": xp.ceil, "nearest": xp.rint}.get(interpolation)
    ranks = snap(ranks) if snap else ranks
    lower = xp.take_along_axis(order, xp.floor(ranks).astype(int64.numpy), axis=-1)
    upper = xp.take_along_axis(order, xp.ceil(ranks).astype(int64.numpy), axis=-1)
    result = xp.take_along_axis(rows, lower, axis=-1)
    if not snap:
        above = xp.take_along_axis(rows, upper, axis=-1)
        weight = ranks - xp.floor(ranks) if interpolation == "linear" else xp.full((), 0.5, input.dtype)
        span = above - result
        result = xp.where(weight < 0.5, result + weight * span, above - (1 - weight) * span)
    shape = _quantile_rule(input, q, dim, keepdim, interpolation).shape
    return xp.reshape(xp.moveaxis(result, -1, 0), shape).astype(input.dtype), lower, upper


def _by_row(F: Any, grad: Any, lower: Any) -> Any:
    """Reshape the gradient like the indices: a row of quantiles for each row of elements."""
    *rows, count = lower.shape
    return F.movedim(F.reshape(grad, (count, *rows)), 0, -1)


def _row_size(input_shape: Any, dim: int | None) -> Any:
    return math.prod(input_shape) if dim is None or not input_shape else input_shape[dim]


def _spread(
    F: Any, grad: Any, q: Any, last: Any, lower: Any, upper: Any, input_shape: Any, dim: int | None, interpolation: str
) -> Any:
    """Split the gradient between the two neighbours; ``last`` is the rank of the largest element of each row."""
    grad = _by_row(F, grad, lower)
    spread = F.new_zeros(grad, (*_lead(input_shape, dim), _row_size(input_shape, dim)))
    if interpolation in ("linear", "midpoint"):
        ranks = (F.reshape(q, (-1,)) if is_array(q) else F.new_full(grad, (1,), q)) * last
        weight = ranks - F.floor(ranks) if interpolation == "linear" else 0.5
        spread = F.scatter_add(spread, -1, upper, grad * weight)
        grad = grad * (1 - weight)
    spread = F.scatter_add(spread, -1, lower, grad)
    return F.reshape(spread, input_shape) if dim is None or not input_shape else F.movedim(spread, -1, dim)


def _slopes(last: Callable[[Any, Any], Any]) -> Rule:
    """The derivative for ``q``: the slope between the two neighbours, where ``last(F, rows)`` is the largest rank."""

    def derivative(F: Any, grad: Any, input: Any, lower: Any, upper: Any, dim: int | None, interpolation: str) -> Any:
        if interpolation != "linear":
            return None
        rows = _rows(F, input, dim)
        span = F.gather(rows, -1, upper) - F.gather(rows, -1, lower)
        # A NaN's span is NaN.
        return F.where(F.eq(lower, upper), 0.0, _by_row(F, grad, lower) * (span * last(F, rows)))

    return derivative


def _last_number(F: Any, rows: Any) -> Any:
    """The rank of the largest element of each row that is not NaN."""
    there = F.where(F.eq(rows, rows), F.ones_like(rows), 0.0)
    return F.clamp(F.sum(there, (-1,), True) - 1, min=0)


quantile.derivative(
    input=lambda F, grad, q, lower, upper, input_shape, dim, interpolation: _spread(
        F, grad, q, _row_size(input_shape, dim) - 1, lower, upper, input_shape, dim, interpolation
    ),
    q=_slopes(lambda F, rows: rows.shape[-1] - 1),
)
nanquantile.derivative(
    input=lambda F, grad, input, q, lower, upper, dim, interpolation: _spread(
        F, grad, q, _last_number(F, _rows(F, input, dim)), lower, upper, tuple(input.shape), dim, interpolation
    ),
    q=_slopes(_last_number),
)
for _selecting in (quantile, nanquantile):
    # Unless it is linear, the result does not vary with ``q`` between two elements.
    _selecting.without_gradient(lambda interpolation: () if interpolation == "linear" else ("q",))
