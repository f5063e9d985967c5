"""Normalisation of channels (dim 1) in groups, and what normalisations of channels share."""

from __future__ import annotations

import math
from typing import Any

from ..errors import InvalidOperation, InvalidValue, ShapeMismatch
from ..schema.op import op
from ..schema.parameters import Array, Int, Number
from ..shapes import Spec
from .normalization import (
    Dims,
    affine,
    check_floats,
    check_mixed,
    restandardised,
    scaled_shifted,
    standardise,
    standardised,
    standardised_grad,
    through,
    widened,
)


def per_channel(F: Any, parameter: Any, ndim: int) -> Any:
    """A parameter of each channel, to go with an input of channels in dim 1."""
    return None if parameter is None else F.reshape(parameter, (-1, *(1,) * (ndim - 2)))


def but_channels(ndim: int) -> Dims:
    """All dimensions but the channels'."""
    return tuple(d for d in range(ndim) if d != 1)


def _grouped(input_shape: Any, num_groups: int) -> tuple[int, int, int]:
    """(1, groups of all samples, the elements of each)."""
    return 1, input_shape[0] * num_groups, input_shape[1] // num_groups * math.prod(input_shape[2:])


def by_channel(x: Any) -> tuple[int, int, int]:
    """(samples, channels, elements of each)."""
    return x.shape[0], x.shape[1], math.prod(x.shape[2:])


def _group_rule(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Spec:
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


def _moments_of_groups(input: Any, num_groups: int, *_: Any, **__: Any) -> list[Spec]:
    return [Spec((input.shape[0] * num_groups, 1), input.dtype)] * 2


@op(
    _group_rule,
    namespace="torch.nn.functional",
    node="NativeGroupNormBackward0",
    hidden=("mean", "scale"),
    hidden_rule=_moments_of_groups,
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
    if F.xp is not None:
        return _group_grads_fused(F.xp, grad, needs, input, weight, groups, mean, scale)
    shape, ndim = tuple(input.shape), len(input.shape)
    standard, scale = standardise(F, F.reshape(input, groups), (2,), eps)
    inner = F.reshape(affine(grad, per_channel(F, weight, ndim), None), groups)
    return (
        F.reshape(through(F, inner, standard, scale, (2,)), shape) if needs[0] else None,
        F.sum(grad * F.reshape(standard, shape), but_channels(ndim)) if needs[1] else None,
        F.sum(grad, but_channels(ndim)) if needs[2] else None,
    )


def _group_grads_fused(
    xp: Any, grad: Any, needs: Any, input: Any, weight: Any, groups: Any, mean: Any, scale: Any
) -> Any:
    channels = xp.reshape(widened(xp, grad), by_channel(input))
    standard = restandardised(xp, xp.reshape(input, groups), mean, scale)
    by_weight = xp.einsum("oci,oci->c", channels, xp.reshape(standard, channels.shape)) if needs[1] else None
    by_bias = xp.einsum("oci->c", channels) if needs[2] else None
    if not needs[0]:
        return None, by_weight, by_bias
    inner = xp.reshape(channels if weight is None else channels * weight[:, None], groups)
    return xp.reshape(standardised_grad(xp, inner, standard, scale), input.shape), by_weight, by_bias
