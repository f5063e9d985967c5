"""Norms, and reductions that leave out NaN or count."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..dtypes import float32, from_numpy, int64, is_floating, promote_types, widened
from ..errors import DTypeMismatch, InvalidOperation, ShapeMismatch
from ..schema.op import composite, op
from ..schema.parameters import Array, Bool, Number, NumberOrStr, OptionalDType, OptionalInts, OptionalNumber, Str
from ..shapes import Spec, reduced_shape, wrap_dims
from .blocks import reduce_in_blocks
from .reduce import accumulated_dtype, axes, reduced, restore, sum_rule

# Norms ---------------------------------------------------------------------------------------------------


def _check_norm_dtype(input: Any, dtype: Any) -> None:
    kind = from_numpy(input.dtype).kernel_name
    if not is_floating(input.dtype):
        raise DTypeMismatch(f"linalg.vector_norm: Expected a floating point or complex tensor as input. Got {kind}")
    if dtype is None:
        return
    if not dtype.is_floating_point:
        raise DTypeMismatch(
            f"linalg.vector_norm: dtype should be floating point or complex, but got {dtype.kernel_name}"
        )
    if promote_types(input.dtype, dtype.numpy) != dtype.numpy:
        raise DTypeMismatch(
            f"linalg.vector_norm: the dtype of the input ({kind}) should be convertible without narrowing to the "
            f"specified dtype ({dtype.kernel_name})"
        )


def _vector_norm_rule(input: Any, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Spec:
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


def _ungraded(ord: Any = 2, **_: Any) -> tuple[str, ...]:
    return ("input",) if ord == 0 else ()  # it counts


@op(_vector_norm_rule, namespace="torch.linalg", nondifferentiable_inputs=_ungraded, scratch=2.0, blocked=True)
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
    kind = None if dtype is None else dtype.numpy
    return norm_of(
        xp, lambda x: widened(x if kind is None else x.astype(kind)), (input,), ord, axes(dim, input.ndim), keepdim
    )


def norm_of(
    xp: Any, term: Callable[..., Any], arrays: Sequence[Any], ord: float, axis: tuple[int, ...], keepdim: bool = False
) -> Any:
    """The ``ord``-norm of ``term(*arrays)`` over ``axis``; large arrays are taken in blocks."""

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
    """sgn(x) (abs(x) / norm) ** (ord - 1), and 0 where that is undefined."""
    if _ungraded(ord):
        return None
    kept = reduced_shape(tuple(input.shape), wrap_dims(dim, len(input.shape)), True)
    grad, norm = F.reshape(grad, kept), F.reshape(result, kept)
    if ord == 1:
        return grad * F.sgn(input)
    if math.isinf(ord):
        hits = F.eq(F.abs(input), norm)
        return F.div(grad, F.sum(hits, dim, True)) * F.sgn(input) * hits
    if ord < 1:
        powers = F.where(input == 0, 0.0, F.pow(F.abs(input), ord - 1))
        return F.sgn(input) * powers * grad * F.pow(norm, 1 - ord)
    if ord == 2:
        return grad * F.where(norm == 0, 0.0, input / norm)
    powers = F.sgn(input) * F.pow(F.abs(input), ord - 1) if ord < 2 else input * F.pow(F.abs(input), ord - 2)
    return powers * F.where(norm == 0, 0.0, grad / F.pow(norm, ord - 1))


vector_norm.derivative(input=vector_norm_grad)


@composite()
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


@composite(
    key="norm",
    namespace="torch.linalg",
)
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
    _check_norm_dims(input, dim)
    over = tuple(range(input.ndim)) if dim is None else dim
    if len(over) == 2:
        return F.linalg_matrix_norm(input, ord, over, keepdim, dtype=dtype)
    return F.linalg_vector_norm(input, ord, dim, keepdim, dtype=dtype)


def _check_norm_dims(input: Any, dim: Any) -> None:
    if dim is not None and len(dim) not in (1, 2):
        raise ShapeMismatch(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dim)}")
    if dim is None and input.ndim not in (1, 2):
        raise ShapeMismatch(
            f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {input.ndim}D."
        )


@composite(
    key="norm.word",
    namespace="torch.linalg",
)
def linalg_norm_word(
    F: Any, input: Array, ord: Str, dim: OptionalInts = None, keepdim: Bool = False, *, dtype: OptionalDType = None
) -> Any:
    """The matrix norm that a word names: "fro" or "nuc"."""
    _check_norm_dims(input, dim)
    over = tuple(range(input.ndim)) if dim is None else dim
    return F.linalg_matrix_norm(input, ord, over, keepdim, dtype=dtype)


# Without NaN, and counts ---------------------------------------------------------------------------------


def _nansum_rule(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Spec:
    wrap_dims(dim, len(input.shape), in_turn=True)
    return sum_rule(input, dim, keepdim, dtype=dtype)


@op(_nansum_rule, scratch=3.0, blocked=True)
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
        # The sum may be beyond these dtypes where the mean is not.
        return F.to(F.div(F.nansum(input, dim, keepdim, dtype=float32), present), dtype=input.dtype)
    return F.div(F.nansum(input, dim, keepdim, dtype=dtype), present)


@op(lambda input, dim=None: reduced(input, dim, False, int64.numpy), scratch=2.0, blocked=True)
def count_nonzero(xp: Any, input: Array, dim: OptionalInts = None) -> Any:
    """How many elements are not zero over ``dim``, or in all."""
    count = partial(xp.sum, dtype=int64.numpy)
    return reduce_in_blocks(xp, count, lambda x: x != 0, (input,), axes(dim, input.ndim))
