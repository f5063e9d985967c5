"""Batching rules of linear algebra, reductions, searching and random ops, whose samples each get their own numbers."""

from __future__ import annotations

import math
from typing import Any

from ...dtypes import is_floating
from .rules import BatchedCall, BatchedValue, decomposition, is_tensor, rule, shape_of


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


@rule
def of_all(call: BatchedCall) -> Any:
    """Reduce all elements of each sample."""
    shape = call.inputs[0].shape
    flat = call.F.reshape(call.inputs[0].value, (call.size, math.prod(shape)))
    if call.op.key == "median" and not math.prod(shape):
        return NotImplemented
    if call.op.key == "prod":
        return call.F.prod_dim(flat, 1, dtype=call.attrs["dtype"])
    if call.op.key == "median":
        return _median(call.F, flat)
    return (call.F.amax if call.op.key == "max" else call.F.amin)(flat, (1,))


def _median(F: Any, rows: Any) -> Any:
    """Return the median of each row, whose gradient is shared by all elements equal to it, as for ``median``."""
    found = F.median_dim(rows.detach(), 1)[0]
    if not is_floating(rows._data.dtype):
        return found
    wanted = F.unsqueeze(found, 1)
    same = F.logical_or(rows == wanted, F.logical_and(F.isnan(rows), F.isnan(wanted)))
    return F.sum(F.where(same, rows, 0.0), (1,)) / F.sum(same, (1,))


@rule
def quantile(call: BatchedCall) -> Any:
    """Compute the quantiles of each sample; NotImplemented if ``q`` differs between samples."""
    F, (x, q), attrs = call.F, call.inputs, dict(call.attrs)
    if isinstance(q, BatchedValue):
        return NotImplemented
    value, dim = x.value, attrs["dim"]
    ndim = len(x.shape)
    if dim is None or not ndim:
        value, dim = F.reshape(value, (call.size, -1)), 0
    else:
        dim = dim % ndim
    found = call.apply(value, q, **{**attrs, "dim": dim + 1, "keepdim": False if not ndim else attrs["keepdim"]})
    return F.movedim(found, 1, 0) if shape_of(q) else found


@rule
def searchsorted(call: BatchedCall) -> Any:
    """Search the sequences of all samples in one call; with one sequence per sample, the values are flattened."""
    F, (sequence, values, sorter) = call.F, call.inputs
    lifted = [None if x is None else call.lifted(x) for x in (sequence, sorter)]
    if not is_tensor(values):
        wanted: Any = F.full((call.size, 1), values)
    elif len(shape_of(sequence)) > 1:
        wanted = call.lifted(values)
    else:
        wanted = F.reshape(call.lifted(values), (call.size, -1))
    return call.apply(lifted[0], wanted, lifted[1], **call.attrs)


@rule
def randperm(call: BatchedCall) -> Any:
    """Draw a permutation for each sample."""
    return call.F.stack([call.apply(**call.attrs) for _ in range(call.size)])


@rule
def multinomial(call: BatchedCall) -> Any:
    """Draw for the rows of all samples in one call."""
    (x,) = call.inputs
    shape = shape_of(call.inputs[0])
    rows = call.F.reshape(call.lifted(x), (-1, shape[-1]))
    return call.apply(rows, **call.attrs)
