"""Quantiles, with NaNs or without."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..dtypes import float32, float64, int64
from ..errors import DTypeMismatch, InvalidOperation, ShapeMismatch
from ..schema.op import op
from ..schema.parameters import Array, Bool, Operand, OptionalInt, Str
from ..shapes import Spec, is_array, reduced_shape, wrap_dim

INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantile_rule(
    input: Any, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Spec:
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
    """The rows that quantiles are taken of: the sizes apart from ``dim``."""
    return () if dim is None or not input_shape else reduced_shape(input_shape, (dim % len(input_shape),), False)


def _rows(F: Any, input: Any, dim: int | None) -> Any:
    return F.reshape(input, (-1,)) if dim is None or not input.shape else F.movedim(input, dim, -1)


def _quantile_hidden(input: Any, q: Any, dim: int | None = None, **_: Any) -> tuple[Spec, Spec]:
    spec = Spec((*_lead(input.shape, dim), math.prod(q.shape) if is_array(q) else 1), int64.numpy)
    return spec, spec


def _ungraded(interpolation: str = "linear", **_: Any) -> tuple[str, ...]:
    return () if interpolation == "linear" else ("q",)  # it chooses


@op(
    _quantile_rule,
    nondifferentiable_inputs=_ungraded,
    hidden=("lower", "upper"),
    hidden_rule=_quantile_hidden,
    scratch=4.0,
)
def quantile(
    xp: Any,
    input: Array,
    q: Operand,
    dim: OptionalInt = None,
    keepdim: Bool = False,
    *,
    interpolation: Str = "linear",
) -> Any:
    """The values below which the parts ``q`` of the elements are, between neighbours as ``interpolation`` says."""

    def ranks(rows: Any, order: Any, places: Any) -> Any:
        last = xp.take_along_axis(rows, order[..., -1:], axis=-1)
        # A NaN comes last and is the answer, whatever is asked.
        return xp.where(xp.isnan(last), rows.shape[-1] - 1, places * (rows.shape[-1] - 1))

    return _quantiles(xp, input, q, dim, keepdim, interpolation, ranks)


def _quantiles(
    xp: Any, input: Any, q: Any, dim: int | None, keepdim: bool, interpolation: str, find_ranks: Callable[..., Any]
) -> tuple[Any, Any, Any]:
    """The elements of the ranks that ``find_ranks`` says, or what is between them, and where the two neighbours are."""
    places = xp.reshape(xp.asarray(q, input.dtype), (-1,))
    if not xp.holds(xp.all((places >= 0) & (places <= 1)), True):
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
    shape = _quantile_rule(input, q, dim, keepdim).shape
    return xp.reshape(xp.moveaxis(result, -1, 0), shape).astype(input.dtype), lower, upper


def _by_row(F: Any, grad: Any, lower: Any) -> Any:
    """The gradient laid out as the indices are: a row of quantiles for every row of elements."""
    *rows, count = lower.shape
    return F.movedim(F.reshape(grad, (count, *rows)), 0, -1)


def _spread(
    F: Any, grad: Any, q: Any, last: Any, lower: Any, upper: Any, input_shape: Any, dim: int | None, interpolation: str
) -> Any:
    """The gradient by its shares to the two neighbours; ``last`` is the rank of the largest element of each row."""
    grad = _by_row(F, grad, lower)
    n = math.prod(input_shape) if dim is None or not input_shape else input_shape[dim]
    spread = F.new_zeros(grad, (*_lead(input_shape, dim), n))
    if interpolation in ("linear", "midpoint"):
        ranks = (F.reshape(q, (-1,)) if is_array(q) else F.new_full(grad, (1,), q)) * last
        weight = ranks - F.floor(ranks) if interpolation == "linear" else 0.5
        spread = F.scatter_add(spread, -1, upper, grad * weight)
        grad = grad * (1 - weight)
    spread = F.scatter_add(spread, -1, lower, grad)
    return F.reshape(spread, input_shape) if dim is None or not input_shape else F.movedim(spread, -1, dim)


def _slopes(F: Any, grad: Any, rows: Any, last: Any, lower: Any, upper: Any) -> Any:
    """The gradient of ``q``: how steep the way between the neighbours is."""
    span = F.gather(rows, -1, upper) - F.gather(rows, -1, lower)
    return F.where(F.eq(lower, upper), 0.0, _by_row(F, grad, lower) * (span * last))  # a NaN's span is one too


def _quantile_grad(
    F: Any, grad: Any, q: Any, lower: Any, upper: Any, input_shape: Any, dim: int | None, interpolation: str
) -> Any:
    n = math.prod(input_shape) if dim is None or not input_shape else input_shape[dim]
    return _spread(F, grad, q, n - 1, lower, upper, input_shape, dim, interpolation)


def _quantile_q_grad(F: Any, grad: Any, input: Any, lower: Any, upper: Any, dim: int | None, interpolation: str) -> Any:
    if _ungraded(interpolation):
        return None
    rows = _rows(F, input, dim)
    return _slopes(F, grad, rows, rows.shape[-1] - 1, lower, upper)


quantile.derivative(input=_quantile_grad, q=_quantile_q_grad)


@op(
    _quantile_rule,
    nondifferentiable_inputs=_ungraded,
    hidden=("lower", "upper"),
    hidden_rule=_quantile_hidden,
    scratch=4.0,
)
def nanquantile(
    xp: Any,
    input: Array,
    q: Operand,
    dim: OptionalInt = None,
    keepdim: Bool = False,
    *,
    interpolation: Str = "linear",
) -> Any:
    """As ``quantile``, of the elements that are no NaN; NaN where there are none."""

    def ranks(rows: Any, order: Any, places: Any) -> Any:
        last = xp.sum(~xp.isnan(rows), axis=-1, keepdims=True) - 1
        return places * xp.maximum(last, 0)

    return _quantiles(xp, input, q, dim, keepdim, interpolation, ranks)


def _last_number(F: Any, input: Any, dim: int | None) -> Any:
    """The rank of the largest element of each row that is no NaN."""
    rows = _rows(F, input, dim)
    there = F.where(F.eq(rows, rows), F.ones_like(rows), 0.0)
    return F.clamp(F.sum(there, (-1,), True) - 1, min=0)


def _nanquantile_grad(
    F: Any, grad: Any, input: Any, q: Any, lower: Any, upper: Any, dim: int | None, interpolation: str
) -> Any:
    last = _last_number(F, input, dim)
    return _spread(F, grad, q, last, lower, upper, tuple(input.shape), dim, interpolation)


def _nanquantile_q_grad(
    F: Any, grad: Any, input: Any, lower: Any, upper: Any, dim: int | None, interpolation: str
) -> Any:
    if _ungraded(interpolation):
        return None
    return _slopes(F, grad, _rows(F, input, dim), _last_number(F, input, dim), lower, upper)


nanquantile.derivative(input=_nanquantile_grad, q=_nanquantile_q_grad)
