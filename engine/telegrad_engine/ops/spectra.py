"""What is defined by singular values: the pseudo-inverse and the norms of matrices."""

from __future__ import annotations

import math
from typing import Any

from ..cases import T, case
from ..dtypes import float32, float64, from_numpy
from ..errors import DTypeMismatch, InvalidOperation, ShapeMismatch
from ..params import Array, Bool, Ints, Number, OptionalDType, OptionalNumber, Str
from ..registry import composite, op
from ..specs import Spec, wrap_dim
from .decompositions import POSITIVE, SQUARE, TALL, WIDE
from .inverses import check_matrix

# The pseudo-inverse -----------------------------------------------------------------------------------


def _pinv_rule(A: Any, *, atol: float | None = None, rtol: float | None = None) -> Spec:
    if len(A.shape) < 2 or A.dtype not in (float32.numpy, float64.numpy):
        raise DTypeMismatch(
            f"linalg.pinv({from_numpy(A.dtype).kernel_name}{{{list(A.shape)}}}): expected a tensor with 2 or more "
            "dimensions of float, double, cfloat or cdouble types"
        )
    *batch, m, n = A.shape
    return Spec((*batch, n, m), A.dtype)


PSEUDO = [
    case(T(values=SQUARE)),
    case(T(values=TALL)),
    case(T(values=WIDE)),
    case(T(values=[TALL, [[1.0, -1.0], [2.0, 0.5], [-1.0, 3.0]]])),
    case(T(0, 2)),
    case(T(2, 3, 0)),
    case(T(3)),
]


@op(
    _pinv_rule,
    namespace="torch.linalg",
    node="LinalgPinvBackward0",
    cases=[
        *PSEUDO,
        case(T(values=[[1.0, 2.0], [2.0, 4.0]])),
        case(T(values=[[3.0, 0.0], [0.0, 0.5]]), atol=1.0),
        case(T(values=[[3.0, 0.0], [0.0, 0.5]]), rtol=0.1),
    ],
)
def pinv(xp: Any, A: Array, *, atol: OptionalNumber = None, rtol: OptionalNumber = None) -> Any:
    """The Moore-Penrose pseudo-inverse; singular values up to ``max(atol, rtol * largest)`` count as zero."""
    if not A.size:
        return xp.zeros(_pinv_rule(A).shape, A.dtype)
    U, S, Vh = xp.linalg.svd(A, full_matrices=False)
    if rtol is None:
        rtol = 0.0 if atol else max(A.shape[-2:]) * float(xp.finfo(A.dtype).eps)
    least = xp.maximum(atol or 0.0, rtol * S[..., :1])
    kept = least < S
    inverses = xp.where(kept, 1 / xp.where(kept, S, 1), 0)
    return (Vh.mT * inverses[..., None, :]) @ U.mT


def _pinv_grad(F: Any, grad: Any, A: Any, result: Any) -> Any:
    """Golub and Pereyra, "The differentiation of pseudo-inverses…" (1973), where the rank is constant."""
    P, left, right = result, grad.mT @ result @ result.mT, result.mT @ result @ grad.mT
    return (left - A @ (P @ left)) + (right - (right @ P) @ A) - P.mT @ grad @ P.mT


pinv.derivative(A=_pinv_grad)


@composite(cases=PSEUDO)
def pinverse(F: Any, input: Array, rcond: Number = 1e-15) -> Any:
    """The Moore-Penrose pseudo-inverse; singular values up to ``rcond`` times the largest count as zero."""
    return F.pinv(input, rtol=rcond)


# Norms ------------------------------------------------------------------------------------------------


def _to_matrices(F: Any, input: Any, dim: tuple[int, ...], dtype: Any) -> Any:
    """``input`` with the dimensions ``dim`` last."""
    name = "linalg.matrix_norm"
    check_matrix(input._data, name)
    if len(dim) != 2:
        raise ShapeMismatch(f"{name}: dim must be a 2-tuple. Got {' '.join(map(str, dim))}")
    axes = tuple(wrap_dim(d, input.ndim) for d in dim)
    if axes[0] == axes[1]:
        raise ShapeMismatch(f"{name}: dims must be different. Got ({dim[0]}, {dim[1]})")
    rest = tuple(i for i in range(input.ndim) if i not in axes)
    return F.permute(input if dtype is None else input.to(dtype), rest + axes)


def _keep(F: Any, result: Any, input: Any, dim: tuple[int, ...], keepdim: bool) -> Any:
    if not keepdim:
        return result
    axes = [wrap_dim(d, input.ndim) for d in dim]
    return F.reshape(result, tuple(1 if i in axes else n for i, n in enumerate(input.shape)))


NORMED = [
    case(T(2, 3)),
    case(T(2, 3, 4), "fro", (0, -1), True),
    case(T(2, 2, values=[[0.0, 0.0], [0.0, 0.0]], constant=True)),
    case(T(0, 3)),
    case(T(values=[TALL, [[1.0, -1.0], [2.0, 0.5], [-1.0, 3.0]]]), ord="nuc"),
    case(T(values=[[3.0, 1.0], [0.5, 2.0]]), "nuc", (1, 0), True),
    case(T(2, 3), dtype="float64"),
    case(T(2, 3), "max"),
    case(T(3)),
    case(T(2, 3), dim=(0, 0)),
    case(T(2, 3), dim=(0, 1, 2)),
    case(T(2, 3), dim=(0, 5)),
]


@composite(namespace="torch.linalg", cases=NORMED)
def matrix_norm(
    F: Any,
    input: Array,
    ord: Str = "fro",
    dim: Ints = (-2, -1),
    keepdim: Bool = False,
    *,
    dtype: OptionalDType = None,
) -> Any:
    """The norm of each matrix: "fro" the root of the sum of squares, "nuc" the sum of the singular values."""
    matrices = _to_matrices(F, input, dim, dtype)
    if ord not in ("fro", "nuc"):
        raise InvalidOperation(f"linalg.matrix_norm: Order {ord} not supported.")
    if ord == "nuc":
        return _keep(F, F.sum(F.svdvals(matrices), (-1,)), input, dim, keepdim)
    squares = F.sum(matrices * matrices, (-2, -1))
    zero = F.eq(squares, 0.0)  # where the slope is 0, not infinite
    return _keep(F, F.where(zero, 0.0, F.sqrt(F.where(zero, 1.0, squares))), input, dim, keepdim)


@composite(
    key="matrix_norm.ord",
    namespace="torch.linalg",
    cases=[
        case(T(values=WIDE), 2),
        case(T(values=[SQUARE, POSITIVE]), -2, keepdim=True),
        *[case(T(2, 3, 4), ord, (0, -1)) for ord in (1, -1, math.inf, -math.inf)],
        case(T(values=[[1.0, 1.0], [2.0, 0.0]]), math.inf),
        case(T(0, 3), -math.inf),
        case(T(0, 3), math.inf),
        case(T(0, 3), 2),
        case(T(0, 3), -2),
        case(T(2, 3), 3),
    ],
)
def matrix_norm_ord(
    F: Any, input: Array, ord: Number, dim: Ints = (-2, -1), keepdim: Bool = False, *, dtype: OptionalDType = None
) -> Any:
    """The norm of each matrix: 2 the largest singular value, 1 the largest sum of a column, inf that of a row.

    With a minus sign it is the smallest.
    """
    matrices = _to_matrices(F, input, dim, dtype)
    if abs(ord) not in (1, 2, math.inf):
        raise InvalidOperation(f"linalg.matrix_norm: Order {ord:g} not supported.")
    summed = -2 if abs(ord) == 1 else -1
    sizes = F.svdvals(matrices) if abs(ord) == 2 else F.sum(F.abs(matrices), (summed,))
    if ord > 0 and not sizes.shape[-1]:
        result = F.new_zeros(sizes, sizes.shape[:-1])
    else:
        result = F.amax(sizes, (-1,)) if ord > 0 else F.amin(sizes, (-1,))
    return _keep(F, result, input, dim, keepdim)
