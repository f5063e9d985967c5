"""Inverses, powers and determinants of square matrices, in batches.

The derivatives, but for those named otherwise: Giles, "Collected matrix derivative results" (2008).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..dtypes import FLOATING, float32, float64, from_numpy, parse, widened
from ..errors import DTypeMismatch, LinAlgError, NotImplementedForDType, ShapeMismatch
from ..schema.derivative_plan import Rule
from ..schema.op import composite, op
from ..schema.parameters import Array, Int
from ..shapes import Spec


def check_matrix(input: Any, name: str, kernel: str = "", letter: str = "A") -> None:
    """Refuse what is no batch of matrices, or of a dtype that torch's ``kernel`` does not take."""
    if len(input.shape) < 2:
        raise ShapeMismatch(f"{name}: The input tensor {letter} must have at least 2 dimensions.")
    kind = from_numpy(input.dtype).kernel_name
    if input.dtype not in FLOATING:
        raise DTypeMismatch(f"{name}: Expected a floating point or complex tensor as input. Got {kind}")
    if input.dtype not in (float32.numpy, float64.numpy) and math.prod(input.shape):  # torch lets empty ones pass
        if kernel:
            raise NotImplementedForDType(f"\"{kernel}\" not implemented for '{kind}'")
        raise DTypeMismatch(f"{name}: Low precision dtypes not supported. Got {kind}")


def check_square(input: Any, name: str) -> None:
    """Refuse what is no batch of square matrices."""
    if len(input.shape) < 2:
        raise ShapeMismatch(f"{name}: The input tensor A must have at least 2 dimensions.")
    rows, columns = input.shape[-2:]
    if rows != columns:
        raise ShapeMismatch(f"{name}: A must be batches of square matrices, but they are {rows} by {columns} matrices")


def which(input: Any, fails: Any) -> tuple[str, Any]:
    """The first matrix of a batch for which ``fails`` is true: how torch names it, and what ``fails`` said."""
    matrices = input.reshape(-1, *input.shape[-2:])
    said = [fails(matrix) for matrix in matrices]
    first = next(i for i, found in enumerate(said) if found)
    return f"(Batch element {first}): " if input.ndim > 2 else "", said[first]


def square_rule(name: str, *, kernel: str = "", outputs: int = 0) -> Rule:
    """A rule for batches of square matrices: another of them, or ``outputs`` numbers a matrix."""

    def rule(A: Any) -> Any:
        check_square(A, name)
        check_matrix(A, name, kernel)
        if not outputs:
            return Spec(A.shape, A.dtype)
        number = Spec(A.shape[:-2], A.dtype)
        return number if outputs == 1 else [number] * outputs

    return rule


@op(square_rule("linalg.inv"), namespace="torch.linalg", node="LinalgInvExBackward0", scratch=4.0)
def inv(xp: Any, A: Array) -> Any:
    """The inverse of each matrix."""
    try:
        return xp.linalg.inv(widened(A))
    except xp.linalg.LinAlgError:
        batch, pivot = which(A, xp.zero_pivot)
    raise LinAlgError(
        f"linalg.inv: {batch}The diagonal element {pivot} is zero, the inversion could not be completed "
        "because the input matrix is singular."
    )


inv.derivative(A=lambda F, grad, result: -(result.mT @ grad @ result.mT))


@composite(namespace="torch.linalg")
def matrix_power(F: Any, input: Array, n: Int) -> Any:
    """The product of ``n`` equal square matrices, by repeated squaring; a negative ``n`` inverts them first."""
    check_square(input._data, "linalg.matrix_power")
    if n == 0:
        size = input.shape[-1]
        return F.tril(input, -size) + F.eye(size, dtype=input.dtype)
    base = F.linalg_inv(input) if n < 0 else input
    result = None
    for bit in reversed(bin(abs(n))[2:]):
        if bit == "1":
            result = base if result is None else result @ base
        base = base @ base
    return F.clone(result) if n == 1 else result


# Determinants -----------------------------------------------------------------------------------------


@op(square_rule("linalg.det", kernel="lu_cpu", outputs=1), namespace="torch.linalg", scratch=4.0)
def det(xp: Any, A: Array) -> Any:
    """The determinant of each matrix."""
    with np.errstate(invalid="ignore"):  # the warning would be NumPy's linalg's, not ours
        return xp.asarray(xp.linalg.det(widened(A)))


def _identity(F: Any, like: Any) -> Any:
    return F.eye(like.shape[-1], dtype=parse(like.dtype))


def _cofactors(F: Any, A: Any, result: Any) -> Any:
    """The derivative of ``det``: ``det(A) * inv(A).T``, or by the singular values where that does not exist.

    Higham, "What is the adjugate of a matrix?" (2020). Each way gets a harmless matrix where the other is taken.
    """
    n = A.shape[-1]
    singular = F.reshape(F.eq(result, 0.0), (*result.shape, 1, 1))
    eye = _identity(F, A)
    by_inverse = F.reshape(result, (*result.shape, 1, 1)) * F.linalg_inv(F.where(singular, eye, A)).mT
    U, S, Vh = F.linalg_svd(F.where(singular, A, eye * F.arange(1, n + 1, dtype=parse(A.dtype))))
    others = F.where(F.eq(eye, 1.0), 1.0, F.unsqueeze(S, -2))
    products = F.ones_like(S)
    for i in range(n):
        products = products * F.select(others, -1, i)
    sign = F.linalg_slogdet(U)[0] * F.linalg_slogdet(Vh)[0]
    by_values = F.reshape(sign, (*sign.shape, 1, 1)) * (U * F.unsqueeze(products, -2) @ Vh)
    return F.where(singular, by_values, by_inverse)


det.derivative(A=lambda F, grad, A, result: F.reshape(grad, (*grad.shape, 1, 1)) * _cofactors(F, A, result))


@op(
    square_rule("linalg.slogdet", kernel="lu_cpu", outputs=2),
    namespace="torch.linalg",
    outputs=("sign", "logabsdet"),
    scratch=4.0,
)
def slogdet(xp: Any, A: Array) -> Any:
    """The sign of each determinant and the logarithm of its magnitude; 0 and -inf for a singular matrix."""
    with np.errstate(invalid="ignore"):  # the warning would be NumPy's linalg's, not ours
        sign, logarithm = xp.linalg.slogdet(widened(A))
    return xp.asarray(sign), xp.asarray(logarithm)


def _slogdet_grad(F: Any, grads: Any, A: Any) -> Any:
    grad = grads[1]
    return F.zeros_like(A) if grad is None else F.reshape(grad, (*grad.shape, 1, 1)) * F.linalg_inv(A).mT


slogdet.derivative(A=_slogdet_grad)
