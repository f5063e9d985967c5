"""Pseudo-inverses, least squares, norms and ranks of matrices, and torch's older names of matrix functions."""

from __future__ import annotations

import math
from typing import Any

from ...dtypes import float32, float64, int64
from ...errors import DataDependentShape, DTypeMismatch, InvalidOperation, LinAlgError, ShapeMismatch
from ...schema.declaration import LINALG_FUNCTION, Results, named
from ...schema.op import composite
from ...schema.parameters import (
    Array,
    Bool,
    Int,
    Ints,
    Number,
    NumberOrStr,
    OptionalDType,
    OptionalNumber,
    OptionalStr,
    Str,
)
from ...schema.promotion import FLOAT32_ON_CPU, RESULT_FLOAT32_ON_CUDA
from ...shapes import Spec, broadcast_shapes, reduced_shape, wrap_dim, wrap_dims
from ..guards import kernel_name, no_kernel
from .decompositions import thin_svd
from .solving import (
    check_dims,
    check_floating,
    check_matrix,
    check_square,
    factorization,
    is_vector,
    kind_names,
    square_rule,
)

EPSILON = {"float32": 2.0**-23, "float64": 2.0**-52}


def _pinv_rule(input: Any, hermitian: bool) -> Spec:
    if hermitian:
        check_square(input, "linalg.eigh")
    if len(input.shape) < 2 or input.dtype not in (float32.numpy, float64.numpy):
        raise DTypeMismatch(
            f"linalg.pinv({kernel_name(input)}{{{list(input.shape)}}}): expected a tensor with 2 or "
            "more dimensions of float, double, cfloat or cdouble types"
        )
    *batch, m, n = input.shape
    return Spec((*batch, n, m), input.dtype)


@factorization(_pinv_rule)
def pinv(
    xp: Any, input: Array, *, atol: OptionalNumber = None, rtol: OptionalNumber = None, hermitian: Bool = False
) -> Any:
    """The Moore-Penrose pseudo-inverse; singular values up to ``max(atol, rtol * largest)`` count as zero.

    For a ``hermitian`` matrix, only the lower triangle is read.
    """
    if not input.size:
        return xp.zeros(input.mT.shape, input.dtype)
    if hermitian:
        input = xp.tril(input) + xp.tril(input, -1).mT
    U, S, Vh = thin_svd(xp, input)
    if rtol is None:
        rtol = 0.0 if atol else max(input.shape[-2:]) * float(xp.finfo(input.dtype).eps)
    least = xp.maximum(atol or 0.0, rtol * S[..., :1])
    kept = least < S
    inverses = xp.where(kept, 1 / xp.where(kept, S, 1), 0)
    return (Vh.mT * inverses[..., None, :]) @ U.mT


def pinv_grad(F: Any, grad: Any, input: Any, result: Any) -> Any:
    """Golub and Pereyra, "The differentiation of pseudo-inverses…" (1973), for a constant rank."""
    P, left, right = result, grad.mT @ result @ result.mT, result.mT @ result @ grad.mT
    return (left - input @ (P @ left)) + (right - (right @ P) @ input) - P.mT @ grad @ P.mT


pinv.derivative(input=pinv_grad)


@composite(key="pinv.rcond", variants=LINALG_FUNCTION)
def pinv_rcond(F: Any, input: Array, rcond: Number, hermitian: Bool = False) -> Any:
    """The pseudo-inverse by the older name of ``rtol``."""
    return F.linalg_pinv(input, rtol=rcond, hermitian=hermitian)


# Least squares: the solution of overdetermined and underdetermined linear equations -----------------------

LSTSQ = "torch.linalg.lstsq"
DRIVERS = ("gels", "gelsy", "gelsd", "gelss")
"""LAPACK's drivers. Here all use the SVD and find the same solution, but return different extra results."""


def _check_lstsq(A: Any, b: Any, driver: str) -> None:
    if len(A.shape) < 2:
        raise ShapeMismatch(f"{LSTSQ}: input must have at least 2 dimensions.")
    if not b.shape:
        raise ShapeMismatch(f"{LSTSQ}: other must have at least 1 dimension.")
    if A.dtype != b.dtype:
        kinds = kind_names(A, b)
        raise DTypeMismatch(
            f"{LSTSQ}: Expected input and other to have the same dtype, but got input's dtype {kinds[0]} and other's "
            f"dtype {kinds[1]}"
        )
    if not 0 <= len(A.shape) - len(b.shape) <= 1:
        raise ShapeMismatch(
            f"{LSTSQ}: input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) <= 1"
        )
    rows = -1 if is_vector(A.shape, b.shape) else -2
    if b.shape[rows] != A.shape[-2]:
        raise ShapeMismatch(f"{LSTSQ}: input.size(-2) should match other.size({rows})")
    check_matrix(A, LSTSQ)
    if driver not in DRIVERS:
        raise InvalidOperation(f"{LSTSQ}: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)")


def _lstsq_rule(input: Any, b: Any, driver: str | None) -> list[Spec]:
    driver = driver or "gelsy"
    _check_lstsq(input, b, driver)
    *batch, m, n = input.shape
    columns = () if is_vector(input.shape, b.shape) else b.shape[-1:]
    batch = list(broadcast_shapes(tuple(batch), tuple(b.shape[: len(b.shape) - 1 - len(columns)])))
    over = m > n and driver != "gelsy"
    if over and driver != "gels" and isinstance(input, Spec):
        raise DataDependentShape("the shape of lstsq's residuals depends on the rank of the input")
    by_values = driver in ("gelsd", "gelss")
    return [
        Spec((*batch, n, *columns), input.dtype),
        Spec((*batch, *columns) if over else (0,), input.dtype),
        Spec((0,) if driver == "gels" else tuple(batch), int64.numpy),
        Spec((*batch, min(m, n)) if by_values else (0,), input.dtype),
    ]


@factorization(
    _lstsq_rule,
    results=Results(("solution", "residuals", "rank", "singular_values"), constants=("singular_values",)),
    autocast=FLOAT32_ON_CPU,
)
def lstsq(xp: Any, input: Array, b: Array, rcond: OptionalNumber = None, *, driver: OptionalStr = None) -> Any:
    """The X of smallest norm that minimises the norm of ``input @ X - b``.

    Also returns the squared residuals, the ranks and the singular values, each empty if ``driver`` (gelsy by default)
    does not compute it. Singular values up to ``rcond`` times the largest count as zero.
    """
    driver = driver or "gelsy"
    right = b[..., None] if is_vector(input.shape, b.shape) else b
    m, n = input.shape[-2:]
    U, S, Vh = thin_svd(xp, input)
    if rcond is None:
        rcond = max(m, n) * float(xp.finfo(input.dtype).eps)
    kept = (0 if driver == "gels" else rcond * S[..., :1]) < S
    rank = xp.sum(kept, axis=-1)
    inverses = xp.where(kept, 1 / xp.where(kept, S, 1), 0)
    solution = Vh.mT @ (inverses[..., None] * (U.mT @ right))
    empty = xp.zeros((0,), input.dtype)
    left = empty
    if m > n and (driver == "gels" or (driver != "gelsy" and bool(xp.all(rank == n)))):
        left = xp.sum((right - input @ solution) ** 2, axis=-2)
    if right is not b:
        solution, left = solution[..., 0], left[..., 0] if left is not empty else left
    values = S if driver in ("gelsd", "gelss") else empty
    return solution, left, xp.zeros((0,), int64.numpy) if driver == "gels" else rank, values


@lstsq.joint_derivative
def _lstsq_grad(F: Any, grads: Any, needs: Any, input: Any, b: Any, solution: Any) -> Any:
    """The gradients of pinv(input) @ b; those of the residuals treat the solution as constant."""
    vector = is_vector(input.shape, b.shape)
    grad, left = grads[0], grads[1]
    if vector:
        b, solution = F.unsqueeze(b, -1), F.unsqueeze(solution, -1)
        grad = None if grad is None else F.unsqueeze(grad, -1)
        left = None if left is None else F.unsqueeze(left, -1)
    towards_input, towards_b = F.zeros_like(input), F.zeros_like(b)
    if grad is not None:
        inverse = F.linalg_pinv(input)
        towards_b = inverse.mT @ grad
        if needs[0]:
            towards_input = pinv_grad(F, grad @ b.mT, input, inverse)
    if left is not None and 0 not in left.shape:
        gap = (b - input @ solution) * (2 * F.unsqueeze(left, -2))
        towards_b = towards_b + gap
        towards_input = towards_input - gap @ solution.mT
    return towards_input, F.squeeze(towards_b, -1) if vector else towards_b


# Norms ------------------------------------------------------------------------------------------------


def _to_matrices(F: Any, input: Any, dim: tuple[int, ...], dtype: Any) -> Any:
    """``input`` with the dimensions ``dim`` moved last."""
    name = "linalg.matrix_norm"
    check_dims(input._data, name)
    check_floating(input._data, name)
    if len(dim) != 2:
        raise ShapeMismatch(f"{name}: dim must be a 2-tuple. Got {' '.join(map(str, dim))}")
    axes = tuple(wrap_dim(d, input.ndim) for d in dim)
    if axes[0] == axes[1]:
        raise ShapeMismatch(f"{name}: dims must be different. Got ({dim[0]}, {dim[1]})")
    rest = tuple(i for i in range(input.ndim) if i not in axes)
    return F.permute(input if dtype is None else input.to(dtype), rest + axes)


def _keep_dims(F: Any, result: Any, input: Any, dim: tuple[int, ...], keepdim: bool) -> Any:
    shape = tuple(input.shape)
    return F.reshape(result, reduced_shape(shape, wrap_dims(dim, len(shape)), True)) if keepdim else result


@composite(variants=LINALG_FUNCTION, autocast=RESULT_FLOAT32_ON_CUDA)
def matrix_norm(
    F: Any, input: Array, ord: Str = "fro", dim: Ints = (-2, -1), keepdim: Bool = False, *, dtype: OptionalDType = None
) -> Any:
    """The norm of each matrix: "fro" the root of the sum of squares, "nuc" the sum of the singular values."""
    matrices = _to_matrices(F, input, dim, dtype)
    if ord not in ("fro", "nuc"):
        raise InvalidOperation(f"linalg.matrix_norm: Order {ord} not supported.")
    nuclear = ord == "nuc"
    norms = F.sum(F.linalg_svdvals(matrices), (-1,)) if nuclear else F.linalg_vector_norm(matrices, 2, (-2, -1))
    return _keep_dims(F, norms, input, dim, keepdim)


@composite(key="matrix_norm.ord", variants=LINALG_FUNCTION, autocast=RESULT_FLOAT32_ON_CUDA)
def matrix_norm_ord(
    F: Any, input: Array, ord: Number, dim: Ints = (-2, -1), keepdim: Bool = False, *, dtype: OptionalDType = None
) -> Any:
    """The norm of each matrix: 2 the largest singular value, 1 the largest sum of a column, inf that of a row.

    A negative ``ord`` gives the smallest instead.
    """
    matrices = _to_matrices(F, input, dim, dtype)
    if abs(ord) not in (1, 2, math.inf):
        raise InvalidOperation(f"linalg.matrix_norm: Order {ord:g} not supported.")
    summed = -2 if abs(ord) == 1 else -1
    sizes = F.linalg_svdvals(matrices) if abs(ord) == 2 else F.sum(F.abs(matrices), (summed,))
    if ord > 0 and not sizes.shape[-1]:
        result = F.new_zeros(sizes, sizes.shape[:-1])
    else:
        result = F.amax(sizes, (-1,)) if ord > 0 else F.amin(sizes, (-1,))
    return _keep_dims(F, result, input, dim, keepdim)


# Rank and condition -----------------------------------------------------------------------------------


@composite(variants=LINALG_FUNCTION, autocast=FLOAT32_ON_CPU)
def matrix_rank(
    F: Any, input: Array, *, atol: OptionalNumber = None, rtol: OptionalNumber = None, hermitian: Bool = False
) -> Any:
    """How many singular values of each matrix exceed ``max(atol, rtol * largest)``.

    If the matrices are ``hermitian``, the magnitudes of their eigenvalues count.
    """
    return _rank(F, input, atol, rtol, hermitian)


def _rank(F: Any, input: Any, atol: Any, rtol: Any, hermitian: bool) -> Any:
    """``matrix_rank`` with tolerances that are numbers, or tensors with one for each matrix."""
    if input.ndim < 2:
        raise ShapeMismatch("torch.linalg.matrix_rank: The input tensor input must have at least 2 dimensions.")
    if input.dtype.name not in EPSILON:
        raise DTypeMismatch("This function doesn't handle types other than float and double")
    if 0 in input.shape[-2:]:
        return F.new_zeros(input, tuple(input.shape[:-2]), dtype="int64")
    sizes = F.abs(F.linalg_eigvalsh(input)) if hermitian else F.linalg_svdvals(input)
    usual = max(input.shape[-2:]) * EPSILON[input.dtype.name]
    if rtol is None:
        rtol = F.where(F.gt(atol, 0.0), 0.0, usual) if hasattr(atol, "_data") else 0.0 if atol else usual
    relative, absolute = (
        F.unsqueeze(x, -1) if hasattr(x, "_data") else x for x in (rtol, 0.0 if atol is None else atol)
    )
    at_least = F.maximum if hasattr(absolute, "_data") else F.clamp_min
    return F.sum(F.gt(sizes, at_least(F.amax(sizes, (-1,), True) * relative, absolute)), (-1,))


@composite(key="matrix_rank.tol_tensor", variants=LINALG_FUNCTION, autocast=FLOAT32_ON_CPU)
def matrix_rank_tol_tensor(F: Any, input: Array, tol: Array, hermitian: Bool = False) -> Any:
    """How many singular values of each matrix exceed its ``tol``."""
    return _rank(F, input, tol, 0.0, hermitian)


@composite(key="matrix_rank.tensor", variants=LINALG_FUNCTION, autocast=FLOAT32_ON_CPU)
def matrix_rank_tensor(F: Any, input: Array, *, atol: Array = None, rtol: Array = None, hermitian: Bool = False) -> Any:
    """``matrix_rank`` by tolerances that are tensors, with one for each matrix."""
    return _rank(F, input, atol, rtol, hermitian)


@composite(key="matrix_rank.tol", variants=LINALG_FUNCTION, autocast=FLOAT32_ON_CPU)
def matrix_rank_tol(F: Any, input: Array, tol: Number, hermitian: Bool = False) -> Any:
    """How many singular values exceed ``tol``."""
    if input.ndim > 1 and input.dtype.name not in EPSILON:
        if hermitian:
            raise no_kernel("linalg_eigh_cpu", input)
        kind = input.dtype.kernel_name
        raise DTypeMismatch(f"linalg.svd: Expected a floating point or complex tensor as input. Got {kind}")
    return F.linalg_matrix_rank(input, atol=tol, rtol=0.0, hermitian=hermitian)


@composite(variants=LINALG_FUNCTION, autocast=FLOAT32_ON_CPU)
def cond(F: Any, input: Array, p: NumberOrStr = None) -> Any:
    """The condition number: the norm of each matrix times that of its inverse; infinite for a singular one."""
    if input.ndim < 2:
        raise ShapeMismatch("linalg.cond: The input tensor must have at least 2 dimensions.")
    named = p if p is None or isinstance(p, str) else f"{p:g}"
    if p not in (None, "fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        raise InvalidOperation(f"linalg.cond got an invalid norm type: {named}")
    if p in (None, 2, -2):
        sizes = F.linalg_svdvals(input)
        large, small = F.narrow(sizes, -1, 0, 1), F.narrow(sizes, -1, sizes.shape[-1] - 1, 1)
        return F.squeeze(small / large if p == -2 else large / small, -1)
    check_square(input, f"linalg.cond(ord={named})")
    norm = F.linalg_matrix_norm(input, p)
    try:
        return norm * F.linalg_matrix_norm(F.linalg_inv(input), p)
    except LinAlgError:
        return F.full_like(norm, math.inf)


# torch's older names of matrix functions -----------------------------------------------------------------


@composite(autocast=FLOAT32_ON_CPU)
def inverse(F: Any, input: Array) -> Any:
    """The inverse of each matrix: ``linalg.inv``."""
    return F.linalg_inv(input)


@composite(autocast=FLOAT32_ON_CPU)
def pinverse(F: Any, input: Array, rcond: Number = 1e-15) -> Any:
    """The Moore-Penrose pseudo-inverse; singular values up to ``rcond`` times the largest count as zero."""
    return F.linalg_pinv(input, rtol=rcond)


@composite()
def matrix_power(F: Any, input: Array, n: Int) -> Any:
    """The product of ``n`` equal square matrices; a negative ``n`` inverts them first."""
    return F.linalg_matrix_power(input, n)


@composite()
def det(F: Any, input: Array) -> Any:
    """The determinant of each matrix."""
    return F.linalg_det(input)


@composite(results=named("sign", "logabsdet"))
def slogdet(F: Any, input: Array) -> Any:
    """The sign of each determinant and the logarithm of its magnitude; 0 and -inf for a singular matrix."""
    return slogdet.bundle(F.linalg_slogdet(input))


@composite()
def logdet(F: Any, input: Array) -> Any:
    """The logarithm of each determinant: -inf for 0, NaN for a negative one."""
    square_rule("logdet")(input._data)
    sign, logarithm = F.linalg_slogdet(input)
    return F.where(F.eq(sign, -1.0), float("nan"), logarithm)


# Decompositions ---------------------------------------------------------------------------------------


@composite(autocast=FLOAT32_ON_CPU)
def cholesky(F: Any, input: Array, upper: Bool = False) -> Any:
    """The triangular L with ``L @ L.mT == input``, or its transpose."""
    check_square(input, "cholesky")
    if input._data.dtype not in (float32.numpy, float64.numpy):
        raise no_kernel("cholesky_cpu", input)
    try:
        return F.linalg_cholesky(input, upper=upper)
    except LinAlgError as error:
        raise LinAlgError(error.detail.removeprefix("linalg.")) from None


@composite(results=named("Q", "R"), autocast=FLOAT32_ON_CPU)
def qr(F: Any, input: Array, some: Bool = True) -> Any:
    """Q with orthonormal columns and R, upper triangular, with ``Q @ R == input``; all of Q unless ``some``."""
    return qr.bundle(F.linalg_qr(input, "reduced" if some else "complete"))


@composite(results=named("U", "S", "V"), autocast=FLOAT32_ON_CPU)
def svd(F: Any, input: Array, some: Bool = True, compute_uv: Bool = True) -> Any:
    """U, the singular values S and V with ``U @ diag(S) @ V.mT == input``; zeros for U and V unless asked for."""
    if input.ndim < 2:
        raise ShapeMismatch(
            f"linalg.svd: input should have at least 2 dimensions, but has {input.ndim} dimensions instead"
        )
    if compute_uv:
        U, S, Vh = F.linalg_svd(input, not some)
        return svd.bundle((U, S, Vh.mT))
    *batch, m, n = input.shape
    S = F.linalg_svdvals(input)
    return svd.bundle((F.new_zeros(input, (*batch, m, m)), S, F.new_zeros(input, (*batch, n, n))))
