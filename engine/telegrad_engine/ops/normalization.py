"""Normalisations of the last dimensions, and what all normalisations share."""

from __future__ import annotations

import math
from typing import Any

from ..cases import T, case
from ..dtypes import bfloat16, float16, float32, float64, from_numpy, is_floating
from ..errors import DTypeMismatch, InvalidOperation, NotImplementedForDType, ShapeMismatch
from ..params import Array, Ints, Number, OptionalNumber
from ..registry import op
from ..specs import Spec

Dims = tuple[int, ...]


def _mean(xp: Any, x: Any, dims: Dims) -> Any:
    return xp.sum(x, axis=dims, keepdims=True) / max(math.prod(x.shape[d] for d in dims), 1)


def standardised(xp: Any, x: Any, dims: Dims, eps: float) -> Any:
    """The array brought to mean 0 and variance 1 over ``dims``."""
    centred = x - _mean(xp, x, dims)
    return centred / xp.sqrt(_mean(xp, centred * centred, dims) + eps)


def affine(x: Any, weight: Any, bias: Any) -> Any:
    """Scaled and shifted, by what there is of the two."""
    scaled = x if weight is None else x * weight
    return scaled if bias is None else scaled + bias


def standardise(F: Any, x: Any, dims: Dims, eps: float) -> tuple[Any, Any]:
    """What ``standardised`` gives, differentiably, and the factor in it."""
    centred = x - F.mean(x, dims, True)
    scale = F.rsqrt(F.mean(centred * centred, dims, True) + eps)
    return centred * scale, scale


def through(F: Any, grad: Any, standard: Any, scale: Any, dims: Dims) -> Any:
    """The gradient of what was standardised: without its parts along 1 and along the result."""
    return scale * (grad - F.mean(grad, dims, True) - standard * F.mean(grad * standard, dims, True))


def check_floats(kernel: str, input: Any) -> None:
    """Raise for integers, for which torch has no such kernel."""
    if not is_floating(input.dtype):
        raise NotImplementedForDType(f"\"{kernel}\" not implemented for '{from_numpy(input.dtype).kernel_name}'")


def check_mixed(input: Any, *parameters: Any) -> None:
    """Parameters have the input's dtype; those of a half-precision input may be in float32."""
    halves = (float16.numpy, bfloat16.numpy)
    for parameter in parameters:
        if parameter is None or parameter.dtype == input.dtype:
            continue
        if input.dtype not in halves or parameter.dtype != float32.numpy:
            raise DTypeMismatch("mixed dtype (CPU): expect parameter to have scalar type of Float")


def _check_normalized(input: Any, shape: Any, lead: str, **parameters: Any) -> None:
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
    if len(input.shape) < len(shape) or input.shape[len(input.shape) - len(shape) :] != tuple(shape):
        raise ShapeMismatch(
            f"Given normalized_shape={list(shape)}, expected input with shape [{lead}"
            f"{', '.join(map(str, shape))}], but got input of size{list(input.shape)}"
        )


def _split(ndim: int, normalized_shape: Any) -> tuple[Dims, Dims]:
    """The leading dimensions and those that are normalised."""
    first = ndim - len(normalized_shape)
    return tuple(range(first)), tuple(range(first, ndim))


def _over(F: Any, x: Any, dims: Dims) -> Any:
    return F.sum(x, dims) if dims else x


def _layer_rule(input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Spec:
    _check_normalized(input, normalized_shape, "*, ", weight=weight, bias=bias)
    check_floats("LayerNormKernelImpl", input)
    check_mixed(input, weight, bias)
    return Spec(input.shape, input.dtype)


@op(
    _layer_rule,
    namespace="torch.nn.functional",
    node="NativeLayerNormBackward0",
    cases=[
        case(T(2, 3), (3,)),
        case(T(2, 3, 4), (3, 4), T(3, 4), T(3, 4)),
        case(T(2, 3, 4), (4,), T(4)),
        case(T(4), (4,), T(4), T(4), 0.1),
        case(T(2, 3), (3,), None, T(3, constant=True)),
        case(T(0, 3), (3,), T(3), T(3)),
        case(T(2, 0), (0,)),
        case(T(2, 2, values=[[1.0, 1.0], [2.0, 2.0]]), (2,)),
        case(T(2, 3), (2,)),
        case(T(2, 3), ()),
        case(T(2, 3), (3,), T(2)),
    ],
)
def layer_norm(
    xp: Any, input: Array, normalized_shape: Ints, weight: Array = None, bias: Array = None, eps: Number = 1e-5
) -> Any:
    """The input brought to mean 0 and variance 1 over its last dimensions, then scaled and shifted."""
    return affine(standardised(xp, input, _split(input.ndim, normalized_shape)[1], eps), weight, bias)


@layer_norm.joint_derivative
def _layer_grads(F: Any, grad: Any, needs: Any, input: Any, weight: Any, normalized_shape: Any, eps: float) -> Any:
    lead, dims = _split(len(input.shape), normalized_shape)
    standard, scale = standardise(F, input, dims, eps)
    return (
        through(F, affine(grad, weight, None), standard, scale, dims) if needs[0] else None,
        _over(F, grad * standard, lead) if needs[1] else None,
        _over(F, grad, lead) if needs[2] else None,
    )


def _rms_rule(input: Any, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Spec:
    _check_normalized(input, normalized_shape, "*", weight=weight)
    check_floats("rms_norm", input)
    return Spec(input.shape, input.dtype)


def _smallest(dtype: Any, eps: float | None) -> float:
    """torch's default: the spacing at 1 of the dtype that it computes in."""
    return eps if eps is not None else 2.0**-52 if dtype in (float64, float64.numpy) else 2.0**-23


@op(
    _rms_rule,
    namespace="torch.nn.functional",
    node="MulBackward0",
    cases=[
        case(T(2, 3), (3,)),
        case(T(2, 3, 4), (3, 4), T(3, 4)),
        case(T(2, 3, 4), (4,), T(4), 0.1),
        case(T(4), (4,), T(4)),
        case(T(0, 3), (3,), T(3)),
        case(T(2, 0), (0,)),
        case(T(2, 3), (2,)),
        case(T(2, 3), ()),
        case(T(2, 3), (3,), T(2)),
    ],
)
def rms_norm(xp: Any, input: Array, normalized_shape: Ints, weight: Array = None, eps: OptionalNumber = None) -> Any:
    """The input over its root mean square over the last dimensions, then scaled (Zhang and Sennrich 2019)."""
    squares = _mean(xp, input * input, _split(input.ndim, normalized_shape)[1])
    return affine(input / xp.sqrt(squares + _smallest(input.dtype, eps)), weight, None)


@rms_norm.joint_derivative
def _rms_grads(F: Any, grad: Any, needs: Any, input: Any, weight: Any, normalized_shape: Any, eps: Any) -> Any:
    lead, dims = _split(len(input.shape), normalized_shape)
    scale = F.rsqrt(F.mean(input * input, dims, True) + _smallest(input.dtype, eps))
    standard = input * scale
    inner = affine(grad, weight, None)
    return (
        scale * (inner - standard * F.mean(inner * standard, dims, True)) if needs[0] else None,
        _over(F, grad * standard, lead) if needs[1] else None,
    )
