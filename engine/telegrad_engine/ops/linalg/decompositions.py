"""Batched matrix decompositions, and linear equations whose matrix is given by a factor."""

from __future__ import annotations

from typing import Any

from ...dtypes import bool_, widened
from ...errors import DTypeMismatch, InvalidOperation, LinAlgError, ShapeMismatch
from ...schema.declaration import FUNCTION, LINALG_FUNCTION, named, scratch
from ...schema.op import composite, op
from ...schema.parameters import Array, Bool, Int, IntOrInts, ManyArrays, OptionalStr, Str
from ...schema.promotion import FLOAT32_ON_CPU, LOWER_ON_CUDA
from ...shapes import Spec, size_at, wrap_dim
from ..guards import check_floats, kernel_name
from .solving import check_matrix, check_square, factorization, square_rule, which


def _or_zeros(F: Any, grad: Any, like: Any) -> Any:
    return F.zeros_like(like) if grad is None else grad


# Cholesky ---------------------------------------------------------------------------------------------


@factorization(square_rule("linalg.cholesky"), node="LinalgCholeskyExBackward0", autocast=FLOAT32_ON_CPU)
def cholesky(xp: Any, input: Array, *, upper: Bool = False) -> Any:
    """The triangular L with ``L @ L.mT == input``, or its transpose; of ``input`` one triangle is read."""
    lower = input.mT if upper else input
    L = _factor(xp, lower)
    if L is None:
        batch, order = which(lower, lambda matrix: _bad_minor(xp, matrix))
        raise LinAlgError(
            f"linalg.cholesky: {batch}The factorization could not be completed because the input is not "
            f"positive-definite (the leading minor of order {order} is not positive-definite)."
        )
    return L.mT if upper else L


def refuse_nonfinite(xp: Any, A: Any) -> None:
    """Raise for matrices with NaN or infinities, which have no singular values."""
    if not xp.all(xp.isfinite(A)):
        batch, _ = which(A, lambda matrix: not xp.all(xp.isfinite(matrix)))
        raise LinAlgError(
            f"linalg.svd: {batch}The algorithm failed to converge because the input matrix contained non-finite values."
        )


def thin_svd(xp: Any, A: Any) -> Any:
    """The reduced U, S and Vh, for ops that are built on the SVD."""
    refuse_nonfinite(xp, A)  # LAPACK may search without end
    return xp.linalg.svd(A, full_matrices=False)


def _factor(xp: Any, lower: Any) -> Any:
    """The Cholesky factors, or None if a matrix has none, for example because it contains NaN."""
    try:
        L = xp.linalg.cholesky(widened(lower))
    except xp.linalg.LinAlgError:
        return None
    return None if xp.any(xp.isnan(L)) else L


def _bad_minor(xp: Any, matrix: Any) -> int:
    """The order of the first leading minor that is not positive-definite; 0 if all are."""
    orders = range(1, len(matrix) + 1)
    return next((order for order in orders if _factor(xp, matrix[:order, :order]) is None), 0)


def _cholesky_grad(F: Any, grad: Any, result: Any, upper: bool) -> Any:
    """Murray, "Differentiation of the Cholesky decomposition" (2016), made symmetric."""
    L, towards_L = (result.mT, grad.mT) if upper else (result, grad)
    inner = F.tril(L.mT @ towards_L)
    inner = (inner + F.tril(inner, -1).mT) * 0.5
    right = F.linalg_solve_triangular(L, inner, upper=False, left=False)
    return F.linalg_solve_triangular(L.mT, right, upper=True)


cholesky.derivative(input=_cholesky_grad)


# QR ---------------------------------------------------------------------------------------------------


def _qr_rule(A: Any, mode: str) -> list[Spec]:
    check_matrix(A, "linalg.qr")
    if mode not in ("reduced", "complete", "r"):
        raise InvalidOperation(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    *batch, m, n = A.shape
    k = m if mode == "complete" else min(m, n)
    return [Spec((0,) if mode == "r" else (*batch, m, k), A.dtype), Spec((*batch, k, n), A.dtype)]


@op(_qr_rule, variants=LINALG_FUNCTION, results=named("Q", "R"), memory=scratch(4.0), autocast=FLOAT32_ON_CPU)
def qr(xp: Any, A: Array, mode: Str = "reduced") -> Any:
    """Q with orthonormal columns and R, upper triangular, with ``Q @ R == A``; mode "r" leaves Q empty."""
    if mode == "r":
        return xp.empty((0,), A.dtype), xp.linalg.qr(A, mode="r")
    return tuple(xp.linalg.qr(A, mode=mode))


def _qr_grad(F: Any, grads: Any, A_shape: Any, Q: Any, R: Any, mode: str) -> Any:
    """Seeger et al., "Auto-differentiating linear algebra" (2017); for a wide A, the right part of R is Q.mT @ A's."""
    m, n = A_shape[-2:]
    if mode == "r":
        raise InvalidOperation(
            "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use "
            "linalg.qr(A, mode='reduced') if you are going to differentiate through linalg.qr."
        )
    if mode == "complete" and m > n:
        raise InvalidOperation("The QR decomposition is not differentiable when mode='complete' and nrows > ncols.")
    towards_Q, towards_R = _or_zeros(F, grads[0], Q), _or_zeros(F, grads[1], R)
    rest = None
    if n > m:
        rest = F.narrow(towards_R, -1, m, n - m)
        right = Q.mT @ Q @ F.narrow(R, -1, m, n - m)
        towards_Q = towards_Q + Q @ right @ rest.mT
        R, towards_R = F.narrow(R, -1, 0, m), F.narrow(towards_R, -1, 0, m)
    inner = R @ towards_R.mT - towards_Q.mT @ Q
    inner = F.tril(inner) + F.tril(inner, -1).mT
    grad = F.linalg_solve_triangular(R.mT, towards_Q + Q @ inner, upper=False, left=False)
    return grad if rest is None else F.cat([grad, Q @ rest], -1)


qr.derivative(A=_qr_grad)


# Eigenvalues ------------------------------------------------------------------------------------------


def _eigh_rule(input: Any, UPLO: str) -> list[Spec]:
    check_square(input, "linalg.eigh")
    if UPLO.upper() not in ("L", "U"):
        raise InvalidOperation(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    check_floats("linalg_eigh_cpu", input)
    check_matrix(input, "linalg.eigh", "linalg_eigh_cpu")
    return [Spec(input.shape[:-1], input.dtype), Spec(input.shape, input.dtype)]


@factorization(_eigh_rule, results=named("eigenvalues", "eigenvectors"), autocast=FLOAT32_ON_CPU)
def eigh(xp: Any, input: Array, UPLO: Str = "L") -> Any:
    """The eigenvalues of symmetric matrices, ascending, and the eigenvectors; of ``input`` one triangle is read."""
    try:
        return tuple(xp.linalg.eigh(input, UPLO.upper()))
    except xp.linalg.LinAlgError:
        finite = xp.all(xp.isfinite(input))
        batch = "" if finite else which(input, lambda matrix: not xp.all(xp.isfinite(matrix)))[0]
    raise LinAlgError(
        f"linalg.eigh: {batch}The algorithm failed to converge because the input matrix is ill-conditioned or has "
        f"too many repeated eigenvalues (error code: {input.shape[-1] - 1})."
    )


def _eigh_grad(F: Any, grads: Any, eigenvalues: Any, eigenvectors: Any) -> Any:
    """Giles, "Collected matrix derivative results" (2008), made symmetric; undefined for equal eigenvalues."""
    V = eigenvectors
    diagonal = F.eye(V.shape[-1], dtype=bool_)
    inner = F.where(diagonal, F.unsqueeze(_or_zeros(F, grads[0], eigenvalues), -1), 0.0)
    if grads[1] is not None:
        gaps = F.unsqueeze(eigenvalues, -2) - F.unsqueeze(eigenvalues, -1)
        turn = V.mT @ grads[1]
        inner = inner + (turn - turn.mT) / F.where(diagonal, 1.0, gaps * 2)
    return V @ inner @ V.mT


eigh.derivative(input=_eigh_grad)


@composite(variants=LINALG_FUNCTION, autocast=FLOAT32_ON_CPU)
def eigvalsh(F: Any, input: Array, UPLO: Str = "L") -> Any:
    """The eigenvalues of symmetric matrices, ascending."""
    return F.linalg_eigh(input, UPLO)[0]


# Singular values --------------------------------------------------------------------------------------


def _svd_rule(A: Any, full_matrices: bool, driver: str | None) -> list[Spec]:
    if driver is not None:
        raise InvalidOperation(
            "torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend."
        )
    check_matrix(A, "linalg.svd", "linalg_svd_cpu")
    *batch, m, n = A.shape
    k = min(m, n)
    shapes = ((m, m if full_matrices else k), (k,), (n if full_matrices else k, n))
    return [Spec((*batch, *shape), A.dtype) for shape in shapes]


@factorization(_svd_rule, results=named("U", "S", "Vh"), autocast=FLOAT32_ON_CPU)
def svd(xp: Any, A: Array, full_matrices: Bool = True, *, driver: OptionalStr = None) -> Any:
    """U, the singular values S, descending, and Vh with ``U @ diag(S) @ Vh == A``."""
    refuse_nonfinite(xp, A)
    return tuple(xp.linalg.svd(widened(A), full_matrices=full_matrices))


def _svd_grad(F: Any, grads: Any, A_shape: Any, U: Any, S: Any, Vh: Any) -> Any:
    """Townsend, "Differentiating the singular value decomposition" (2016); S must have no equal elements."""
    m, n = A_shape[-2:]
    k = min(m, n)
    U, Vh = F.narrow(U, -1, 0, k), F.narrow(Vh, -2, 0, k)
    diagonal = F.eye(k, dtype=bool_)
    row, column = F.unsqueeze(S, -2), F.unsqueeze(S, -1)
    inner = F.where(diagonal, F.unsqueeze(_or_zeros(F, grads[1], S), -1), 0.0)
    gaps = F.where(diagonal, 1.0, (row - column) * (row + column))
    towards_U = None if grads[0] is None else F.narrow(grads[0], -1, 0, k)
    towards_V = None if grads[2] is None else F.narrow(grads[2], -2, 0, k).mT
    if towards_U is not None:
        turn = U.mT @ towards_U
        inner = inner + (turn - turn.mT) / gaps * row
    if towards_V is not None:
        turn = Vh @ towards_V
        inner = inner + column * ((turn - turn.mT) / gaps)
    grad = U @ inner @ Vh
    if towards_U is not None and m > k:
        grad = grad + (towards_U - U @ (U.mT @ towards_U)) / row @ Vh
    if towards_V is not None and n > k:
        grad = grad + U @ ((towards_V - Vh.mT @ (Vh @ towards_V)) / row).mT
    return grad


svd.derivative(A=_svd_grad)


@composite(variants=LINALG_FUNCTION, autocast=FLOAT32_ON_CPU)
def svdvals(F: Any, A: Array, *, driver: OptionalStr = None) -> Any:
    """The singular values, descending."""
    return F.linalg_svd(A, False, driver=driver)[1]


# Linear equations with a known factor, and torch's older names of products and norms ---------------------


def _check_factor(name: str, b: Any, A: Any, too_few_dims: str) -> None:
    """Raise unless ``b`` and the square ``A`` are matrices of one floating dtype with matching sizes."""
    for x, letter in ((b, "b"), (A, "A")):
        if x.ndim < 2:
            raise ShapeMismatch(too_few_dims.format(letter, x.ndim))
    rows, columns = A.shape[-2:]
    if rows != columns:
        raise ShapeMismatch(f"A must be batches of square matrices, but they are {rows} by {columns} matrices")
    if b.shape[-2] != rows:
        raise ShapeMismatch(
            f"Incompatible matrix sizes for {name}: each A matrix is {rows} by {rows} but each b matrix is "
            f"{b.shape[-2]} by {b.shape[-1]}"
        )
    if b.dtype is not A.dtype:
        raise DTypeMismatch(
            f"Expected b and A to have the same dtype, but found b of type {kernel_name(b)} and A of type "
            f"{kernel_name(A)} instead."
        )
    check_floats(f"{name}_cpu", b)


@composite(autocast=FLOAT32_ON_CPU)
def cholesky_solve(F: Any, input: Array, L: Array, upper: Bool = False) -> Any:
    """The solution of ``A @ X = input``, of which ``L`` is the Cholesky factor of A."""
    _check_factor("cholesky_solve", input, L, "{} should have at least 2 dimensions, but has {} dimensions instead")
    lower = L.mT if upper else L
    # Only one triangle is read, but both get a gradient, as in torch: that of an unrestricted factor.
    lower = lower - F.triu(lower, 1).detach()
    return F.linalg_solve(F.matmul(lower, lower.mT), input)


@composite(autocast=FLOAT32_ON_CPU)
def cholesky_inverse(F: Any, L: Array, upper: Bool = False) -> Any:
    """The inverse of the matrix that ``L`` is the Cholesky factor of."""
    if L.ndim < 2:
        raise ShapeMismatch(
            f"cholesky_inverse: The input tensor A must have at least 2 dimensions but got {L.ndim} dimensions"
        )
    check_square(L, "cholesky_inverse")
    check_floats("cholesky_inverse_out_cpu", L)
    eye = F.eye(L.shape[-1], dtype=L.dtype)
    return F.cholesky_solve(F.expand(eye, tuple(L.shape)), L, upper)


@composite(variants=FUNCTION, autocast=LOWER_ON_CUDA)
def chain_matmul(F: Any, matrices: ManyArrays) -> Any:
    """The product of several matrices; ``linalg.multi_dot`` is its new name."""
    if not matrices:
        raise InvalidOperation("chain_matmul(): Expected one or more matrices")
    return F.clone(matrices[0]) if len(matrices) == 1 else F.linalg_multi_dot(matrices)


@composite(variants=FUNCTION)
def frobenius_norm(F: Any, input: Array, dim: IntOrInts, keepdim: Bool = False) -> Any:
    """The square root of the sum of squares over ``dim``."""
    return F.linalg_vector_norm(input, 2, dim, keepdim)


@composite(variants=FUNCTION)
def nuclear_norm(F: Any, input: Array, keepdim: Bool = False) -> Any:
    """The sum of a matrix's singular values."""
    return F.linalg_matrix_norm(input, "nuc", (-2, -1), keepdim)


@composite(key="nuclear_norm.dim", variants=FUNCTION)
def nuclear_norm_dim(F: Any, input: Array, dim: IntOrInts, keepdim: Bool = False) -> Any:
    """The sums of the singular values of the matrices in two dimensions."""
    return F.linalg_matrix_norm(input, "nuc", dim, keepdim)


@composite(variants=FUNCTION)
def norm_except_dim(F: Any, v: Array, pow: Int = 2, dim: Int = 0) -> Any:
    """The norms of the slices along ``dim``, in a shape that broadcasts with them; of all elements if -1."""
    if dim == -1:
        return F.linalg_vector_norm(v, pow)
    if not size_at(v.shape, dim):
        raise ShapeMismatch(
            "cannot reshape tensor of 0 elements into shape [0, -1] because the unspecified dimension size -1 can be "
            "any value and is ambiguous"
        )
    others = tuple(d for d in range(v.ndim) if d != wrap_dim(dim, v.ndim))
    return F.linalg_vector_norm(v, pow, others, True) if others else F.abs(v)


@composite(results=named("solution", "cloned_coefficient"), autocast=FLOAT32_ON_CPU)
def triangular_solve(
    F: Any, input: Array, A: Array, upper: Bool = True, transpose: Bool = False, unitriangular: Bool = False
) -> Any:
    """The solution of ``A @ X = input`` for a triangular A, and A; ``linalg.solve_triangular`` is its new name."""
    too_few_dims = "torch.triangular_solve: Expected {} to have at least 2 dimensions, but it has {} dimensions instead"
    _check_factor("triangular_solve", input, A, too_few_dims)
    matrix = A.mT if transpose else A
    solution = F.linalg_solve_triangular(matrix, input, upper=upper != transpose, unitriangular=unitriangular)
    return triangular_solve.bundle((solution, F.clone(A)))
