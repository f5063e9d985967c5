"""Activation functions. Formulas: the documentation of torch.nn.functional."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Unpack

import ml_dtypes

from ...dtypes import bool_, is_floating, uint8, widened
from ...errors import InvalidOperation, InvalidValue, ShapeMismatch
from ...schema.declaration import (
    FUNCTION,
    INPLACE,
    INPLACE_ARGUMENT,
    INTERNAL,
    METHOD,
    NN_FUNCTION,
    NO_SCRATCH,
    scratch,
)
from ...schema.op import Op, Options, composite, elementwise, op
from ...schema.parameters import Array, Int, Number, OptionalDType, Str
from ...schema.promotion import FLOAT32_ON_CUDA, LOWER, RESULT_FLOAT32_ON_CUDA
from ...shapes import Spec, wrap_dim
from ..batching import nn_rules
from ..guards import check_floats, kernel_name, no_bools, no_kernel
from ..linalg.matmul import as_rows


def _refuse_bools(input: Any) -> None:
    if input.dtype == bool_.numpy:
        raise InvalidOperation("Boolean inputs not supported for relu")


@elementwise(
    guard=_refuse_bools, variants=FUNCTION | METHOD | INPLACE | NN_FUNCTION | INPLACE_ARGUMENT, memory=NO_SCRATCH
)
def relu(xp: Any, input: Array) -> Any:
    """The input where positive, else 0; its slope at 0 is 0."""
    return xp.maximum(input, xp.zero(input))


relu.derivative(input=lambda F, grad, result: F.relu_backward(grad, result))


@elementwise(variants=INTERNAL, node="ThresholdBackwardBackward0")
def relu_backward(xp: Any, grad_output: Array, result: Array) -> Any:
    """``grad_output * (result != 0)``, as relu let these pass. An op, so that it requires grad if torch's does."""
    return xp.where(result != xp.zero(result), grad_output, 0)


relu_backward.derivative(
    grad_output=lambda F, grad, result: F.relu_backward(grad, result),
    result=lambda F, grad: F.zeros_like(grad),
)


def _softmax_rule(name: str, input: Any, dim: int, dtype: Any) -> Spec:
    axis = wrap_dim(dim, len(input.shape))
    result = Spec(input.shape, input.dtype if dtype is None else dtype.numpy)
    if not is_floating(result.dtype) and 0 not in input.shape:
        raise no_kernel(f"{name}_{'lastdim_' if axis >= len(input.shape) - 1 else ''}kernel_impl", result)
    return result


@op(partial(_softmax_rule, "softmax"), variants=FUNCTION | METHOD | NN_FUNCTION, autocast=RESULT_FLOAT32_ON_CUDA)
def softmax(xp: Any, input: Array, dim: Int, dtype: OptionalDType = None) -> Any:
    """``exp(input)`` scaled to sum to 1 along ``dim``."""
    input = widened(input if dtype is None else input.astype(dtype.numpy))
    return xp.softmax(input, dim) if input.ndim else 1 + (input - input)  # infinities and NaN give NaN


def _fusable(result: Any, dim: int) -> bool:
    """Whether sums along ``dim`` can be fused as row sums: the last dimension, in at least float32."""
    return bool(result.ndim and dim % result.ndim == result.ndim - 1 and result.dtype.itemsize > 2)


def row_sums(xp: Any, x: Any) -> Any:
    """The sums over the last dimension, which is kept with size 1."""
    return xp.reshape(xp.row_sums(as_rows(xp, x)), (*x.shape[:-1], 1))


def _softmax_grad(F: Any, grad: Any, result: Any, dim: int) -> Any:
    if F.xp is not None and _fusable(result, dim):
        return F.xp.affine(grad - row_sums(F.xp, grad * result), result)
    return result * (grad - F.sum(grad * result, (dim,), True))


softmax.derivative(input=_softmax_grad)


@op(partial(_softmax_rule, "log_softmax"), variants=FUNCTION | METHOD | NN_FUNCTION, autocast=RESULT_FLOAT32_ON_CUDA)
def log_softmax(xp: Any, input: Array, dim: Int, dtype: OptionalDType = None) -> Any:
    """The logarithm of the softmax along ``dim``, without overflow."""
    input = widened(input if dtype is None else input.astype(dtype.numpy))
    return xp.log_softmax(input, dim) if input.ndim else input - input


def _log_softmax_grad(F: Any, grad: Any, result: Any, dim: int) -> Any:
    if F.xp is not None and _fusable(result, dim):
        return F.xp.affine(F.xp.exp(result), -row_sums(F.xp, grad), grad)
    return grad - F.exp(result) * F.sum(grad, (dim,), True)


log_softmax.derivative(input=_log_softmax_grad)


def _activation(guard: str | Callable[..., None], **options: Unpack[Options]) -> Callable[[Callable[..., Any]], Op]:
    """Declare an activation, which by default is only in torch.nn.functional.

    ``guard`` checks input and attributes; a string is the name of torch's kernel, which supports only floats.
    """
    if isinstance(guard, str):
        guard = partial(check_floats, guard)
    options = {"variants": NN_FUNCTION, **options}
    return elementwise(guard=guard, **options)


# Piecewise linear ----------------------------------------------------------------------------------------


@_activation("leaky_relu_cpu", variants=NN_FUNCTION | INPLACE_ARGUMENT)
def leaky_relu(xp: Any, input: Array, negative_slope: Number = 0.01) -> Any:
    """The input where positive, else scaled by ``negative_slope``, which is its slope at 0 too."""
    return xp.where(input > 0, input, input * negative_slope)


leaky_relu.derivative(input=lambda F, grad, input, negative_slope: F.where(input > 0, grad, grad * negative_slope))


def _channelwise(F: Any, weight: Any, ndim: int) -> Any:
    return F.reshape(weight, (-1, *(1,) * (ndim - 2)) if ndim > 1 else (1,) * ndim)


def _prelu_rule(input: Any, weight: Any) -> Spec:
    if input.dtype != weight.dtype:
        kinds = f"{kernel_name(input)} and {kernel_name(weight)}"
        raise InvalidOperation(f"prelu: Type promoting not supported. Got {kinds}")
    count = math.prod(weight.shape)
    if count != 1:
        if not input.shape:
            raise InvalidOperation("Not allow zero-dim input tensor.")
        channels = input.shape[1] if len(input.shape) > 1 else 1
        if count != channels:
            found = f"Found parameter numbers = {count} and channel size = {channels}."
            raise ShapeMismatch(f"Mismatch of parameter numbers and input channel size. {found}")
    if len(weight.shape) > 1:
        raise ShapeMismatch(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}")
    check_floats("prelu_cpu", input)
    return Spec(input.shape, input.dtype)


@op(
    _prelu_rule,
    variants=FUNCTION | METHOD | NN_FUNCTION,
    node="PreluKernelBackward0",
    autocast=LOWER,
    batching=nn_rules.prelu,
)
def prelu(xp: Any, input: Array, weight: Array) -> Any:
    """The input where positive, else scaled by ``weight``: one number, or one for each channel (dim 1)."""
    return xp.where(input > 0, input, input * _channelwise(xp, weight, input.ndim))


def _prelu_wrt_weight(F: Any, grad: Any, input: Any, weight_shape: Any) -> Any:
    slopes = F.where(input > 0, 0.0, grad * input)
    if math.prod(weight_shape) == 1:
        return F.reshape(F.sum(slopes), weight_shape)
    return F.sum(slopes, tuple(d for d in range(len(input.shape)) if d != 1))


prelu.derivative(
    input=lambda F, grad, input, weight: F.where(input > 0, grad, grad * _channelwise(F, weight, len(input.shape))),
    weight=_prelu_wrt_weight,
)


def _check_limits(input: Any, min_val: float, max_val: float) -> None:
    if min_val > max_val:
        raise InvalidValue("min_val cannot be greater than max_val")
    if input.dtype == bool_.numpy:
        raise InvalidOperation("Bool inputs not supported for hardtanh")
    if input.dtype == uint8.numpy and (min_val < 0 or max_val < 0):
        raise InvalidOperation("cannot do hardtanh on an unsigned type with negative limits")


@_activation(_check_limits, variants=NN_FUNCTION | INPLACE_ARGUMENT)
def hardtanh(xp: Any, input: Array, min_val: Number = -1.0, max_val: Number = 1.0) -> Any:
    """``input`` kept between ``min_val`` and ``max_val``; the slope on the boundary is 0."""
    return xp.clip(input, min_val, max_val)


def _within(F: Any, grad: Any, input: Any, low: float, high: float) -> Any:
    """The gradient where the input is between the bounds."""
    return F.where(F.logical_and(input > low, input < high), grad, 0.0)


hardtanh.derivative(input=lambda F, grad, input, min_val, max_val: _within(F, grad, input, min_val, max_val))


@_activation(
    lambda input: _check_limits(input, 0, 6), variants=NN_FUNCTION | INPLACE_ARGUMENT, node="HardtanhBackward0"
)
def relu6(xp: Any, input: Array) -> Any:
    """``input`` kept between 0 and 6; the slope on the boundary is 0."""
    return xp.clip(input, 0, 6)


relu6.derivative(input=lambda F, grad, input: _within(F, grad, input, 0, 6))


@_activation("hardsigmoid_cpu", variants=NN_FUNCTION | INPLACE_ARGUMENT)
def hardsigmoid(xp: Any, input: Array) -> Any:
    """``relu6(input + 3) / 6``."""
    return xp.clip(input + 3, 0, 6) / 6


# The slope is constant: torch has no second derivative of hardsigmoid, and its first has float32 precision.
hardsigmoid.derivative(input=lambda F, grad, input: _within(F, grad / 6, input, -3, 3))


@_activation("hardswish_cpu", variants=NN_FUNCTION | INPLACE_ARGUMENT)
def hardswish(xp: Any, input: Array) -> Any:
    """``input * relu6(input + 3) / 6``; its slope is 0 at -3 and 1 at 3."""
    return input * xp.clip(input + 3, 0, 6) / 6


hardswish.derivative(
    input=lambda F, grad, input: F.where(input <= -3, 0.0, F.where(input >= 3, grad, grad * (input / 3 + 0.5)))
)

# Exponential ---------------------------------------------------------------------------------------------

SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _elu(xp: Any, input: Any, alpha: float, scale: float) -> Any:
    return xp.where(input > 0, input * scale, xp.expm1(xp.minimum(input, 0)) * (alpha * scale))


def _elu_grad(F: Any, grad: Any, input: Any, alpha: float, scale: float) -> Any:
    below = F.where(input >= 0, 0.0, input)  # the branch that is not selected would overflow
    return F.where(input > 0, grad * scale, grad * F.exp(below) * (alpha * scale))


@_activation("elu_cpu", variants=NN_FUNCTION | INPLACE_ARGUMENT, memory=scratch(1.25))
def elu(xp: Any, input: Array, alpha: Number = 1.0) -> Any:
    """The input where positive, else ``alpha * (exp(input) - 1)``."""
    return _elu(xp, input, alpha, 1.0)


elu.derivative(input=lambda F, grad, input, alpha: _elu_grad(F, grad, input, alpha, 1.0))


@_activation("elu_cpu", variants=FUNCTION | NN_FUNCTION | INPLACE_ARGUMENT, node="EluBackward0", memory=scratch(1.25))
def selu(xp: Any, input: Array) -> Any:
    """elu, scaled so that layers keep mean 0 and variance 1 (Klambauer et al. 2017)."""
    return _elu(xp, input, SELU_ALPHA, SELU_SCALE)


selu.derivative(input=lambda F, grad, input: _elu_grad(F, grad, input, SELU_ALPHA, SELU_SCALE))


@_activation("silu_cpu", variants=NN_FUNCTION | INPLACE_ARGUMENT)
def silu(xp: Any, input: Array) -> Any:
    """``input * sigmoid(input)``, also called swish."""
    return input / (1 + xp.exp(-input))


def _silu_grad(F: Any, grad: Any, input: Any) -> Any:
    gate = F.sigmoid(input)
    return grad * gate * (1 + input * (1 - gate))


silu.derivative(input=_silu_grad)


@_activation("softplus_cpu", memory=scratch(1.25), autocast=FLOAT32_ON_CUDA)
def softplus(xp: Any, input: Array, beta: Number = 1, threshold: Number = 20) -> Any:
    """``log(1 + exp(beta * input)) / beta``; the input itself where ``beta * input`` is above ``threshold``."""
    scaled = input * beta
    return xp.where(scaled > threshold, input, xp.log1p(xp.exp(xp.minimum(scaled, threshold))) / beta)


def _softplus_grad(F: Any, grad: Any, input: Any, beta: float, threshold: float) -> Any:
    scaled = input * beta
    below = F.where(scaled >= threshold, threshold, scaled)  # torch's second derivative is 0 from the threshold on
    return F.where(scaled > threshold, grad, grad * F.sigmoid(below))


softplus.derivative(input=_softplus_grad)


@_activation("mish_cpu", variants=NN_FUNCTION | INPLACE_ARGUMENT)
def mish(xp: Any, input: Array) -> Any:
    """``input * tanh(softplus(input))``."""
    return input * xp.tanh(xp.log1p(xp.exp(input)))


def _mish_grad(F: Any, grad: Any, input: Any) -> Any:
    gate = F.tanh(F.softplus(input))
    return grad * (gate + input * F.sigmoid(input) * (1 - gate * gate))


mish.derivative(input=_mish_grad)


@_activation("log_sigmoid_cpu", node="LogSigmoidBackward0", memory=scratch(1.25))
def logsigmoid(xp: Any, input: Array) -> Any:
    """The logarithm of the sigmoid, without overflow."""
    return xp.minimum(input, 0) - xp.log1p(xp.exp(-xp.absolute(input)))


logsigmoid.derivative(input=lambda F, grad, input: grad * F.sigmoid(-input))


def _check_gelu(input: Any, approximate: str) -> None:
    if approximate not in ("none", "tanh"):
        raise InvalidOperation("approximate argument must be either none or tanh.")
    check_floats("GeluKernelImpl", input)


HALF_ROOT, TANH_SCALE, CUBIC = math.sqrt(0.5), math.sqrt(2 / math.pi), 0.044715


@_activation(_check_gelu)
def gelu(xp: Any, input: Array, *, approximate: Str = "none") -> Any:
    """``input`` times the normal distribution's probability below it, or ``"tanh"``'s approximation of that."""
    if approximate == "tanh":
        return 0.5 * input * (1 + xp.tanh(TANH_SCALE * (input + CUBIC * input * input * input)))
    return input * xp.normal_cdf(input)


def _gelu_grad(F: Any, grad: Any, input: Any, approximate: str) -> Any:
    if approximate == "none" and F.xp is not None and input.ndim:
        # Uses few temporaries; ``grad`` may have additional batch dimensions.
        xp, input = F.xp, widened(input)
        density = xp.affine(xp.exp(xp.affine(input * input, -0.5)), 0.5 * TANH_SCALE)
        return xp.affine(density, input, xp.normal_cdf(input)) * grad
    squared = input * input
    if approximate == "tanh":
        gate = F.tanh(TANH_SCALE * input * (1 + CUBIC * squared))
        slope = (1 - gate * gate) * (1 + 3 * CUBIC * squared) * TANH_SCALE
        return grad * 0.5 * (1 + gate + input * slope)
    density = F.exp(squared * -0.5) * (0.5 * TANH_SCALE)
    return grad * (0.5 * (1 + F.erf(input * HALF_ROOT)) + input * density)


gelu.derivative(input=_gelu_grad)


@composite(variants=NN_FUNCTION, autocast=RESULT_FLOAT32_ON_CUDA)
def softmin(F: Any, input: Array, dim: Int, *, dtype: OptionalDType = None) -> Any:
    """The softmax of ``-input`` along ``dim``."""
    return F.softmax(-input, dim, dtype=dtype)


@composite(variants=NN_FUNCTION)
def glu(F: Any, input: Array, dim: Int = -1) -> Any:
    """The first half along ``dim`` times the sigmoid of the second (Dauphin et al. 2017)."""
    if not input.shape:
        raise ShapeMismatch("glu does not support scalars because halving size must be even")
    axis = wrap_dim(dim, len(input.shape))
    size = input.shape[axis]
    if size % 2:
        raise ShapeMismatch(f"Halving dimension must be even, but dimension {axis} is size {size}")
    check_floats("glu_cpu", input)
    return F.narrow(input, axis, 0, size // 2) * F.sigmoid(F.narrow(input, axis, size // 2, size // 2))


@composite(variants=NN_FUNCTION)
def softsign(F: Any, input: Array) -> Any:
    """``input / (1 + abs(input))``."""
    return input / (F.abs(input) + 1)


@composite(variants=NN_FUNCTION)
def tanhshrink(F: Any, input: Array) -> Any:
    """``input - tanh(input)``."""
    return input - F.tanh(input)


def _check_celu(input: Any, alpha: float) -> None:
    if alpha == 0:
        raise InvalidOperation("ZeroDivisionError: alpha cannot be 0 for CELU")
    check_floats("elu_cpu", input)


@_activation(_check_celu, variants=FUNCTION | NN_FUNCTION | INPLACE_ARGUMENT)
def celu(xp: Any, input: Array, alpha: Number = 1.0) -> Any:
    """The input where positive, else ``alpha * (exp(input / alpha) - 1)`` (Barron 2017)."""
    return xp.where(input > 0, input, alpha * xp.expm1(xp.where(input > 0, 0, input) / alpha))


celu.derivative(
    # At 0 the second derivative is that of the linear side, as in torch.
    input=lambda F, grad, input, alpha: F.where(input >= 0, grad, grad * F.exp(F.where(input >= 0, 0.0, input) / alpha))
)


@_activation("hardshrink_cpu", variants=FUNCTION | METHOD | NN_FUNCTION)
def hardshrink(xp: Any, input: Array, lambd: Number = 0.5) -> Any:
    """0 where the input is from ``-lambd`` to ``lambd``, else the input."""
    return xp.where(xp.logical_and(input >= -lambd, input <= lambd), 0, input)


def _shrink_grad(F: Any, grad: Any, input: Any, lambd: float) -> Any:
    return F.where(F.logical_or(input > lambd, input < -lambd), grad, 0.0)


hardshrink.derivative(input=_shrink_grad)


def _check_softshrink(input: Any, lambd: float) -> None:
    check_floats("softshrink_check", input)
    most = float(ml_dtypes.finfo(input.dtype).max)  # type: ignore[no-untyped-call]
    if not 0 <= lambd <= most:
        kind = kernel_name(input)
        raise InvalidOperation(f"lambda must be in range [0, {most:g}] for input dtype {kind}, but found {lambd:g}")


@_activation(_check_softshrink, memory=scratch(2.0))
def softshrink(xp: Any, input: Array, lambd: Number = 0.5) -> Any:
    """The input brought nearer to 0 by ``lambd``."""
    return xp.where(input > lambd, input - lambd, xp.where(input < -lambd, input + lambd, input * 0))


softshrink.derivative(input=_shrink_grad)


@_activation(no_bools("threshold_cpu"), variants=FUNCTION | NN_FUNCTION | INPLACE_ARGUMENT)
def threshold(xp: Any, input: Array, threshold: Number, value: Number) -> Any:
    """The input where it is above ``threshold``, else ``value``."""
    return xp.where(input <= threshold, xp.asarray(value).astype(input.dtype), input)


threshold.derivative(input=lambda F, grad, input, threshold: F.where(input <= threshold, 0.0, grad))
