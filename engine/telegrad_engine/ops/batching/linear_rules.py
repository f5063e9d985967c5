"""Batching rules of matrix products and linear algebra."""

from __future__ import annotations

from typing import Any

from .batched_call import BatchedCall, BatchedValue, shape_of
from .families import decomposition, rule


def _matmul(call: BatchedCall) -> Any:
    """Convert vectors to matrices and multiply, with the batch as a dimension that ``matmul`` broadcasts."""
    F, (a, b) = call.F, call.inputs
    if not isinstance(b, BatchedValue) and (len(shape_of(b)) == 2 or (len(shape_of(a)) > 1 and len(shape_of(b)) == 1)):
        return F.matmul(a.value, b)  # one product: the batch is one more dimension of rows
    ndim = max(len(shape_of(a)), len(shape_of(b)), 2)
    return F.matmul(_as_matrices(call, a, ndim, -2), _as_matrices(call, b, ndim, -1))


matmul = rule(_matmul)


def _as_matrices(call: BatchedCall, value: Any, ndim: int, missing: int) -> Any:
    """Return a vector as a matrix with one row (-2) or one column (-1), and a matrix aligned to ``ndim`` dimensions."""
    if len(shape_of(value)) > 1:
        return call.aligned(value, ndim)
    if not isinstance(value, BatchedValue):
        return call.F.unsqueeze(value, missing)
    matrix = BatchedValue(call.F.unsqueeze(value.value, missing))
    return call.aligned(matrix, ndim)


@rule
def linear(call: BatchedCall) -> Any:
    """Treat the batch as one more dimension of rows if all samples share the weight; otherwise multiply per sample."""
    F, (x, weight, bias) = call.F, call.inputs
    if not isinstance(weight, BatchedValue):
        rows = x.value if isinstance(x, BatchedValue) else x
        if not isinstance(bias, BatchedValue):
            return F.linear(rows, weight, bias)
        product = F.linear(rows, weight)
    else:
        turned = BatchedValue(F.transpose(weight.value, 1, -1))
        product = _matmul(BatchedCall(F, call.size, call.op, (x, turned), {}, call.specs))
        product = F.reshape(product, (call.size, *call.specs[0].shape))
    if bias is None:
        return product
    return product + call.aligned(bias, len(call.specs[0].shape))


@decomposition
def outer(F: Any, input: Any, vec2: Any) -> Any:
    """Multiply a column by a row."""
    return input.unsqueeze(-1) * vec2.unsqueeze(-2)


@decomposition
def addmm(F: Any, input: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> Any:
    """Multiply, scale and add; for matrices, batches of matrices, and vectors."""
    product = F.matmul(a, b)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (input if beta == 1 else input * beta)


@decomposition
def addbmm(F: Any, input: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> Any:
    """Like ``addmm``, with the products of the op's own batch summed."""
    product = F.matmul(a, b).sum(0)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (input if beta == 1 else input * beta)


@rule
def linalg_solve(call: BatchedCall) -> Any:
    """Solve for each sample; vectors on the right-hand side become matrices with one column."""
    F, (A, B), left = call.F, call.inputs, call.attrs["left"]
    a, b = shape_of(A), shape_of(B)
    ndim = max(len(a), len(b))
    if len(b) == 1 or (len(b) == len(a) - 1 and b == a[:-1]):
        B = BatchedValue(F.unsqueeze(B.value, -1)) if isinstance(B, BatchedValue) else F.unsqueeze(B, -1)
        found = call.apply(call.lifted(A), call.aligned(BatchedValue(call.lifted(B)), len(a)), left=True)
        return F.squeeze(found, (-1,))
    return call.apply(
        call.aligned(BatchedValue(call.lifted(A)), ndim), call.aligned(BatchedValue(call.lifted(B)), ndim), left=left
    )


@rule
def linalg_cross(call: BatchedCall) -> Any:
    """Broadcast the samples and count the dimension from the end."""
    dim, ndim = call.attrs["dim"], max(len(shape_of(x)) for x in call.inputs)
    return call.apply(*call.padded(), dim=dim if dim < 0 else dim - ndim)


@decomposition
def trace(F: Any, input: Any) -> Any:
    """Sum the diagonal."""
    return F.diagonal(input).sum()
