"""Normalization of each channel (dim 1) over the batch or over each sample, with its running statistics."""

from __future__ import annotations

import math
from typing import Any

from ...context import no_grad, state
from ...dtypes import widened
from ...errors import GradRequired, InvalidOperation, InvalidValue, ShapeMismatch
from ...schema.declaration import INTERNAL, NN_FUNCTION, hiding, scratch
from ...schema.op import composite, op
from ...schema.parameters import Array, Bool, Number
from ...shapes import Spec, size_at, torch_size, wrap_dim
from ..batching import nn_rules
from ..guards import check_floats
from .normalization import (
    but_channels,
    by_channel,
    check_mixed,
    moments_of,
    per_channel,
    scaled,
    scaled_shifted,
    standardise,
    standardised,
    standardised_grad,
    through,
)


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
