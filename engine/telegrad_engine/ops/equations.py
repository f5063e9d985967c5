"""Linear equations, in batches of matrices.

The derivatives: Giles, "Collected matrix derivative results" (2008).
"""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import float32, float64, from_numpy, widened
from ..errors import DTypeMismatch, InvalidOperation, LinAlgError, NotImplementedForDType, ShapeMismatch
from ..schema.op import composite, op
from ..schema.parameters import Array, Bool, Int, OptionalInts
from ..shapes import Shape, Spec, broadcast_shapes
from .inverses import check_matrix, check_square, which


def _is_vector(A: Shape, B: Shape) -> bool:
    """Whether B is a batch of vectors rather than of matrices."""
    return len(B) == 1 or (len(A) - 1 == len(B) and A[:-1] == B)


def _solution_shape(A: Shape, B: Shape, left: bool, name: str) -> Shape:
    n = A[-1]
    if B[-2 if left else -1] != n:
        equation = "AX = B" if left else "XA = B"
        raise ShapeMismatch(
            f"{name}: Incompatible shapes of A and B for the equation {equation} ({n}x{n} and {B[-2]}x{B[-1]})"
        )
    return broadcast_shapes(B[:-2], A[:-2]) + B[-2:]


def _solve_rule(A: Any, B: Any, *, left: bool = True) -> Spec:
    name = "linalg.solve"
    check_square(A, name)
    check_matrix(A, name)
    if A.dtype != B.dtype:
        kinds = [from_numpy(x.dtype).kernel_name for x in (A, B)]
        raise DTypeMismatch(
            f"{name}: Expected A and B to have the same dtype, but found A of type {kinds[0]} and B of type "
            f"{kinds[1]} instead"
        )
    vector = _is_vector(tuple(A.shape), tuple(B.shape))
    if not vector:
        check_matrix(B, name, letter="B")
    shape = _solution_shape(A.shape, (*B.shape, 1) if vector else B.shape, left, name)
    return Spec(shape[:-1] if vector else shape, A.dtype)


@op(_solve_rule, namespace="torch.linalg", node="LinalgSolveExBackward0", scratch=2.0)
def solve(xp: Any, A: Array, B: Array, *, left: Bool = True) -> Any:
    """The solution of ``A @ X = B``, or of ``X @ A = B`` where not ``left``; B may be vectors."""
    vector = _is_vector(A.shape, B.shape)
    A, B = widened(A), widened(B)
    right = B[..., None] if vector else B
    try:
        result = xp.linalg.solve(A, right) if left else xp.linalg.solve(A.mT, right.mT).mT
    except xp.linalg.LinAlgError:
        batch, _ = which(A, xp.zero_pivot)
        text = f"torch.linalg.solve: {batch}The solver failed because the input matrix is singular."
        raise LinAlgError(text) from None
    return result[..., 0] if vector else result


def _solve_grad(F: Any, grad: Any, needs: Any, A: Any, B_shape: Any, result: Any, left: bool) -> Any:
    vector = _is_vector(tuple(A.shape), B_shape)
    if vector:
        grad, result = F.unsqueeze(grad, -1), F.unsqueeze(result, -1)
    towards_B = F.linalg_solve(A.mT, grad, left=left)
    towards_A = None
    if needs[0]:
        towards_A = -(towards_B @ result.mT if left else result.mT @ towards_B)
    return towards_A, towards_B.squeeze(-1) if vector else towards_B


solve.joint_derivative(_solve_grad)


def _triangular_rule(input: Any, B: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Spec:
    name = "linalg.solve_triangular"
    if len(B.shape) < 2:
        check_square(input, name)
        raise ShapeMismatch(f"{name}: The input tensor B must have at least 2 dimensions.")
    check_square(input, name)
    shape = _solution_shape(input.shape, B.shape, left, name)
    if input.dtype not in (float32.numpy, float64.numpy):
        kind = from_numpy(input.dtype).kernel_name
        raise NotImplementedForDType(f"\"triangular_solve_cpu\" not implemented for '{kind}'")
    if input.dtype != B.dtype:
        raise DTypeMismatch(f"{name}: Expected A and B to have the same dtype")
    return Spec(shape, input.dtype)


@op(_triangular_rule, namespace="torch.linalg", scratch=3.0)
def solve_triangular(
    xp: Any, input: Array, B: Array, *, upper: Bool, left: Bool = True, unitriangular: Bool = False
) -> Any:
    """The solution of ``input @ X = B`` for a triangular matrix; of the other triangle nothing is read."""
    if not left:
        return xp.solve_triangular(input.mT, B.mT, not upper, unitriangular).mT
    return xp.solve_triangular(input, B, upper, unitriangular)


def _triangular_grad(
    F: Any, grad: Any, needs: Any, input: Any, result: Any, upper: bool, left: bool, unitriangular: bool
) -> Any:
    towards_B = F.linalg_solve_triangular(input.mT, grad, upper=not upper, left=left, unitriangular=unitriangular)
    if not needs[0]:
        return None, towards_B
    whole = -(towards_B @ result.mT if left else result.mT @ towards_B)
    return F.triu(whole, int(unitriangular)) if upper else F.tril(whole, -int(unitriangular)), towards_B


solve_triangular.joint_derivative(_triangular_grad)


# Of tensors as if they were matrices ------------------------------------------------------------------


def _check_parts(A: Any, at: int, named: str) -> tuple[int, int]:
    first, second = math.prod(A.shape[:at]), math.prod(A.shape[at:])
    if first != second:
        raise ShapeMismatch(
            f"Expected self to satisfy the requirement prod(self.shape[{named}:]) == prod(self.shape[:{named}]), "
            f"but got {second} != {first}"
        )
    return first, second


@composite(
    namespace="torch.linalg",
)
def tensorinv(F: Any, input: Array, ind: Int = 2) -> Any:
    """The inverse for ``tensordot``, the first ``ind`` dimensions being the rows."""
    if ind <= 0:
        raise InvalidOperation(f"Expected a strictly positive integer for 'ind', but got {ind}")
    if ind > input.ndim:
        raise InvalidOperation(f"ArrayRef: invalid slice, N = {ind}; size = {input.ndim}")
    n, _ = _check_parts(input, ind, "ind")
    shape = tuple(input.shape)
    return F.reshape(F.linalg_inv(F.reshape(input, (n, n))), (*shape[ind:], *shape[:ind]))


@composite(
    namespace="torch.linalg",
)
def tensorsolve(F: Any, input: Array, other: Array, dims: OptionalInts = None) -> Any:
    """The X with ``tensordot(input, X, X.ndim) == other``; first ``dims`` are moved to the end."""
    A = input if dims is None else F.movedim(input, dims, tuple(range(input.ndim - len(dims), input.ndim)))
    n, _ = _check_parts(A, other.ndim, "other.ndim")
    solution = F.linalg_solve(F.reshape(A, (n, n)), F.reshape(other, (-1,)))
    return F.reshape(solution, tuple(A.shape)[other.ndim :])
