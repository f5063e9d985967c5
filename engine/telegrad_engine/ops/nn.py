"""Activations and the softmaxes."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..dtypes import bool_, from_numpy, is_floating, widened
from ..errors import InvalidOperation, NotImplementedForDType
from ..schema.op import elementwise, op
from ..schema.parameters import Array, Int, OptionalDType
from ..shapes import Spec, wrap_dim
from .linalg import as_rows


def _no_bool(input: Any) -> None:
    if input.dtype == bool_.numpy:
        raise InvalidOperation("Boolean inputs not supported for relu")


@elementwise(functional=True, takes_inplace=True, guard=_no_bool, scratch=0.0)
def relu(xp: Any, input: Array) -> Any:
    """The input where positive, else 0; its slope at 0 is 0."""
    return xp.maximum(input, xp.zero(input))


relu.derivative(input=lambda F, grad, result: F.relu_backward(grad, result))


@elementwise(private=True, inplace=False, node="ThresholdBackwardBackward0")
def relu_backward(xp: Any, grad_output: Array, result: Array) -> Any:
    """The gradient where relu let its input pass. An op, so that it requires grad when torch's does."""
    return grad_output * (result > xp.zero(result))


relu_backward.derivative(
    grad_output=lambda F, grad, result: F.relu_backward(grad, result),
    result=lambda F, grad: F.zeros_like(grad),
)


def _softmax_rule(name: str, input: Any, dim: int, dtype: Any = None) -> Spec:
    wrap_dim(dim, len(input.shape))
    result = input.dtype if dtype is None else dtype.numpy
    if not is_floating(result) and 0 not in input.shape:
        last = dim % max(len(input.shape), 1) == max(len(input.shape), 1) - 1
        raise NotImplementedForDType(
            f"\"{name}_{'lastdim_' if last else ''}kernel_impl\" not implemented for '{from_numpy(result).kernel_name}'"
        )
    return Spec(input.shape, result)


@op(partial(_softmax_rule, "softmax"), functional=True)
def softmax(xp: Any, input: Array, dim: Int, dtype: OptionalDType = None) -> Any:
    """``exp(input)`` scaled to sum to 1 along ``dim``."""
    if dtype is not None:
        input = input.astype(dtype.numpy)
    input = widened(input)
    return xp.softmax(input, dim) if input.ndim else 1 + (input - input)  # what is not finite gives NaN


def _fusable(result: Any, dim: int) -> bool:
    """Whether the sums along ``dim`` are dot products of rows, in a precision to add up in."""
    return bool(result.ndim and dim % result.ndim == result.ndim - 1 and result.dtype.itemsize > 2)


def row_sums(xp: Any, x: Any) -> Any:
    """The sums over the last dimension, which stays."""
    return xp.reshape(xp.row_sums(as_rows(xp, x)), (*x.shape[:-1], 1))


def _softmax_grad(F: Any, grad: Any, result: Any, dim: int) -> Any:
    if F.xp is not None and _fusable(result, dim):
        return F.xp.affine(grad - row_sums(F.xp, grad * result), result)
    return result * (grad - F.sum(grad * result, (dim,), True))


softmax.derivative(input=_softmax_grad)


@op(partial(_softmax_rule, "log_softmax"), functional=True)
def log_softmax(xp: Any, input: Array, dim: Int, dtype: OptionalDType = None) -> Any:
    """The logarithm of the softmax along ``dim``, without overflow."""
    if dtype is not None:
        input = input.astype(dtype.numpy)
    input = widened(input)
    return xp.log_softmax(input, dim) if input.ndim else input - input


def _log_softmax_grad(F: Any, grad: Any, result: Any, dim: int) -> Any:
    if F.xp is not None and _fusable(result, dim):
        return F.xp.affine(F.xp.exp(result), -row_sums(F.xp, grad), grad)
    return grad - F.exp(result) * F.sum(grad, (dim,), True)


log_softmax.derivative(input=_log_softmax_grad)
