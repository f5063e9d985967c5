"""Normalisations of channels (dim 1): in groups, or each over the batch."""

from __future__ import annotations

import math
from typing import Any

from ..cases import T, case
from ..errors import InvalidOperation, InvalidValue, ShapeMismatch
from ..params import Array, Bool, Int, Number
from ..registry import op
from ..specs import Size, Spec, wrap_dim
from .normalization import Dims, affine, check_floats, check_mixed, standardise, standardised, through


def _per_channel(F: Any, parameter: Any, ndim: int) -> Any:
    """A parameter of each channel, to go with an input of channels in dim 1."""
    return None if parameter is None else F.reshape(parameter, (-1, *(1,) * (ndim - 2)))


def _but_channels(ndim: int) -> Dims:
    return tuple(d for d in range(ndim) if d != 1)


def _grouped(input_shape: Any, num_groups: int) -> tuple[int, int, int]:
    return input_shape[0], num_groups, input_shape[1] // num_groups * math.prod(input_shape[2:])


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
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None and parameter.shape != (shape[1],):
            raise ShapeMismatch(
                f"Expected {name} to be a vector of size equal to the number of channels in input, but got {name} "
                f"of shape {list(parameter.shape)} and input of shape {list(shape)}"
            )
    check_floats("GroupNormKernelImpl", input)
    check_mixed(input, weight, bias)
    return Spec(shape, input.dtype)


@op(
    _group_rule,
    namespace="torch.nn.functional",
    node="NativeGroupNormBackward0",
    cases=[
        case(T(2, 4, 3), 2),
        case(T(2, 4, 3, 2), 2, T(4), T(4)),
        case(T(2, 4), 1, T(4)),
        case(T(2, 4, 3), 4, T(4), None, 0.1),
        case(T(0, 4, 3), 2),
        case(T(2, 4), 3),
        case(T(4), 2),
        case(T(1, 4), 4),
        case(T(2, 4, 3), 2, T(3)),
    ],
)
def group_norm(
    xp: Any, input: Array, num_groups: Int, weight: Array = None, bias: Array = None, eps: Number = 1e-5
) -> Any:
    """Each group of channels (dim 1) brought to mean 0 and variance 1, then each channel scaled and shifted."""
    standard = standardised(xp, xp.reshape(input, _grouped(input.shape, num_groups)), (2,), eps)
    parameters = [_per_channel(xp, p, input.ndim) for p in (weight, bias)]
    return affine(xp.reshape(standard, input.shape), *parameters)


@group_norm.joint_derivative
def _group_grads(F: Any, grad: Any, needs: Any, input: Any, weight: Any, num_groups: int, eps: float) -> Any:
    shape, ndim = tuple(input.shape), len(input.shape)
    groups = _grouped(shape, num_groups)
    standard, scale = standardise(F, F.reshape(input, groups), (2,), eps)
    inner = F.reshape(affine(grad, _per_channel(F, weight, ndim), None), groups)
    return (
        F.reshape(through(F, inner, standard, scale, (2,)), shape) if needs[0] else None,
        F.sum(grad * F.reshape(standard, shape), _but_channels(ndim)) if needs[1] else None,
        F.sum(grad, _but_channels(ndim)) if needs[2] else None,
    )


def _batch_rule(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Spec:
    shape = tuple(input.shape)
    named = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    if training:
        wrap_dim(1, len(shape))
        if shape[0] * math.prod(shape[2:]) == 1:
            raise InvalidValue(f"Expected more than 1 value per channel when training, got input size {Size(shape)!r}")
    for name, parameter in named.items():
        channels = shape[1] if len(shape) > 1 else 0
        if parameter is not None and math.prod(parameter.shape) != channels:
            raise ShapeMismatch(f"{name} should contain {channels} elements not {math.prod(parameter.shape)}")
        if parameter is None and not training and name.startswith("running"):
            raise InvalidOperation(f"{name} must be defined in evaluation mode")
    check_floats("batch_norm", input)
    check_mixed(input, *named.values())
    return Spec(shape, input.dtype)


@op(
    _batch_rule,
    namespace="torch.nn.functional",
    node="NativeBatchNormBackward0",
    cases=[
        case(T(4, 3), None, None, training=True),
        case(T(4, 3, 2), None, None, T(3), T(3), True),
        case(T(2, 3, 2, 2), None, None, T(3), None, True, 0.1, 0.1),
        case(T(4, 3), T(3, constant=True), T(3, low=0.5, constant=True)),
        case(T(4, 3, 2), T(3, constant=True), T(3, low=0.5, constant=True), T(3), T(3), False, 0.1, 0.1),
        case(T(1, 3), T(3, constant=True), T(3, low=0.5, constant=True)),
        case(*[T(*shape, dtype="float32", constant=True) for shape in ((0, 3), (3,), (3,), (3,), (3,))]),
        case(T(1, 3), None, None, training=True),
        case(T(3), None, None, training=True),
        case(T(4, 3), None, None),
        case(T(4, 3), T(2, constant=True), T(3, low=0.5, constant=True)),
        case(T(4, 3), T(3), T(3, low=0.5, constant=True)),
    ],
)
def batch_norm(
    xp: Any,
    input: Array,
    running_mean: Array = None,
    running_var: Array = None,
    weight: Array = None,
    bias: Array = None,
    training: Bool = False,
    momentum: Number = 0.1,
    eps: Number = 1e-5,
) -> Any:
    """Each channel (dim 1) brought to mean 0 and variance 1; not training, by the running statistics, never written."""
    mean, var, scale, shift = [_per_channel(xp, p, input.ndim) for p in (running_mean, running_var, weight, bias)]
    if training:
        standard = standardised(xp, input, _but_channels(input.ndim), eps)
    else:
        standard = (input - mean) / xp.sqrt(var + eps)
    return affine(standard, scale, shift)


def _batch_standard(F: Any, input: Any, mean: Any, var: Any, training: bool, eps: float) -> tuple[Any, Any]:
    ndim = len(input.shape)
    if training:
        return standardise(F, input, _but_channels(ndim), eps)
    scale = F.rsqrt(_per_channel(F, var, ndim) + eps)
    return (input - _per_channel(F, mean, ndim)) * scale, scale


def _batch_grad(
    F: Any, grad: Any, input: Any, running_mean: Any, running_var: Any, weight: Any, training: bool, eps: float
) -> Any:
    standard, scale = _batch_standard(F, input, running_mean, running_var, training, eps)
    inner = affine(grad, _per_channel(F, weight, len(input.shape)), None)
    return through(F, inner, standard, scale, _but_channels(len(input.shape))) if training else inner * scale


batch_norm.derivative(
    input=_batch_grad,
    weight=lambda F, grad, input, running_mean, running_var, training, eps: F.sum(
        grad * _batch_standard(F, input, running_mean, running_var, training, eps)[0], _but_channels(len(input.shape))
    ),
    bias=lambda F, grad: F.sum(grad, _but_channels(len(grad.shape))),
)
