"""Filling parameters with their first values, as ``torch.nn.init``: in place, outside the graph."""

from __future__ import annotations

import math

from telegrad_engine.errors import InvalidValue
from telegrad_engine.modes import no_grad

from ..tensor import Tensor, functions

_GAINS = {"sigmoid": 1.0, "linear": 1.0, "relu": math.sqrt(2.0), "tanh": 5.0 / 3.0, "selu": 3.0 / 4.0}


@no_grad()
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Uniform numbers from [a, b)."""
    tensor.copy_(functions.rand_like(tensor) * (b - a) + a)
    return tensor


@no_grad()
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Normal numbers of the given mean and standard deviation."""
    tensor.copy_(functions.randn_like(tensor) * std + mean)
    return tensor


@no_grad()
def constant_(tensor: Tensor, val: float) -> Tensor:
    """``val`` everywhere."""
    tensor.fill_(val)
    return tensor


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros."""
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """Ones."""
    return constant_(tensor, 1.0)


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """By what a nonlinearity shrinks the deviation of what passes it; ``param`` is leaky_relu's slope."""
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise InvalidValue(f"Unsupported nonlinearity {nonlinearity}")
    return _GAINS[nonlinearity]


def fan_in_and_out(tensor: Tensor) -> tuple[int, int]:
    """How many inputs an output of a weight (out, in, …) has, and how many outputs an input."""
    if tensor.dim() < 2:
        raise InvalidValue("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    window = math.prod(tensor.shape[2:])
    return tensor.shape[1] * window, tensor.shape[0] * window


def kaiming_uniform_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """He et al. 2015: uniform numbers within ±gain·√(3 / fan), so that layers keep the variance.

    ``a`` is the negative slope of the leaky_relu that follows; ``mode`` is fan_in or fan_out.
    """
    if mode not in ("fan_in", "fan_out"):
        raise InvalidValue(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan = fan_in_and_out(tensor)[mode == "fan_out"]
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3.0 / fan) if fan else 0.0
    return uniform_(tensor, -bound, bound)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Glorot and Bengio 2010: uniform numbers within ±gain·√(6 / (fan_in + fan_out))."""
    bound = gain * math.sqrt(6.0 / max(sum(fan_in_and_out(tensor)), 1))
    return uniform_(tensor, -bound, bound)
