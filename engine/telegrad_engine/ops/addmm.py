"""A product of matrices or vectors added to a tensor, each with a factor."""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import FLOATING, bool_, from_numpy, widened
from ..errors import DTypeMismatch, NotImplementedForDType, ShapeMismatch
from ..schema.op import op
from ..schema.parameters import Array, Number
from ..shapes import Spec, expanded_shape, size_at
from .linalg import product


def kind_names(*tensors: Any) -> list[str]:
    """What torch calls the dtypes of these in its texts."""
    return [from_numpy(x.dtype).kernel_name for x in tensors]


def _sum_spec(input: Any, product: tuple[int, ...], kernel: str) -> Spec:
    if input.dtype == bool_.numpy:
        raise NotImplementedForDType(f"\"{kernel}\" not implemented for 'Bool'")
    return Spec(expanded_shape(input.shape, input.dtype, product), input.dtype)


def _weighted(xp: Any, input: Any, matrix: Any, beta: float, alpha: float) -> Any:
    """``beta * input + alpha * matrix``, where a ``beta`` of 0 also drops NaN, and integers take whole factors."""
    if input.dtype not in FLOATING:
        beta, alpha = int(beta), int(alpha)
    if alpha != 1:
        matrix = matrix * alpha
    if beta == 0:
        return matrix
    input = widened(input)
    return xp.add(matrix, input if beta == 1 else input * beta)


def _same_dtypes(input: Any, mat1: Any, mat2: Any) -> None:
    if mat1.dtype != mat2.dtype:
        raise DTypeMismatch("mat1 and mat2 must have the same dtype, but got {} and {}".format(*kind_names(mat1, mat2)))
    if input.dtype != mat2.dtype:
        raise DTypeMismatch(
            "self and mat2 must have the same dtype, but got {} and {}".format(*kind_names(input, mat2))
        )


def _addmm_rule(input: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1) -> Spec:
    for x, name in ((mat1, "mat1"), (mat2, "mat2")):
        if len(x.shape) != 2:
            raise ShapeMismatch(f"{name} must be a matrix, got {len(x.shape)}-D tensor")
    (n, k), (j, m) = mat1.shape, mat2.shape
    if k != j:
        raise ShapeMismatch(f"mat1 and mat2 shapes cannot be multiplied ({n}x{k} and {j}x{m})")
    _same_dtypes(input, mat1, mat2)
    return _sum_spec(input, (n, m), "addmm_impl_cpu_")


@op(_addmm_rule, inplace=True, scratch=1.25)
def addmm(xp: Any, input: Array, mat1: Array, mat2: Array, *, beta: Number = 1, alpha: Number = 1) -> Any:
    """``beta * input + alpha * (mat1 @ mat2)``."""
    return _weighted(xp, input, product(xp, mat1, mat2), beta, alpha)


addmm.derivative(
    input=lambda F, grad, beta: grad * beta,
    mat1=lambda F, grad, mat2, alpha: grad @ mat2.mT * alpha,
    mat2=lambda F, grad, mat1, alpha: mat1.mT @ grad * alpha,
)


def _addmv_rule(input: Any, mat: Any, vec: Any, *, beta: float = 1, alpha: float = 1) -> Spec:
    if len(mat.shape) != 2 or len(vec.shape) != 1 or len(input.shape) > 1:
        dims = ", ".join(str(len(x.shape)) for x in (input, mat, vec))
        raise ShapeMismatch(f"vector + matrix @ vector expected, got {dims}")
    n, k = mat.shape
    size = math.prod(input.shape)
    if vec.shape[0] != k or size not in (1, n):
        size_at(input.shape, 0)
        raise ShapeMismatch(f"size mismatch, got input ({size}), mat ({n}x{k}), vec ({vec.shape[0]})")
    if not input.dtype == mat.dtype == vec.dtype:
        names = "{}, {}, and {}".format(*kind_names(input, mat, vec))
        raise DTypeMismatch(f"addmv input tensors must have the same dtype, but got {names}")
    return _sum_spec(input, (n,), "addmv_impl_cpu")


@op(_addmv_rule, inplace=True, scratch=1.25)
def addmv(xp: Any, input: Array, mat: Array, vec: Array, *, beta: Number = 1, alpha: Number = 1) -> Any:
    """``beta * input + alpha * (mat @ vec)``."""
    return _weighted(xp, input, product(xp, mat, vec), beta, alpha)


addmv.derivative(
    input=lambda F, grad, beta: grad * beta,
    mat=lambda F, grad, vec, alpha: F.unsqueeze(grad, -1) * vec * alpha,
    vec=lambda F, grad, mat, alpha: mat.mT @ grad * alpha,
)


def _baddbmm_rule(input: Any, batch1: Any, batch2: Any, *, beta: float = 1, alpha: float = 1) -> Spec:
    size_at(batch1.shape, 0)
    size_at(batch1.shape, 1)
    size_at(batch2.shape, 2)
    if len(batch1.shape) != 3:
        raise ShapeMismatch("batch1 must be a 3D tensor")
    if len(batch2.shape) != 3:
        raise ShapeMismatch("batch2 must be a 3D tensor")
    b, n, k = batch1.shape
    if batch2.shape[:2] != (b, k):
        raise ShapeMismatch(
            f"Expected size for first two dimensions of batch2 tensor to be: [{b}, {k}] "
            f"but got: [{batch2.shape[0]}, {batch2.shape[1]}]."
        )
    if batch1.dtype != batch2.dtype and batch1.dtype != bool_.numpy:
        raise DTypeMismatch("expected scalar type {} but found {}".format(*kind_names(batch1, batch2)))
    if input.dtype != batch1.dtype:
        names = "input {}, batch1: {}, batch2: {}".format(*[n.lower() for n in kind_names(input, batch1, batch2)])
        raise DTypeMismatch(f"Input dtypes must be the same, got: {names}")
    return _sum_spec(input, (b, n, batch2.shape[2]), "baddbmm")


@op(_baddbmm_rule, inplace=True)
def baddbmm(xp: Any, input: Array, batch1: Array, batch2: Array, *, beta: Number = 1, alpha: Number = 1) -> Any:
    """``beta * input + alpha * (batch1 @ batch2)``, matrix by matrix."""
    return _weighted(xp, input, product(xp, batch1, batch2), beta, alpha)


def _addbmm_rule(input: Any, batch1: Any, batch2: Any, *, beta: float = 1, alpha: float = 1) -> Spec:
    for x, name, dim in ((batch1, "batch1", 1), (batch2, "batch2", 2)):
        size_at(x.shape, dim)
        if len(x.shape) != 3:
            raise ShapeMismatch(f"{name} must be a 3D tensor")
    (b, n, k), (c, j, m) = batch1.shape, batch2.shape
    expanded_shape(input.shape, input.dtype, (n, m))
    if b != c:
        raise ShapeMismatch(f"batch1 and batch2 must have same number of batches, got {b} and {c}")
    if k != j:
        raise ShapeMismatch(f"Incompatible matrix sizes for bmm ({n}x{k} and {j}x{m})")
    _same_dtypes(input, batch1, batch2)
    return _sum_spec(input, (n, m), "addmm_impl_cpu_")


@op(_addbmm_rule, inplace=True)
def addbmm(xp: Any, input: Array, batch1: Array, batch2: Array, *, beta: Number = 1, alpha: Number = 1) -> Any:
    """``beta * input + alpha * (batch1 @ batch2)``, the matrices of the batch summed."""
    return _weighted(xp, input, xp.sum(product(xp, batch1, batch2), axis=0), beta, alpha)


for _batched in (baddbmm, addbmm):
    _batched.derivative(
        input=lambda F, grad, beta: grad * beta,
        batch1=lambda F, grad, batch2, alpha: grad @ batch2.mT * alpha,
        batch2=lambda F, grad, batch1, alpha: batch1.mT @ grad * alpha,
    )
