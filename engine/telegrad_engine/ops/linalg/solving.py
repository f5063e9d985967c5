"""Batched inverses, powers and determinants of square matrices, and linear equations."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from ...dtypes import FLOATING, float32, float64, parse, widened
from ...errors import DTypeMismatch, InvalidOperation, LinAlgError, ShapeMismatch
from ...schema.declaration import LINALG_FUNCTION, named, scratch
from ...schema.derivative_plan import Rule
from ...schema.op import composite, op
from ...schema.parameters import Array, Bool, Int, OptionalInts
from ...schema.promotion import FLOAT32_ON_CPU
from ...shapes import Shape, Spec, broadcast_shapes
from ..batching import math_rules
from ..batching.rules import PADDED
from ..guards import kernel_name, no_kernel


def kind_names(*tensors: Any) -> list[str]:
    """The names of the tensors' dtypes in torch's error texts."""
    return [kernel_name(x) for x in tensors]


def check_dims(input: Any, name: str, letter: str = "A") -> None:
    """Raise unless ``input`` is a matrix or a batch of matrices."""
    if len(input.shape) < 2:
        raise ShapeMismatch(f"{name}: The input tensor {letter} must have at least 2 dimensions.")


def check_floating(input: Any, name: str) -> None:
    """Raise unless the dtype is floating."""
    if input.dtype not in FLOATING:
        raise DTypeMismatch(f"{name}: Expected a floating point or complex tensor as input. Got {kernel_name(input)}")


def check_matrix(input: Any, name: str, kernel: str = "", letter: str = "A") -> None:
    """Raise unless ``input`` is a batch of matrices of a dtype that torch's ``kernel`` supports."""
    check_dims(input, name, letter)
    check_floating(input, name)
    if input.dtype not in (float32.numpy, float64.numpy) and math.prod(input.shape):  # torch accepts empty ones
        if kernel:
            raise no_kernel(kernel, input)
        raise DTypeMismatch(f"{name}: Low precision dtypes not supported. Got {kernel_name(input)}")


def check_square(input: Any, name: str) -> None:
    """Raise unless ``input`` is a batch of square matrices."""
    check_dims(input, name)
    rows, columns = input.shape[-2:]
    if rows != columns:
        raise ShapeMismatch(f"{name}: A must be batches of square matrices, but they are {rows} by {columns} matrices")


def which(input: Any, fails: Any) -> tuple[str, Any]:
    """The first matrix of a batch for which ``fails`` is true: its name in torch's texts, and that result."""
    results = map(fails, input.reshape(-1, *input.shape[-2:]))
    first, result = next((i, result) for i, result in enumerate(results) if result)
    return f"(Batch element {first}): " if input.ndim > 2 else "", result


def square_rule(name: str, *, kernel: str = "", outputs: int = 0) -> Rule:
    """A shape rule for batches of square matrices: the result has their shape, or is ``outputs`` numbers per matrix."""

    def rule(A: Any) -> Any:
        check_square(A, name)
        check_matrix(A, name, kernel)
        if not outputs:
            return Spec(A.shape, A.dtype)
        number = Spec(A.shape[:-2], A.dtype)
        return number if outputs == 1 else [number] * outputs

    return rule


factorization = partial(op, variants=LINALG_FUNCTION, memory=scratch(4.0), may_raise=True)
"""Like :func:`op`, for functions that factor matrices, which some matrices do not allow."""


@factorization(square_rule("linalg.inv"), node="LinalgInvExBackward0", autocast=FLOAT32_ON_CPU)
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


@composite(variants=LINALG_FUNCTION)
def matrix_power(F: Any, input: Array, n: Int) -> Any:
    """The product of ``n`` equal square matrices, by repeated squaring; a negative ``n`` inverts them first."""
    check_square(input, "linalg.matrix_power")
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


@op(square_rule("linalg.det", kernel="lu_cpu", outputs=1), variants=LINALG_FUNCTION, memory=scratch(4.0))
def det(xp: Any, A: Array) -> Any:
    """The determinant of each matrix."""
    with np.errstate(invalid="ignore"):  # NumPy's linalg would warn about NaN
        return xp.asarray(xp.linalg.det(widened(A)))


def _cofactors(F: Any, A: Any, result: Any) -> Any:
    """The derivative of ``det``: ``det(A) * inv(A).T``, or from the singular values if A is singular.

    Higham, "What is the adjugate of a matrix?" (2020). Each formula gets a harmless matrix where the other one is used.
    """
    n = A.shape[-1]
    singular = F.reshape(F.eq(result, 0.0), (*result.shape, 1, 1))
    eye = F.eye(n, dtype=parse(A.dtype))
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
    variants=LINALG_FUNCTION,
    results=named("sign", "logabsdet"),
    memory=scratch(4.0),
)
def slogdet(xp: Any, A: Array) -> Any:
    """The sign of each determinant and the logarithm of its magnitude; 0 and -inf for a singular matrix."""
    with np.errstate(invalid="ignore"):  # NumPy's linalg would warn about NaN
        sign, logarithm = xp.linalg.slogdet(widened(A))
    return xp.asarray(sign), xp.asarray(logarithm)


def _slogdet_grad(F: Any, grads: Any, A: Any) -> Any:
    grad = grads[1]
    return F.zeros_like(A) if grad is None else F.reshape(grad, (*grad.shape, 1, 1)) * F.linalg_inv(A).mT


slogdet.derivative(A=_slogdet_grad)


# Batched linear equations --------------------------------------------------------------------------------


def is_vector(A: Any, B: Any) -> bool:
    """Whether a right-hand side of shape B is a batch of vectors rather than of matrices, for matrices of shape A."""
    return len(B) == 1 or tuple(A[:-1]) == tuple(B)


def _solution_shape(A: Shape, B: Shape, left: bool, name: str) -> Shape:
    n = A[-1]
    if B[-2 if left else -1] != n:
        equation = "AX = B" if left else "XA = B"
        raise ShapeMismatch(
            f"{name}: Incompatible shapes of A and B for the equation {equation} ({n}x{n} and {B[-2]}x{B[-1]})"
        )
    return broadcast_shapes(B[:-2], A[:-2]) + B[-2:]


def _solve_rule(A: Any, B: Any, left: bool) -> Spec:
    name = "linalg.solve"
    check_square(A, name)
    check_matrix(A, name)
    if A.dtype != B.dtype:
        kinds = kind_names(A, B)
        raise DTypeMismatch(
            f"{name}: Expected A and B to have the same dtype, but found A of type {kinds[0]} and B of type "
            f"{kinds[1]} instead"
        )
    vector = is_vector(A.shape, B.shape)
    if not vector:
        check_matrix(B, name, letter="B")
    shape = _solution_shape(A.shape, (*B.shape, 1) if vector else B.shape, left, name)
    return Spec(shape[:-1] if vector else shape, A.dtype)


@op(
    _solve_rule,
    variants=LINALG_FUNCTION,
    node="LinalgSolveExBackward0",
    memory=scratch(2.0),
    may_raise=True,
    autocast=FLOAT32_ON_CPU,
    batching=math_rules.linalg_solve,
)
def solve(xp: Any, A: Array, B: Array, *, left: Bool = True) -> Any:
    """The solution of ``A @ X = B``, or of ``X @ A = B`` where not ``left``; B may be vectors."""
    vector = is_vector(A.shape, B.shape)
    A, B = widened(A), widened(B)
    right = B[..., None] if vector else B
    try:
        result = xp.linalg.solve(A, right) if left else xp.linalg.solve(A.mT, right.mT).mT
    except xp.linalg.LinAlgError:
        batch, _ = which(A, xp.zero_pivot)
        text = f"torch.linalg.solve: {batch}The solver failed because the input matrix is singular."
        raise LinAlgError(text) from None
    return result[..., 0] if vector else result


@solve.joint_derivative
def _solve_grad(F: Any, grad: Any, needs: Any, A: Any, B_shape: Any, result: Any, left: bool) -> Any:
    vector = is_vector(A.shape, B_shape)
    if vector:
        grad, result = F.unsqueeze(grad, -1), F.unsqueeze(result, -1)
    towards_B = F.linalg_solve(A.mT, grad, left=left)
    towards_A = None
    if needs[0]:
        towards_A = -(towards_B @ result.mT if left else result.mT @ towards_B)
    return towards_A, towards_B.squeeze(-1) if vector else towards_B


def _triangular_rule(input: Any, B: Any, left: bool) -> Spec:
    name = "linalg.solve_triangular"
    check_square(input, name)
    check_dims(B, name, "B")
    shape = _solution_shape(input.shape, B.shape, left, name)
    if input.dtype not in (float32.numpy, float64.numpy):
        raise no_kernel("triangular_solve_cpu", input)
    if input.dtype != B.dtype:
        raise DTypeMismatch(f"{name}: Expected A and B to have the same dtype")
    return Spec(shape, input.dtype)


@op(_triangular_rule, variants=LINALG_FUNCTION, memory=scratch(3.0), batching=PADDED)
def solve_triangular(
    xp: Any, input: Array, B: Array, *, upper: Bool, left: Bool = True, unitriangular: Bool = False
) -> Any:
    """The solution of ``input @ X = B`` for a triangular matrix; of the other triangle nothing is read."""
    if not left:
        return xp.solve_triangular(input.mT, B.mT, not upper, unitriangular).mT
    return xp.solve_triangular(input, B, upper, unitriangular)


@solve_triangular.joint_derivative
def _triangular_grad(
    F: Any, grad: Any, needs: Any, input: Any, result: Any, upper: bool, left: bool, unitriangular: bool
) -> Any:
    towards_B = F.linalg_solve_triangular(input.mT, grad, upper=not upper, left=left, unitriangular=unitriangular)
    if not needs[0]:
        return None, towards_B
    whole = -(towards_B @ result.mT if left else result.mT @ towards_B)
    return F.triu(whole, int(unitriangular)) if upper else F.tril(whole, -int(unitriangular)), towards_B


# Tensors treated as matrices --------------------------------------------------------------------------


def _rows_of_square(A: Any, at: int, named: str) -> int:
    """The size of the square matrix whose row dimensions are the first ``at``; raises if it is not square."""
    first, second = int(math.prod(A.shape[:at])), math.prod(A.shape[at:])
    if first != second:
        raise ShapeMismatch(
            f"Expected self to satisfy the requirement prod(self.shape[{named}:]) == prod(self.shape[:{named}]), "
            f"but got {second} != {first}"
        )
    return first


@composite(variants=LINALG_FUNCTION)
def tensorinv(F: Any, input: Array, ind: Int = 2) -> Any:
    """The inverse for ``tensordot``, the first ``ind`` dimensions being the rows."""
    if ind <= 0:
        raise InvalidOperation(f"Expected a strictly positive integer for 'ind', but got {ind}")
    if ind > input.ndim:
        raise InvalidOperation(f"ArrayRef: invalid slice, N = {ind}; size = {input.ndim}")
    n = _rows_of_square(input, ind, "ind")
    shape = tuple(input.shape)
    return F.reshape(F.linalg_inv(F.reshape(input, (n, n))), (*shape[ind:], *shape[:ind]))


@composite(variants=LINALG_FUNCTION)
def tensorsolve(F: Any, input: Array, other: Array, dims: OptionalInts = None) -> Any:
    """The X with ``tensordot(input, X, X.ndim) == other``; first ``dims`` are moved to the end."""
    A = input if dims is None else F.movedim(input, dims, tuple(range(input.ndim - len(dims), input.ndim)))
    n = _rows_of_square(A, other.ndim, "other.ndim")
    solution = F.linalg_solve(F.reshape(A, (n, n)), F.reshape(other, (-1,)))
    return F.reshape(solution, tuple(A.shape)[other.ndim :])
