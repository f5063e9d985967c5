"""Least squares: the solution of overdetermined and underdetermined linear equations."""

from __future__ import annotations

from typing import Any

from ...dtypes import int64
from ...errors import DataDependentShape, DTypeMismatch, InvalidOperation, ShapeMismatch
from ...schema.autocast_policy import FLOAT32_ON_CPU
from ...schema.declaration import Results
from ...schema.parameters import Array, OptionalNumber, OptionalStr
from ...shapes import Spec, broadcast_shapes
from .decompositions import thin_svd
from .matrix_norms import pinv_grad
from .solving import check_matrix, factorization, is_vector, kind_names

NAME = "torch.linalg.lstsq"
DRIVERS = ("gels", "gelsy", "gelsd", "gelss")
"""LAPACK's drivers. Here all use the SVD and find the same solution, but return different extra results."""


def _check(A: Any, b: Any, driver: str) -> None:
    if len(A.shape) < 2:
        raise ShapeMismatch(f"{NAME}: input must have at least 2 dimensions.")
    if not b.shape:
        raise ShapeMismatch(f"{NAME}: other must have at least 1 dimension.")
    if A.dtype != b.dtype:
        kinds = kind_names(A, b)
        raise DTypeMismatch(
            f"{NAME}: Expected input and other to have the same dtype, but got input's dtype {kinds[0]} and other's "
            f"dtype {kinds[1]}"
        )
    if not 0 <= len(A.shape) - len(b.shape) <= 1:
        raise ShapeMismatch(
            f"{NAME}: input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) <= 1"
        )
    rows = -1 if is_vector(A.shape, b.shape) else -2
    if b.shape[rows] != A.shape[-2]:
        raise ShapeMismatch(f"{NAME}: input.size(-2) should match other.size({rows})")
    check_matrix(A, NAME)
    if driver not in DRIVERS:
        raise InvalidOperation(f"{NAME}: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)")


def _rule(input: Any, b: Any, driver: str | None) -> list[Spec]:
    driver = driver or "gelsy"
    _check(input, b, driver)
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
    _rule,
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
def _grad(F: Any, grads: Any, needs: Any, input: Any, b: Any, solution: Any) -> Any:
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
