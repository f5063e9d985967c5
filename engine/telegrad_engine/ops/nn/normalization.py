"""Normalizations of the last dimensions, of groups of channels, and of channels over the batch or over each sample."""

from __future__ import annotations

import math
from typing import Any

from ...context import no_grad, state
from ...dtypes import LOW, float32, float64, is_floating, widened
from ...errors import DTypeMismatch, GradRequired, InvalidOperation, InvalidValue, ShapeMismatch
from ...schema.declaration import INTERNAL, NN_FUNCTION, hiding, scratch
from ...schema.op import composite, op
from ...schema.parameters import Array, Bool, Int, IntOrInts, Ints, Number, OptionalNumber
from ...schema.promotion import FLOAT32_ON_CUDA
from ...shapes import Spec, size_at, torch_size, wrap_dim
from ..batching import nn_rules
from ..guards import check_dtype, check_floats

Dims = tuple[int, ...]


def standardised(xp: Any, x: Any, eps: float) -> tuple[Any, Any, Any]:
    """Normalize each group of ``x`` (outer, group, inner) to mean 0 and variance 1; return it, the mean and the scale.

    Half precision is computed in float32.
    """
    x = widened(x)
    count = max(x.shape[0] * x.shape[2], 1)
    mean = xp.einsum("ogi->g", x)[:, None] / count
    centred = x - mean
    scale = 1 / xp.sqrt(xp.einsum("ogi,ogi->g", centred, centred)[:, None] / count + eps)
    return xp.affine(centred, scale), mean, scale


def moments_of(input: Any, groups: int) -> list[Spec]:
    """The specs of the mean and the scale that a normalization saves for each group."""
    return [Spec((groups, 1), input.dtype)] * 2


def standardised_grad(xp: Any, grad: Any, standard: Any, scale: Any) -> Any:
    """Like ``through``, for (outer, group, inner), fused; ``standard`` is overwritten."""
    count = max(grad.shape[0] * grad.shape[2], 1)
    level = xp.einsum("ogi->g", grad)[:, None] / count
    along = xp.einsum("ogi,ogi->g", grad, standard)[:, None] / count
    return xp.affine(xp.affine(standard, -along, grad), scale, -level * scale)


def scaled(x: Any, weight: Any) -> Any:
    """``x`` times ``weight``, unless it is None."""
    return x if weight is None else x * weight


def scaled_shifted(xp: Any, own: Any, weight: Any, bias: Any) -> Any:
    """``own`` times ``weight`` plus ``bias``, each unless it is None; ``own`` may be overwritten."""
    return own if weight is None and bias is None else xp.affine(own, 1 if weight is None else weight, bias)


def standardise(F: Any, x: Any, dims: Dims, eps: float) -> tuple[Any, Any]:
    """Normalize ``x`` to mean 0 and variance 1 over ``dims``, differentiably; return it and the scale."""
    centred = x - F.mean(x, dims, True)
    scale = F.rsqrt(F.mean(centred * centred, dims, True) + eps)
    return centred * scale, scale


def through(F: Any, grad: Any, standard: Any, scale: Any, dims: Dims) -> Any:
    """The gradient through a normalization: without its components along 1 and along the result, times the scale."""
    return scale * (grad - F.mean(grad, dims, True) - standard * F.mean(grad * standard, dims, True))


def check_mixed(input: Any, *parameters: Any) -> None:
    """Raise unless the parameters have the input's dtype, or float32 if the input has half precision."""
    given = [parameter.dtype for parameter in parameters if parameter is not None]
    if not given:
        return
    if given[0] == input.dtype:
        if is_floating(input.dtype):  # integers raise later, because they have no kernel
            for parameter in parameters:
                check_dtype(parameter, input.dtype)
    elif any(dtype != float32.numpy for dtype in given):
        raise DTypeMismatch("mixed dtype (CPU): expect parameter to have scalar type of Float")
    elif input.dtype not in LOW:
        raise DTypeMismatch("mixed dtype (CPU): all inputs must share same datatype.")


def _check_normalized(input: Any, shape: Any, lead: str, counted: bool = False, **parameters: Any) -> None:
    """Raise for shapes that do not match; if ``counted``, too few dimensions have an error of their own."""
    if not shape:
        raise InvalidOperation(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, "
            "but got normalized_shape = []"
        )
    for name, parameter in parameters.items():
        if parameter is not None and parameter.shape != tuple(shape):
            raise ShapeMismatch(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of shape "
                f"{list(parameter.shape)} and normalized_shape = {list(shape)}"
            )
    if counted and len(input.shape) < len(shape):
        raise InvalidValue(f"Input tensor must have at least {len(shape)} dimensions, but got {len(input.shape)}")
    if len(input.shape) < len(shape) or input.shape[len(input.shape) - len(shape) :] != tuple(shape):
        raise ShapeMismatch(
            f"Given normalized_shape={list(shape)}, expected input with shape [{lead}"
            f"{', '.join(map(str, shape))}], but got input of size{list(input.shape)}"
        )


def _split(ndim: int, normalized_shape: Any) -> tuple[Dims, Dims]:
    """Return the leading dimensions and the normalized ones."""
    first = ndim - len(normalized_shape)
    return tuple(range(first)), tuple(range(first, ndim))


def _over(F: Any, x: Any, dims: Dims) -> Any:
    return F.sum(x, dims) if dims else x


def _layer_rule(input: Any, normalized_shape: Any, weight: Any, bias: Any) -> Spec:
    _check_normalized(input, normalized_shape, "*, ", weight=weight, bias=bias)
    check_mixed(input, weight, bias)
    check_floats("LayerNormKernelImpl", input)
    return Spec(input.shape, input.dtype)


def _rows(x: Any, normalized_shape: Any) -> tuple[int, int]:
    """The number of normalized rows, and the number of elements in each."""
    return math.prod(x.shape[: len(x.shape) - len(normalized_shape)]), math.prod(normalized_shape)


@op(
    _layer_rule,
    variants=NN_FUNCTION,
    node="NativeLayerNormBackward0",
    results=hiding(
        "mean",
        "scale",
        rule=lambda input, normalized_shape, weight, bias: moments_of(input, _rows(input, normalized_shape)[0]),
    ),
    autocast=FLOAT32_ON_CUDA,
    batching=nn_rules.layer_norm,
)
def layer_norm(
    xp: Any, input: Array, normalized_shape: Ints, weight: Array = None, bias: Array = None, eps: Number = 1e-5
) -> Any:
    """The input brought to mean 0 and variance 1 over its last dimensions, then scaled and shifted."""
    rows = xp.reshape(widened(input), _rows(input, normalized_shape))
    inverse = 1 / max(rows.shape[1], 1)
    mean = xp.row_sums(rows)[:, None] * inverse
    centred = rows - mean
    scale = 1 / xp.sqrt(xp.einsum("gi,gi->g", centred, centred)[:, None] * inverse + eps)
    standard = xp.reshape(xp.affine(centred, scale), input.shape)
    return scaled_shifted(xp, standard, weight, bias), mean, scale


@layer_norm.joint_derivative
def _layer_grads(
    F: Any, grad: Any, needs: Any, input: Any, weight: Any, normalized_shape: Any, eps: float, mean: Any, scale: Any
) -> Any:
    if F.xp is None:
        lead, dims = _split(len(input.shape), normalized_shape)
        standard, scale = standardise(F, input, dims, eps)
        return (
            through(F, scaled(grad, weight), standard, scale, dims) if needs[0] else None,
            _over(F, grad * standard, lead) if needs[1] else None,
            _over(F, grad, lead) if needs[2] else None,
        )
    xp, shape = F.xp, _rows(input, normalized_shape)
    rows = xp.reshape(widened(grad), shape)
    centred = xp.reshape(widened(input), shape) - mean
    products = rows * centred
    by_weight = xp.reshape(xp.dot(scale[:, 0], products), normalized_shape) if needs[1] else None
    by_bias = xp.reshape(xp.column_sums(rows), normalized_shape) if needs[2] else None
    if not needs[0]:
        return None, by_weight, by_bias
    inverse = 1 / max(shape[1], 1)
    if weight is None:
        inner, level, along = rows, xp.row_sums(rows), xp.row_sums(products)
    else:
        gains = xp.reshape(widened(weight), (-1,))
        inner, level, along = rows * gains, xp.dot(rows, gains), xp.dot(products, gains)
    # The gradient without its components along 1 and along the result, as in ``through``.
    rest = xp.affine(centred, along[:, None] * scale * scale * -inverse, inner)
    by_input = xp.affine(rest, scale, level[:, None] * scale * -inverse)
    return xp.reshape(by_input, input.shape), by_weight, by_bias


def _rms_rule(input: Any, normalized_shape: Any, weight: Any) -> Spec:
    _check_normalized(input, normalized_shape, "*", counted=True, weight=weight)
    check_floats("rms_norm", input)
    return Spec(input.shape, input.dtype)


def _smallest(dtype: Any, eps: float | None) -> float:
    """``eps``, or torch's default: the machine epsilon of the dtype that it computes in."""
    return eps if eps is not None else 2.0**-52 if dtype in (float64, float64.numpy) else 2.0**-23


@op(_rms_rule, variants=NN_FUNCTION, node="MulBackward0", autocast=FLOAT32_ON_CUDA, batching=nn_rules.layer_norm)
def rms_norm(xp: Any, input: Array, normalized_shape: Ints, weight: Array = None, eps: OptionalNumber = None) -> Any:
    """The input over its root mean square over the last dimensions, then scaled (Zhang and Sennrich 2019)."""
    rows = xp.reshape(widened(input), _rows(input, normalized_shape))
    squares = xp.einsum("gi,gi->g", rows, rows)[:, None] / max(rows.shape[1], 1)
    standard = rows / xp.sqrt(squares + _smallest(input.dtype, eps))
    return scaled_shifted(xp, xp.reshape(standard, input.shape), weight, None)


@rms_norm.joint_derivative
def _rms_grads(F: Any, grad: Any, needs: Any, input: Any, weight: Any, normalized_shape: Any, eps: Any) -> Any:
    lead, dims = _split(len(input.shape), normalized_shape)
    scale = F.rsqrt(F.mean(input * input, dims, True) + _smallest(input.dtype, eps))
    standard = input * scale
    inner = scaled(grad, weight)
    return (
        scale * (inner - standard * F.mean(inner * standard, dims, True)) if needs[0] else None,
        _over(F, grad * standard, lead) if needs[1] else None,
    )


@composite(variants=NN_FUNCTION)
def normalize(F: Any, input: Array, p: Number = 2.0, dim: IntOrInts = 1, eps: Number = 1e-12) -> Any:
    """The input over its ``p``-norm along ``dim``, which counts as ``eps`` at least."""
    dims = (dim,) if isinstance(dim, int) else dim
    return input / F.clamp(F.linalg_vector_norm(input, p, dims, True), min=eps)


# Groups of channels in dim 1 -----------------------------------------------------------------------------


def per_channel(F: Any, parameter: Any, ndim: int) -> Any:
    """Reshape a parameter of each channel to broadcast with an input that has its channels in dim 1."""
    return None if parameter is None else F.reshape(parameter, (-1, *(1,) * (ndim - 2)))


def but_channels(ndim: int) -> Dims:
    """All dimensions except the channels'."""
    return tuple(d for d in range(ndim) if d != 1)


def _grouped(input_shape: Any, num_groups: int) -> tuple[int, int, int]:
    """The shape (1, groups of all samples, elements of each group)."""
    return 1, input_shape[0] * num_groups, input_shape[1] // num_groups * math.prod(input_shape[2:])


def by_channel(x: Any) -> tuple[int, int, int]:
    """The shape (samples, channels, elements of each channel)."""
    return x.shape[0], x.shape[1], math.prod(x.shape[2:])


def _group_rule(input: Any, num_groups: int, weight: Any, bias: Any) -> Spec:
    shape = tuple(input.shape)
    if len(shape) < 2:
        raise InvalidOperation(f"Expected at least 2 dimensions for input tensor but received {len(shape)}")
    if num_groups <= 0:
        raise InvalidOperation(f"Expected num groups to be greater than 0, got {num_groups}")
    verified = [shape[0] * shape[1] // num_groups, num_groups, *shape[2:]]
    if verified[0] * math.prod(shape[2:]) == 1:
        raise InvalidValue(f"Expected more than 1 value per channel when training, got input size {verified}")
    if shape[1] % num_groups:
        raise InvalidOperation(
            "Expected number of channels in input to be divisible by num_groups, but got input of shape "
            f"{list(shape)} and num_groups={num_groups}"
        )
    if shape[0] * num_groups >= 2**63:
        raise ShapeMismatch(f"Storage size calculation overflowed with sizes={[shape[0], num_groups]}")
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None and parameter.shape != (shape[1],):
            raise ShapeMismatch(
                f"Expected {name} to be a vector of size equal to the number of channels in input, but got {name} "
                f"of shape {list(parameter.shape)} and input of shape {list(shape)}"
            )
    check_mixed(input, weight, bias)
    check_floats("GroupNormKernelImpl", input)
    return Spec(shape, input.dtype)


@op(
    _group_rule,
    variants=NN_FUNCTION,
    node="NativeGroupNormBackward0",
    results=hiding(
        "mean", "scale", rule=lambda input, num_groups, weight, bias: moments_of(input, input.shape[0] * num_groups)
    ),
    autocast=FLOAT32_ON_CUDA,
    batching=nn_rules.group_norm,
)
def group_norm(
    xp: Any, input: Array, num_groups: Int, weight: Array = None, bias: Array = None, eps: Number = 1e-5
) -> Any:
    """Each group of channels (dim 1) brought to mean 0 and variance 1, then each channel scaled and shifted."""
    standard, mean, scale = standardised(xp, xp.reshape(input, _grouped(input.shape, num_groups)), eps)
    parameters = [per_channel(xp, p, input.ndim) for p in (weight, bias)]
    return scaled_shifted(xp, xp.reshape(standard, input.shape), *parameters), mean, scale


@group_norm.joint_derivative
def _group_grads(
    F: Any, grad: Any, needs: Any, input: Any, weight: Any, num_groups: int, eps: float, mean: Any, scale: Any
) -> Any:
    groups = _grouped(input.shape, num_groups)
    if F.xp is None:
        shape, ndim = tuple(input.shape), len(input.shape)
        standard, scale = standardise(F, F.reshape(input, groups), (2,), eps)
        inner = F.reshape(scaled(grad, per_channel(F, weight, ndim)), groups)
        return (
            F.reshape(through(F, inner, standard, scale, (2,)), shape) if needs[0] else None,
            F.sum(grad * F.reshape(standard, shape), but_channels(ndim)) if needs[1] else None,
            F.sum(grad, but_channels(ndim)) if needs[2] else None,
        )
    xp = F.xp
    channels = xp.reshape(widened(grad), by_channel(input))
    # Recomputing it is cheaper than saving it.
    standard = xp.affine(widened(xp.reshape(input, groups)) - mean, scale)
    by_weight = xp.einsum("oci,oci->c", channels, xp.reshape(standard, channels.shape)) if needs[1] else None
    by_bias = xp.einsum("oci->c", channels) if needs[2] else None
    if not needs[0]:
        return None, by_weight, by_bias
    inner = xp.reshape(channels if weight is None else channels * weight[:, None], groups)
    return xp.reshape(standardised_grad(xp, inner, standard, scale), input.shape), by_weight, by_bias


# Channels (dim 1) over the batch or over each sample, with running statistics ----------------------------


def _check_values(input: Any, training: bool) -> None:
    shape = tuple(input.shape)
    if training and shape[0] * math.prod(shape[2:]) == 1:
        raise InvalidValue(f"Expected more than 1 value per channel when training, got input size {torch_size(shape)}")


def _of_nothing(F: Any, input: Any, weight: Any, bias: Any) -> Any:
    """The result for an input without elements; the running statistics stay unchanged."""
    result = F.clone(input)
    for parameter, combine in ((weight, F.mul), (bias, F.add)):
        if parameter is not None and math.prod(parameter.shape):
            result = combine(result, parameter[0])
    return result


def _check_batch(input: Any, running_mean: Any, running_var: Any, weight: Any, bias: Any, training: bool) -> None:
    shape = tuple(input.shape)
    named = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    if training:
        wrap_dim(1, len(shape))
        _check_values(input, training)
    if training and (running_mean is None) != (running_var is None):
        raise InvalidValue("running_mean and running_var must either both be None or neither be None")
    channels = shape[1] if len(shape) > 1 else 0
    for name, parameter in named.items():
        if parameter is not None and math.prod(parameter.shape) != channels:
            raise ShapeMismatch(f"{name} should contain {channels} elements not {math.prod(parameter.shape)}")
        if parameter is None and not training and name.startswith("running"):
            raise InvalidOperation(f"{name} must be defined in evaluation mode")
        if parameter is not None and name.startswith("running") and len(parameter.shape) != 1:
            raise ShapeMismatch(f"TensorAccessor expected 1 dims but tensor has {len(parameter.shape)}")
    check_floats("batch_norm", input)
    check_mixed(input, weight, bias, running_mean, running_var)


def _batch_rule(input: Any, running_mean: Any, running_var: Any, weight: Any, bias: Any, training: bool) -> list[Spec]:
    _check_batch(input, running_mean, running_var, weight, bias, training)
    kept = input if running_mean is None else running_mean
    return [Spec(tuple(input.shape), input.dtype), *[Spec((input.shape[1],), kept.dtype)] * 2]


@op(
    _batch_rule,
    variants=INTERNAL,
    node="NativeBatchNormBackward0",
    results=hiding(
        "mean",
        "scale",
        rule=lambda input, *_: moments_of(input, input.shape[1]),
        outputs=("result", "batch_mean", "batch_var"),
    ),
    memory=scratch(2.0),
    batching=nn_rules.batch_norm_with_moments,
)
def batch_norm_with_moments(
    xp: Any,
    input: Array,
    running_mean: Array = None,
    running_var: Array = None,
    weight: Array = None,
    bias: Array = None,
    training: Bool = False,
    eps: Number = 1e-5,
) -> Any:
    """What ``batch_norm`` gives, and what its running statistics take up: the mean and the unbiased variance."""
    channels = xp.reshape(input, by_channel(input))
    if training:
        standard, mean, scale = standardised(xp, channels, eps)
        count = channels.shape[0] * channels.shape[2]
        batch = mean[:, 0], (1 / (scale * scale) - eps)[:, 0] * (count / max(count - 1, 1))
    else:
        mean, scale = widened(running_mean)[:, None], 1 / xp.sqrt(widened(running_var)[:, None] + eps)
        standard = xp.affine(widened(channels) - mean, scale)
        batch = running_mean, running_var
    parameters = [None if p is None else xp.reshape(p, (-1, 1)) for p in (weight, bias)]
    return xp.reshape(scaled_shifted(xp, standard, *parameters), input.shape), *batch, mean, scale


@batch_norm_with_moments.joint_derivative
def _batch_grads(
    F: Any, grads: Any, needs: Any, input: Any, weight: Any, training: bool, eps: float, mean: Any, scale: Any
) -> Any:
    """The gradients through the result; the batch statistics have no gradient."""
    grad, by_input = grads[0], None
    if F.xp is None:
        ndim = len(input.shape)
        dims = but_channels(ndim)
        if training:
            standard, scale = standardise(F, input, dims, eps)
        else:
            scale = per_channel(F, scale, ndim)
            standard = (input - per_channel(F, mean, ndim)) * scale
        if needs[0]:
            inner = scaled(grad, per_channel(F, weight, ndim))
            by_input = through(F, inner, standard, scale, dims) if training else inner * scale
        by_weight = F.sum(grad * standard, dims) if needs[3] else None
        by_bias = F.sum(grad, dims) if needs[4] else None
        return by_input, None, None, by_weight, by_bias
    xp, shape = F.xp, by_channel(input)
    channels = xp.reshape(widened(grad), shape)
    standard = xp.affine(widened(xp.reshape(input, shape)) - mean, scale)
    by_weight = xp.einsum("oci,oci->c", channels, standard) if needs[3] else None
    by_bias = xp.einsum("oci->c", channels) if needs[4] else None
    if needs[0]:
        # The weight is constant within a channel, so it can be part of the scale.
        factor = scale if weight is None else scale * weight[:, None]
        by_input = standardised_grad(xp, channels, standard, factor) if training else channels * factor
        by_input = xp.reshape(by_input, input.shape)
    return by_input, None, None, by_weight, by_bias


@composite(variants=NN_FUNCTION)
def batch_norm(
    F: Any,
    input: Array,
    running_mean: Array = None,
    running_var: Array = None,
    weight: Array = None,
    bias: Array = None,
    training: Bool = False,
    momentum: Number = 0.1,
    eps: Number = 1e-5,
) -> Any:
    """Each channel (dim 1) brought to mean 0 and variance 1, over the batch while training, else by what it was so far.

    While training, the running statistics, if given, move towards the batch's by ``momentum``, in place.
    """
    if training and eps <= 0:
        raise InvalidValue(f"batch_norm eps must be positive during training, but got {eps}")
    if eps < 0:
        raise InvalidValue(f"batch_norm eps must be non-negative, but got {eps}")
    return _normalized(F, input, (running_mean, running_var), weight, bias, training, momentum, eps)


def _normalized(
    F: Any, input: Any, running: tuple[Any, Any], weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    """Run ``batch_norm`` with the running statistics ``running`` (mean, variance)."""
    for name, kept in zip(("running_mean", "running_var"), running, strict=True):
        if kept is not None and kept.requires_grad and state.grad_enabled:
            raise GradRequired(
                f"The function 'native_batch_norm' is not differentiable with respect to argument '{name}'. "
                "This input cannot have requires_grad True."
            )
    if not math.prod(input.shape):
        _check_values(input, training)
        return _of_nothing(F, input, weight, bias)
    result, *moments = F.batch_norm_with_moments(input, *running, weight, bias, training, eps)
    if training:
        for kept, moment in zip(running, moments, strict=True):
            if kept is not None:
                with no_grad():
                    kept.mul_(1 - momentum).add_(moment.to(kept.dtype), alpha=momentum)
    return result


@composite(variants=NN_FUNCTION)
def instance_norm(
    F: Any,
    input: Array,
    running_mean: Array = None,
    running_var: Array = None,
    weight: Array = None,
    bias: Array = None,
    use_input_stats: Bool = True,
    momentum: Number = 0.1,
    eps: Number = 1e-5,
) -> Any:
    """Each channel of each sample brought to mean 0 and variance 1: ``batch_norm`` with a batch of one for each."""
    shape = tuple(input.shape)
    if use_input_stats and math.prod(shape[2:]) == 1:
        raise InvalidValue(f"Expected more than 1 spatial element when training, got input size {torch_size(shape)}")
    if not use_input_stats and (running_mean is None or running_var is None):
        raise InvalidOperation("Expected running_mean and running_var to be defined when use_input_stats is false")
    n, channels = size_at(shape, 0), size_at(shape, 1)
    scale, shift = (None if p is None else p._data for p in (weight, bias))
    _check_batch(input._data, None, None, scale, shift, True)

    def each(parameter: Any) -> Any:
        return None if parameter is None else F.repeat(parameter, (n,))

    samples = F.reshape(input, (1, n * channels, *shape[2:]))
    kept = (each(running_mean), each(running_var))
    result = _normalized(F, samples, kept, each(weight), each(bias), use_input_stats, momentum, eps)
    if use_input_stats:
        for running, moved in zip((running_mean, running_var), kept, strict=True):
            if running is not None:
                with no_grad():
                    running.copy_(F.mean(F.reshape(moved, (n, channels)), (0,)))
    return F.reshape(result, shape)
