"""Activations that gate, bound or cut off: beside those of activation.py. Formulas: torch.nn.functional's."""

from __future__ import annotations

from typing import Any

import ml_dtypes

from ..dtypes import from_numpy, is_floating
from ..errors import InvalidOperation, NotImplementedForDType, ShapeMismatch
from ..schema.op import composite, elementwise
from ..schema.parameters import Array, Int, Number
from ..shapes import wrap_dim
from .activation import floats_only
from .guards import no_bools


@composite(
    namespace="torch.nn.functional",
)
def glu(F: Any, input: Array, dim: Int = -1) -> Any:
    """The first half along ``dim`` times the sigmoid of the second (Dauphin et al. 2017)."""
    if not input.shape:
        raise ShapeMismatch("glu does not support scalars because halving size must be even")
    axis = wrap_dim(dim, len(input.shape))
    size = input.shape[axis]
    if size % 2:
        raise ShapeMismatch(f"Halving dimension must be even, but dimension {axis} is size {size}")
    if not input.is_floating_point():
        raise NotImplementedForDType(f"\"glu_cpu\" not implemented for '{input.dtype.kernel_name}'")
    return F.narrow(input, axis, 0, size // 2) * F.sigmoid(F.narrow(input, axis, size // 2, size // 2))


@composite(namespace="torch.nn.functional")
def softsign(F: Any, input: Array) -> Any:
    """``input / (1 + abs(input))``."""
    return input / (F.abs(input) + 1)


@composite(namespace="torch.nn.functional")
def tanhshrink(F: Any, input: Array) -> Any:
    """``input - tanh(input)``."""
    return input - F.tanh(input)


def _check_alpha(input: Any, alpha: float = 1.0) -> None:
    if alpha == 0:
        raise InvalidOperation("ZeroDivisionError: alpha cannot be 0 for CELU")


@elementwise(
    guard=floats_only("elu_cpu", _check_alpha),
    functional=True,
    method=False,
    inplace=False,
    takes_inplace=True,
)
def celu(xp: Any, input: Array, alpha: Number = 1.0) -> Any:
    """The input where positive, else ``alpha * (exp(input / alpha) - 1)`` (Barron 2017)."""
    return xp.where(input > 0, input, alpha * xp.expm1(xp.where(input > 0, 0, input) / alpha))


celu.derivative(
    # At 0 the second derivative is that of the straight side, as in torch.
    input=lambda F, grad, input, alpha: F.where(input < 0, grad * F.exp(F.where(input < 0, input, 0.0) / alpha), grad)
)


@elementwise(
    guard=floats_only("hardshrink_cpu"),
    functional=True,
    inplace=False,
)
def hardshrink(xp: Any, input: Array, lambd: Number = 0.5) -> Any:
    """0 where the input is from ``-lambd`` to ``lambd``, else the input."""
    return xp.where(xp.logical_and(input >= -lambd, input <= lambd), 0, input)


hardshrink.derivative(
    input=lambda F, grad, input, lambd: F.where(F.logical_and(input >= -lambd, input <= lambd), 0.0, grad)
)


def _check_lambd(input: Any, lambd: float = 0.5) -> None:
    if not is_floating(input.dtype):
        kind = from_numpy(input.dtype).kernel_name
        raise NotImplementedForDType(f"\"softshrink_check\" not implemented for '{kind}'")
    most = float(ml_dtypes.finfo(input.dtype).max)  # type: ignore[no-untyped-call]
    if not 0 <= lambd <= most:
        kind = from_numpy(input.dtype).kernel_name
        raise InvalidOperation(f"lambda must be in range [0, {most:g}] for input dtype {kind}, but found {lambd:g}")


@elementwise(guard=_check_lambd, namespace="torch.nn.functional", inplace=False, scratch=2.0)
def softshrink(xp: Any, input: Array, lambd: Number = 0.5) -> Any:
    """The input brought nearer to 0 by ``lambd``."""
    return xp.where(input > lambd, input - lambd, xp.where(input < -lambd, input + lambd, input * 0))


softshrink.derivative(
    input=lambda F, grad, input, lambd: F.where(F.logical_and(input >= -lambd, input <= lambd), 0.0, grad)
)


@elementwise(functional=True, method=False, inplace=False, takes_inplace=True, guard=no_bools("threshold_cpu"))
def threshold(xp: Any, input: Array, threshold: Number, value: Number) -> Any:
    """The input where it is above ``threshold``, else ``value``."""
    return xp.where(input <= threshold, xp.asarray(value).astype(input.dtype), input)


threshold.derivative(input=lambda F, grad, input, threshold: F.where(input <= threshold, 0.0, grad))
