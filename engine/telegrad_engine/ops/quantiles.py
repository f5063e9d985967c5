"""Quantiles, and where values belong in an order."""

from __future__ import annotations

import math
from typing import Any

from ..cases import T, case
from ..dtypes import bool_, float32, float64, from_numpy, int32, int64
from ..errors import DTypeMismatch, IndexOutOfBounds, InvalidOperation, NotImplementedForDType, ShapeMismatch
from ..params import Array, Bool, Operand, OptionalInt, OptionalStr, Str
from ..registry import op
from ..specs import Spec, is_array, reduced_shape, wrap_dim

# Quantiles -----------------------------------------------------------------------------------------------

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


@op(
    _quantile_rule,
    hidden=("lower", "upper"),
    hidden_rule=_quantile_hidden,
    cases=[
        case(T(2, 3), 0.3),
        case(T(5), 1),
        case(T(2, 5), 0.6, 1),
        case(T(3, 4, 2), 0.4, -2, True),
        case(T(2, 3), 0.5, keepdim=True),
        case(T(11), 0.7),
        case(T(2, 5), T(3, values=[0.9, 0.2, 0.5]), 1),
        case(T(2, 5), T(low=0.1, high=0.9), dim=0, keepdim=True),
        case(T(2, 5), T(2, low=0.1, high=0.9), keepdim=True),
        case(T(2, 5), T(0), 1),
        *[case(T(2, 4), 0.4, 1, interpolation=how) for how in (*INTERPOLATIONS, "other")],
        *[case(T(2, 4), T(2, low=0.1, high=0.9), 1, interpolation=how) for how in INTERPOLATIONS],
        case(T(2, 3, values=[[1.0, math.nan, 2.0], [3.0, 1.0, 2.0]]), T(2, values=[0.2, 0.7]), 1),
        case(T(), 0.5),
        case(T(), 0.5, 0, True),
        case(T(0, 3), 0.5),
        case(T(3), 1.5),
        case(T(3), 0.5, 2),
        case(T(3), T(1, 1)),
        case(T(3, dtype="float32"), T(2, dtype="float64", low=0.0, high=1.0)),
    ],
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
    places = xp.reshape(xp.asarray(q, input.dtype), (-1,))
    if not bool(xp.all((places >= 0) & (places <= 1))):
        raise InvalidOperation("quantile() q values must be in the range [0, 1]")
    rows = xp.reshape(input, (-1,)) if dim is None or not input.ndim else xp.moveaxis(input, dim, -1)
    order = xp.argsort(rows, axis=-1, kind="stable")
    last = xp.take_along_axis(rows, order[..., -1:], axis=-1)
    # A NaN comes last and is the answer, whatever is asked.
    ranks = xp.where(xp.isnan(last), rows.shape[-1] - 1, places * (rows.shape[-1] - 1)).astype(input.dtype)
    snap = {"lower": xp.floor, "higher": xp.ceil, "nearest": xp.rint}.get(interpolation)
    ranks = snap(ranks) if snap else ranks
    lower = xp.take_along_axis(order, xp.floor(ranks).astype(int64.numpy), axis=-1)
    upper = xp.take_along_axis(order, xp.ceil(ranks).astype(int64.numpy), axis=-1)
    result = xp.take_along_axis(rows, lower, axis=-1)
    if not snap:
        above = xp.take_along_axis(rows, upper, axis=-1)
        weight = ranks - xp.floor(ranks) if interpolation == "linear" else 0.5
        span = above - result
        result = xp.where(weight < 0.5, result + weight * span, above - (1 - weight) * span)
    shape = _quantile_rule(input, q, dim, keepdim).shape
    return xp.reshape(xp.moveaxis(result, -1, 0), shape).astype(input.dtype), lower, upper


def _by_row(F: Any, grad: Any, lower: Any) -> Any:
    """The gradient laid out as the indices are: a row of quantiles for every row of elements."""
    *rows, count = lower.shape
    return F.movedim(F.reshape(grad, (count, *rows)), 0, -1)


def _quantile_grad(
    F: Any, grad: Any, q: Any, lower: Any, upper: Any, input_shape: Any, dim: int | None, interpolation: str
) -> Any:
    grad = _by_row(F, grad, lower)
    n = math.prod(input_shape) if dim is None or not input_shape else input_shape[dim]
    spread = F.new_zeros(grad, (*_lead(input_shape, dim), n))
    if interpolation in ("linear", "midpoint"):
        ranks = (F.reshape(q, (-1,)) if is_array(q) else F.new_full(grad, (1,), q)) * (n - 1)
        weight = ranks - F.floor(ranks) if interpolation == "linear" else 0.5
        spread = F.scatter_add(spread, -1, upper, grad * weight)
        grad = grad * (1 - weight)
    spread = F.scatter_add(spread, -1, lower, grad)
    return F.reshape(spread, input_shape) if dim is None or not input_shape else F.movedim(spread, -1, dim)


def _quantile_q_grad(F: Any, grad: Any, input: Any, lower: Any, upper: Any, dim: int | None, interpolation: str) -> Any:
    if interpolation != "linear":
        return None
    rows = _rows(F, input, dim)
    span = F.gather(rows, -1, upper) - F.gather(rows, -1, lower)
    slopes = _by_row(F, grad, lower) * (span * (rows.shape[-1] - 1))
    return F.where(F.eq(lower, upper), 0.0, slopes)  # where a row has a NaN, span is one too


quantile.derivative(input=_quantile_grad, q=_quantile_q_grad)

# Searching -----------------------------------------------------------------------------------------------


def _searchsorted_rule(
    sorted_sequence: Any,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Spec:
    name, shape, found = "torch.searchsorted()", sorted_sequence.shape, input.shape if is_array(input) else ()
    if side not in (None, "left", "right"):
        raise InvalidOperation(f"{name}: side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise InvalidOperation(
            f"{name}: side and right can't be set to opposites, got side of left while right was True"
        )
    if len(shape) != 1 and not found:
        raise ShapeMismatch(
            f"{name}: input value can be a scalar only when boundaries tensor dimension is 1, but we got "
            f"boundaries tensor dim({len(shape)}) and input value's dim(0) numel(1)"
        )
    if len(shape) != 1 and shape[:-1] != found[:-1]:
        raise ShapeMismatch(
            f"{name}: boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and "
            f"input value tensor must match, but we got boundaries tensor {list(shape)} and input value tensor "
            f"{list(found)}"
        )
    if sorter is not None and sorter.shape != shape:
        raise ShapeMismatch(
            f"{name}: boundary and sorter must have the same size, but got boundary tensor {list(shape)}"
            f"and got sorter tensor {list(sorter.shape)}"
        )
    if sorter is not None and sorter.dtype != int64.numpy:
        kind = from_numpy(sorter.dtype).kernel_name
        raise DTypeMismatch(f"{name}: sorter must be a tensor of long dtype but got dtype {kind}")
    if sorted_sequence.dtype == bool_.numpy:
        raise NotImplementedForDType("\"searchsorted_out_cpu\" not implemented for 'Bool'")
    return Spec(found, (int32 if out_int32 else int64).numpy)


STEPS = T(4, values=[1.0, 3.0, 3.0, 7.0])


@op(
    _searchsorted_rule,
    method=False,
    cases=[
        case(STEPS, T(2, 3, low=0, high=8)),
        case(STEPS, T(5, values=[3.0, 1.0, 0.0, 9.0, 7.0])),
        case(STEPS, T(5, values=[3.0, 1.0, 0.0, 9.0, 7.0]), right=True),
        case(STEPS, T(2, values=[3.0, 1.0]), side="right"),
        case(STEPS, T(2, values=[3.0, 1.0]), side="left", right=True),
        case(STEPS, T(2), side="other"),
        case(STEPS, 3),
        case(STEPS, T(), out_int32=True),
        case(STEPS, T(2, dtype="int64")),
        case(T(2, 3, values=[[1.0, 2.0, 3.0], [0.0, 0.0, 5.0]]), T(2, 4, low=-1, high=6)),
        case(T(1, 3), T(2, 1)),
        case(T(1, 3), 2.0),
        case(T(3, values=[3.0, 1.0, 2.0]), T(2), sorter=T(3, values=[1, 2, 0], dtype="int64")),
        case(T(3), T(2), sorter=T(2, values=[1, 2], dtype="int64")),
        case(T(3), T(2), sorter=T(3, dtype="float32", constant=True)),
        case(T(3, values=[1.0, 2.0, math.nan]), T(3, values=[math.nan, 2.0, 5.0])),
        case(T(3, dtype="bool"), T(2, dtype="bool")),
        case(T(0), T(2)),
        case(STEPS, T(0)),
    ],
)
def searchsorted(
    xp: Any,
    sorted_sequence: Array,
    input: Operand,
    *,
    out_int32: Bool = False,
    right: Bool = False,
    side: OptionalStr = None,
    sorter: Array = None,
) -> Any:
    """How many elements of each sorted row are below each value (or, with ``right``, not above it)."""
    values = xp.asarray(input)
    n = sorted_sequence.shape[-1]
    if sorter is not None:
        if sorter.size and not 0 <= int(sorter.min()) <= int(sorter.max()) < n:
            raise IndexOutOfBounds("torch.searchsorted(): sorter index out of range")
        sorted_sequence = xp.take_along_axis(sorted_sequence, sorter, axis=-1)
    beyond = xp.greater if right or side == "right" else xp.greater_equal
    low, high = xp.zeros(values.shape, int64.numpy), xp.full(values.shape, n)
    for _ in range(n.bit_length()):  # bisects for all values at once, as rows may differ
        middle = xp.minimum((low + high) // 2, n - 1)
        flat = sorted_sequence.ndim == 1
        found = sorted_sequence[middle] if flat else xp.take_along_axis(sorted_sequence, middle, axis=-1)
        stop = beyond(found, values) | (low >= high)
        low, high = xp.where(stop, low, middle + 1), xp.where(stop, xp.minimum(middle, high), high)
    return low.astype((int32 if out_int32 else int64).numpy)
