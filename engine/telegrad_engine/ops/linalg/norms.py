"""Vector norms, sums without NaN, renormalization, and distances between rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...dtypes import bool_, float32, int64, is_floating, promote_types, widened
from ...errors import DTypeMismatch, InvalidOperation, ShapeMismatch
from ...schema.declaration import (
    FUNCTION,
    INPLACE,
    INTERNAL,
    LINALG_FUNCTION,
    MAY_ALIAS,
    METHOD,
    METHOD_OF_TORCH,
    NN_FUNCTION,
    blocks,
    scratch,
)
from ...schema.memory_admission import BLOCK, reserved
from ...schema.op import composite, op
from ...schema.parameters import (
    Array,
    Bool,
    Int,
    Ints,
    Number,
    NumberOrStr,
    OptionalDType,
    OptionalInt,
    OptionalInts,
    OptionalNumber,
    Str,
)
from ...schema.promotion import FLOAT32, FLOAT32_ON_CUDA, RESULT_FLOAT32_ON_CUDA
from ...shapes import Spec, broadcast_axes, broadcast_shapes, reduced_shape, wrap_dim, wrap_dims
from ..batching.rules import PADDED
from ..blocked_loops import reduce_in_blocks
from ..guards import check_dtype, kernel_name
from ..math.reduction import accumulated_dtype, axes, reduced, restore, sum_rule
from .solving import check_floating


def _check_norm_dtype(input: Any, dtype: Any) -> None:
    check_floating(input, "linalg.vector_norm")
    if dtype is None:
        return
    if not dtype.is_floating_point:
        raise DTypeMismatch(
            f"linalg.vector_norm: dtype should be floating point or complex, but got {dtype.kernel_name}"
        )
    if promote_types(input.dtype, dtype.numpy) != dtype.numpy:
        kind = kernel_name(input)
        raise DTypeMismatch(
            f"linalg.vector_norm: the dtype of the input ({kind}) should be convertible without narrowing to the "
            f"specified dtype ({dtype.kernel_name})"
        )


def _vector_norm_rule(input: Any, ord: float, dim: Any, keepdim: bool, dtype: Any) -> Spec:
    _check_norm_dtype(input, dtype)
    spec = reduced(input, dim, keepdim, None if dtype is None else dtype.numpy)
    if (ord < 0 or ord == math.inf) and math.prod(input.shape) == 0:
        text = f"linalg.vector_norm cannot compute the {float(ord):g} norm on "
        if not dim:
            raise InvalidOperation(f"{text}an empty tensor because the operation does not have an identity")
        for d in wrap_dims(dim, len(input.shape)):
            if input.shape[d] == 0:
                raise InvalidOperation(
                    f"{text}the dimension {d}because this dimension is empty and the operation does not have an "
                    "identity"
                )
    return spec


@op(_vector_norm_rule, variants=LINALG_FUNCTION, memory=blocks(2.0), autocast=RESULT_FLOAT32_ON_CUDA)
def vector_norm(
    xp: Any,
    input: Array,
    ord: Number = 2,
    dim: OptionalInts = None,
    keepdim: Bool = False,
    *,
    dtype: OptionalDType = None,
) -> Any:
    """The ``ord``-norm over ``dim``, or of all elements: ``sum(abs(input) ** ord) ** (1 / ord)``."""

    def term(x: Any) -> Any:
        return widened(x if dtype is None else x.astype(dtype.numpy))

    return norm_of(xp, term, (input,), ord, axes(dim, input.ndim), keepdim)


vector_norm.without_gradient(lambda ord: ("input",) if ord == 0 else ())  # it only counts


def norm_of(
    xp: Any, term: Callable[..., Any], arrays: Sequence[Any], ord: float, axis: tuple[int, ...], keepdim: bool = False
) -> Any:
    """The ``ord``-norm of ``term(*arrays)`` over ``axis``; large arrays are processed in blocks."""

    def reduced(reduction: Any, size: Callable[[Any], Any]) -> Any:
        return reduce_in_blocks(xp, reduction, lambda *parts: size(term(*parts)), arrays, axis, keepdim)

    if ord == 2:
        return xp.sqrt(reduced(xp.sum, lambda x: x * x))
    if ord == 0:
        return reduced(xp.sum, lambda x: (x != 0).astype(x.dtype))
    if math.isinf(ord):
        return reduced(xp.max if ord > 0 else xp.min, xp.abs)
    if ord == 1:
        return reduced(xp.sum, xp.abs)
    return reduced(xp.sum, lambda x: xp.abs(x) ** float(ord)) ** (1 / ord)


def vector_norm_grad(F: Any, grad: Any, input: Any, result: Any, ord: float, dim: Any, keepdim: bool) -> Any:
    """sgn(x) (abs(x) / norm) ** (ord - 1) times the gradient, and 0 where that is undefined."""
    if ord == 0:
        return None
    kept = reduced_shape(tuple(input.shape), wrap_dims(dim, len(input.shape)), True)
    grad, norm = F.reshape(grad, kept), F.reshape(result, kept)
    if ord == 1:
        return grad * F.sgn(input)
    if math.isinf(ord):
        hits = F.logical_or(F.eq(F.abs(input), norm), F.isnan(input))
        return F.div(grad, F.sum(hits, dim, True)) * F.sgn(input) * hits
    if ord < 1:
        powers = F.where(input == 0, 0.0, F.pow(F.abs(input), ord - 1))
        return F.sgn(input) * powers * grad * F.pow(norm, 1 - ord)
    if ord == 2:
        return grad * F.where(norm == 0, 0.0, input / norm)
    powers = F.sgn(input) * F.pow(F.abs(input), ord - 1) if ord < 2 else input * F.pow(F.abs(input), ord - 2)
    return powers * F.where(norm == 0, 0.0, grad / F.pow(norm, ord - 1))


vector_norm.derivative(input=vector_norm_grad)


@composite(autocast=FLOAT32_ON_CUDA)
def norm(
    F: Any,
    input: Array,
    p: NumberOrStr = "fro",
    dim: OptionalInts = None,
    keepdim: Bool = False,
    *,
    dtype: OptionalDType = None,
) -> Any:
    """The ``p``-norm over ``dim``, or of all elements; "fro" is the 2-norm, "nuc" that of singular values."""
    if isinstance(p, str) and (p != "fro" or (dim is not None and len(dim) > 2)):
        over = tuple(range(input.ndim)) if dim is None else dim
        return F.linalg_matrix_norm(input, p, over, keepdim, dtype=dtype)
    return F.linalg_vector_norm(input, 2 if p in ("fro", None) else p, dim, keepdim, dtype=dtype)


@composite(key="norm", variants=LINALG_FUNCTION)
def linalg_norm(
    F: Any,
    input: Array,
    ord: OptionalNumber = None,
    dim: OptionalInts = None,
    keepdim: Bool = False,
    *,
    dtype: OptionalDType = None,
) -> Any:
    """The vector norm over one dimension, the matrix norm over two; without ``ord`` the root of the sum of squares."""
    if ord is None:
        return F.linalg_vector_norm(input, 2, dim, keepdim, dtype=dtype)
    over = _norm_dims(input, dim)
    if len(over) == 2:
        return F.linalg_matrix_norm(input, ord, over, keepdim, dtype=dtype)
    return F.linalg_vector_norm(input, ord, dim, keepdim, dtype=dtype)


def _norm_dims(input: Any, dim: Any) -> tuple[int, ...]:
    """The one or two dimensions of a norm with an ``ord``: ``dim``, or all dimensions."""
    if dim is not None and len(dim) not in (1, 2):
        raise ShapeMismatch(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dim)}")
    if dim is None and input.ndim not in (1, 2):
        raise ShapeMismatch(
            f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {input.ndim}D."
        )
    return tuple(range(input.ndim)) if dim is None else tuple(dim)


@composite(key="norm.word", variants=LINALG_FUNCTION)
def linalg_norm_word(
    F: Any, input: Array, ord: Str, dim: OptionalInts = None, keepdim: Bool = False, *, dtype: OptionalDType = None
) -> Any:
    """The matrix norm that a word names: "fro" or "nuc"."""
    return F.linalg_matrix_norm(input, ord, _norm_dims(input, dim), keepdim, dtype=dtype)


# Sums and means without NaN, and counts of non-zero elements ---------------------------------------------


def _nansum_rule(input: Any, dim: Any, keepdim: bool, dtype: Any) -> Spec:
    wrap_dims(dim, len(input.shape), in_turn=True)
    return sum_rule(input, dim, keepdim, dtype=dtype)


@op(_nansum_rule, memory=blocks(3.0))
def nansum(
    xp: Any, input: Array, dim: OptionalInts = None, keepdim: Bool = False, *, dtype: OptionalDType = None
) -> Any:
    """The sum over ``dim``, or over everything, NaN counting as 0."""
    kind = accumulated_dtype(input, dtype)

    def present(x: Any) -> Any:
        return widened(xp.where(x == x, x, xp.zeros((), x.dtype)).astype(kind))

    return reduce_in_blocks(xp, xp.sum, present, (input,), axes(dim, input.ndim), keepdim)


nansum.derivative(
    input=lambda F, grad, input, dim, keepdim: (
        restore(F, grad, tuple(input.shape), dim, keepdim) * F.logical_not(F.isnan(input))
    )
)


@composite()
def nanmean(
    F: Any, input: Array, dim: OptionalInts = None, keepdim: Bool = False, *, dtype: OptionalDType = None
) -> Any:
    """The mean over ``dim``, or over everything, of what is not NaN."""
    if not input.is_floating_point():
        raise DTypeMismatch(
            "nanmean(): expected input to have floating point or complex dtype but got " + input.dtype.kernel_name
        )
    present = F.sum(F.logical_not(F.isnan(input)), dim, keepdim)
    if dtype is None and input.dtype.itemsize == 2:
        # The sum may overflow these dtypes even if the mean does not.
        return F.to(F.div(F.nansum(input, dim, keepdim, dtype=float32), present), dtype=input.dtype)
    return F.div(F.nansum(input, dim, keepdim, dtype=dtype), present)


@op(lambda input, dim: reduced(input, dim, False, int64.numpy), memory=blocks(2.0))
def count_nonzero(xp: Any, input: Array, dim: OptionalInts = None) -> Any:
    """How many elements are not zero over ``dim``, or in all."""
    count = partial(xp.sum, dtype=int64.numpy)
    return reduce_in_blocks(xp, count, lambda x: x != 0, (input,), axes(dim, input.ndim))


# Sums to a size, renormalization and special matrices ---------------------------------------------------


@composite(variants=METHOD_OF_TORCH, memory=MAY_ALIAS)
def sum_to_size(F: Any, input: Array, size: Ints) -> Any:
    """The sums over the dimensions that ``size`` lacks or has as 1, so that the result is of that size."""
    shape = tuple(input.shape)
    try:
        fits = broadcast_shapes(tuple(size), shape) == shape
    except ShapeMismatch:
        fits = False
    if not fits:
        raise ShapeMismatch(f"size {{{list(size)}}} is not expandable to size {{{list(shape)}}}.")
    lead = len(shape) - len(size)
    result = F.sum(input, tuple(range(lead))) if lead else input
    lone = tuple(d for d, n in enumerate(size) if n == 1 and shape[lead + d] != 1)
    return F.sum(result, lone, True) if lone else result


@composite(variants=FUNCTION | METHOD | INPLACE, autocast=FLOAT32_ON_CUDA)
def renorm(F: Any, input: Array, p: Number, dim: Int, maxnorm: Number) -> Any:
    """The slices along ``dim`` whose p-norm is above ``maxnorm`` scaled down to it."""
    if not p > 0:
        raise InvalidOperation("renorm: non-positive-norm not supported")
    if input.ndim < 2:
        raise ShapeMismatch(f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions")
    if not maxnorm >= 0:
        raise InvalidOperation(f"renorm: expected maxnorm to be >= 0 but got {maxnorm:g}")
    axis = wrap_dim(dim, input.ndim)
    others = tuple(d for d in range(input.ndim) if d != axis)
    above = F.linalg_vector_norm(input.detach(), p, others, True) > maxnorm
    reduced = F.where(above, input, 0.0)
    norms = F.linalg_vector_norm(reduced, p, others, True)
    return F.where(above, reduced * (maxnorm / (norms + 1e-7)), input)


@composite()
def diagflat(F: Any, input: Array, offset: Int = 0) -> Any:
    """A matrix with the elements, flattened, on a diagonal."""
    return F.diag(F.reshape(input, (-1,)), offset)


@composite(variants=FUNCTION)
def vander(F: Any, x: Array, N: OptionalInt = None, increasing: Bool = False) -> Any:
    """Vandermonde's matrix: the powers N - 1 to 0 of the elements of a vector, or 0 to N - 1 if ``increasing``."""
    if x.ndim != 1:
        raise ShapeMismatch("x must be a one-dimensional tensor.")
    columns = x.shape[0] if N is None else N
    if columns < 0:
        raise InvalidOperation("N must be non-negative.")
    if not columns:
        return F.new_zeros(x, (x.shape[0], 0))
    base = x.to(dtype=int64) if x.dtype is bool_ else x
    powers = F.arange(columns) if increasing else F.arange(columns - 1, -1, -1)
    return F.pow(F.unsqueeze(base, -1), powers)


# Pairwise distances between the rows of two matrices or of one -------------------------------------------

MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")


@composite(variants=FUNCTION, autocast=FLOAT32)
def cdist(F: Any, x1: Array, x2: Array, p: Number = 2.0, compute_mode: Str = MODES[0]) -> Any:
    """The ``p``-norms of the differences of every row of ``x1`` and every row of ``x2``: (…, rows, rows).

    Every mode computes them from the differences, which is the most accurate way.
    """
    for name, x in (("X1", x1), ("X2", x2)):
        if x.ndim < 2:
            raise ShapeMismatch(f"cdist only supports at least 2D tensors, {name} got: {x.ndim}D")
    for name, x in (("X1", x1), ("X2", x2)):
        if not x.is_floating_point():
            raise InvalidOperation(f"cdist only supports floating-point dtypes, {name} got: {kernel_name(x)}")
    if x1.shape[-1] != x2.shape[-1]:
        raise ShapeMismatch(f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    if not p >= 0:
        raise InvalidOperation("cdist only supports non-negative p values")
    if compute_mode not in MODES:
        raise InvalidOperation(f"{compute_mode} is not a valid value for compute_mode")
    check_dtype(x2, x1.dtype)
    if _differences(x1, x2) * x1.dtype.itemsize > BLOCK:
        return F.cdist_in_blocks(x1, x2, p)
    return F.linalg_vector_norm(F.unsqueeze(x1, -2) - F.unsqueeze(x2, -3), p, (-1,))


def _differences(x1: Any, x2: Any) -> int:
    """The total number of elements in the differences of all pairs of rows."""
    batch = broadcast_shapes(tuple(x1.shape[:-2]), tuple(x2.shape[:-2]))
    return math.prod((*batch, x1.shape[-2], x2.shape[-2], x1.shape[-1]))


def _pairs_rule(x1: Any, x2: Any) -> Spec:
    if min(len(x1.shape), len(x2.shape)) < 2 or x1.shape[-1] != x2.shape[-1] or not x1.shape[-1]:
        shapes = f"{list(x1.shape)} and {list(x2.shape)}"
        raise ShapeMismatch(f"cdist_in_blocks(): rows must be of one length, and not empty, but got {shapes}")
    if x1.dtype != x2.dtype or not is_floating(x1.dtype):
        raise DTypeMismatch("cdist_in_blocks(): both inputs must have one floating point dtype")
    batch = broadcast_shapes(tuple(x1.shape[:-2]), tuple(x2.shape[:-2]))
    return Spec((*batch, x1.shape[-2], x2.shape[-2]), x1.dtype)


def _block_bytes(x1: Any, x2: Any) -> int:
    """The bytes of the differences that are computed at once: those of a block, or of a single pair."""
    itemsize = max(x1.dtype.itemsize, 4)
    return int(itemsize * min(_differences(x1, x2), max(BLOCK // itemsize, x1.shape[-1])))


@op(
    _pairs_rule,
    variants=INTERNAL,
    node="CdistBackward0",
    memory=scratch(lambda x1, x2: 4 * _block_bytes(x1, x2) + 3 * _pairs_rule(x1, x2).size * max(x1.dtype.itemsize, 4)),
    batching=PADDED,
)
def cdist_in_blocks(xp: Any, x1: Array, x2: Array, p: Number) -> Any:
    """``cdist`` of so many rows that not all differences are computed at once."""
    rows, columns = x1[..., None, :], x2[..., None, :, :]
    return norm_of(xp, lambda x, y: widened(x - y), (rows, columns), p, (max(rows.ndim, columns.ndim) - 1,))


@cdist_in_blocks.joint_derivative
def _pairs_grads(F: Any, grad: Any, needs: Any, x1: Any, x2: Any, result: Any, p: float) -> Any:
    """The gradients of the norms of the differences, summed where a row was broadcast."""
    arrays = [F.unsqueeze(x, dim) for x, dim in ((x1, -2), (x2, -3), (grad, -1), (result, -1))]
    repeated = [broadcast_axes(tuple(x.shape), (*result.shape, x1.shape[-1])) for x in arrays[:2]]
    if p == 0:
        sums = [F.zeros_like(x) for x in arrays[:2]]
    elif F.xp is None:
        slopes = vector_norm_grad(F, arrays[2], arrays[0] - arrays[1], arrays[3], p, (-1,), True)
        sums = [F.sum(slopes, axis, True) if axis else slopes for axis in repeated]
    else:
        with reserved(4 * _block_bytes(x1, x2)):
            sums = [
                _sum_slopes(F, arrays, p, axis) if need else None for axis, need in zip(repeated, needs, strict=True)
            ]
    by_row, by_column = sums
    return (
        F.reshape(by_row, tuple(x1.shape)) if needs[0] else None,
        -F.reshape(by_column, tuple(x2.shape)) if needs[1] else None,
    )


def _sum_slopes(F: Any, arrays: Any, p: float, axis: tuple[int, ...]) -> Any:
    """The gradient of the norm for each difference, summed over ``axis`` in blocks."""

    def slopes(x: Any, y: Any, grad: Any, norm: Any) -> Any:
        return vector_norm_grad(F, grad[..., :1], x - y, norm[..., :1], p, (-1,), True)

    return reduce_in_blocks(F.xp, F.xp.sum, slopes, arrays, axis, True, whole=1)


@composite(variants=FUNCTION | NN_FUNCTION, autocast=FLOAT32_ON_CUDA)
def pdist(F: Any, input: Array, p: Number = 2.0) -> Any:
    """The ``p``-norms of the differences of every two rows of (N, M): N (N - 1) / 2 of them, those of row 0 first."""
    if input.dim() != 2:
        raise ShapeMismatch(f"pdist only supports 2D tensors, got: {input.dim()}D")
    if not input.is_floating_point():
        raise DTypeMismatch("pdist only supports floating-point dtypes")
    if not p >= 0:
        raise InvalidOperation("pdist only supports non-negative p values")
    first, second = F.unbind(F.triu_indices(input.shape[0], input.shape[0], 1))
    differences = F.index_select(input, 0, first) - F.index_select(input, 0, second)
    return F.linalg_vector_norm(differences, p, (-1,))
