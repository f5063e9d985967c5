"""Initialization of parameters in place and outside the graph, as ``torch.nn.init``.

The session draws random values from its own generator unless a ``generator`` is given.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec

from telegrad_engine.context import no_grad
from telegrad_engine.errors import InvalidValue

from .. import linalg
from ..sessions.generators import Generator
from ..tensor.handle import OPS, Tensor, functions

P = ParamSpec("P")
Random = Generator | None
"""Where random numbers come from; None for the session's own generator."""
_GAINS = {"sigmoid": 1.0, "relu": math.sqrt(2.0), "tanh": 5.0 / 3.0, "selu": 3.0 / 4.0}
_LINEAR = {"linear", *(f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3))}


def _draw(method: Callable[..., Any], *bounds: float, generator: Random) -> None:
    """Call an in-place random method; typed loosely because the engine's stubs have no ``generator`` parameter."""
    method(*bounds, generator=generator)


@no_grad()
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Random = None) -> Tensor:
    """Fill ``tensor`` with uniform numbers from [a, b).

    The tensor has any shape; it is changed in place and returned. ``generator`` is the Generator to draw from.

    Examples:
        >>> bool((tg.nn.init.uniform_(tg.empty(100), -1.0, 1.0).abs() <= 1).all())
        True
    """
    _draw(tensor.uniform_, a, b, generator=generator)
    return tensor


@no_grad()
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Random = None) -> Tensor:
    """Fill ``tensor`` with normal numbers of the given mean and standard deviation.

    The tensor has any shape; it is changed in place and returned. ``mean``, ``std`` and ``generator`` are as in
    ``randn``.

    Examples:
        >>> tg.nn.init.normal_(tg.empty(2, 3), std=0.02).shape
        telegrad.Size([2, 3])
    """
    _draw(tensor.normal_, mean, std, generator=generator)
    return tensor


@no_grad()
def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Random = None
) -> Tensor:
    """Fill ``tensor`` with normal numbers of the given mean and standard deviation, truncated to [a, b].

    Applies the inverse distribution function to uniform numbers between its values at the bounds.

    The tensor has any shape; it is changed in place and returned. ``mean``, ``std``, ``a`` and ``b`` are numbers;
    ``generator`` is the Generator to draw from.

    Examples:
        >>> bool((tg.nn.init.trunc_normal_(tg.empty(100), a=-1.0, b=1.0).abs() <= 1).all())
        True
    """
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be "
            "incorrect.",
            stacklevel=3,
        )
    low, high = (math.erf((bound - mean) / (std * math.sqrt(2.0))) for bound in (a, b))
    _draw(tensor.uniform_, low, high, generator=generator)
    tensor.erfinv_().mul_(std * math.sqrt(2.0)).add_(mean).clamp_(a, b)
    return tensor


@no_grad()
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill ``tensor`` with ``val``.

    The tensor has any shape; it is changed in place, outside the graph, and returned.

    Examples:
        >>> tg.nn.init.constant_(tg.empty(2), 0.5)
        tensor([0.5000, 0.5000])
    """
    tensor.fill_(val)
    return tensor


def zeros_(tensor: Tensor) -> Tensor:
    """Fill ``tensor`` with zeros.

    The tensor has any shape; it is changed in place and returned.

    Examples:
        >>> tg.nn.init.zeros_(tg.empty(2))
        tensor([0., 0.])
    """
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """Fill ``tensor`` with ones.

    The tensor has any shape; it is changed in place and returned.

    Examples:
        >>> tg.nn.init.ones_(tg.empty(2))
        tensor([1., 1.])
    """
    return constant_(tensor, 1.0)


@no_grad()
def eye_(tensor: Tensor) -> Tensor:
    """Fill ``tensor`` with the identity matrix. Raises ValueError unless it has 2 dimensions.

    The tensor is changed in place and returned.

    Examples:
        >>> tg.nn.init.eye_(tg.empty(2, 2))
        tensor([[1., 0.],
                [0., 1.]])
    """
    if tensor.dim() != 2:
        raise InvalidValue("Only tensors with 2 dimensions are supported")
    tensor.copy_(functions.eye(*tensor.shape, dtype=tensor.dtype))
    return tensor


@no_grad()
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill a convolution weight (out, in, …) so that each group passes its first input channels through unchanged.

    Raises ValueError unless the weight has 3 to 5 dimensions and ``groups`` divides the first.

    The tensor is changed in place and returned.

    Examples:
        >>> tg.nn.init.dirac_(tg.empty(1, 1, 3))
        tensor([[[0., 1., 0.]]])
    """
    if tensor.dim() not in (3, 4, 5):
        raise InvalidValue("Only tensors with 3, 4, or 5 dimensions are supported")
    if tensor.shape[0] % groups:
        raise InvalidValue("dim 0 must be divisible by groups")
    width = tensor.shape[0] // groups
    centre = tuple(size // 2 for size in tensor.shape[2:])
    tensor.zero_()
    for channel in range(min(width, tensor.shape[1])):
        tensor[(slice(channel, None, width), channel, *centre)] = 1
    return tensor


@no_grad()
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Random = None) -> Tensor:
    """Fill a matrix with normal numbers of mean 0 and set a fraction ``sparsity`` of each column to 0 (Martens 2010).

    Raises ValueError unless ``tensor`` has 2 dimensions.

    The tensor is changed in place and returned; ``std`` is the deviation, and ``generator`` the Generator to draw
    from.

    Examples:
        >>> int((tg.nn.init.sparse_(tg.empty(10, 2), sparsity=0.3) == 0).sum())
        6
    """
    if tensor.dim() != 2:
        raise InvalidValue("Only tensors with 2 dimensions are supported")
    empty = math.ceil(sparsity * tensor.shape[0])
    ranks = OPS.rand_like(tensor, generator=generator).argsort(0).argsort(0)
    _draw(tensor.normal_, 0, std, generator=generator)
    tensor.masked_fill_(ranks < empty, 0)
    return tensor


@no_grad()
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Random = None) -> Tensor:
    """Fill ``tensor``, flattened to a matrix, with a (semi-)orthogonal matrix times ``gain`` (Saxe et al. 2013).

    The matrix is Q of a QR decomposition of normal numbers, with signs such that R's diagonal is positive. Raises
    ValueError for fewer than 2 dimensions.

    The tensor is changed in place and returned; ``generator`` is the Generator to draw from.

    Examples:
        >>> q = tg.nn.init.orthogonal_(tg.empty(2, 2))
        >>> tg.allclose(q @ q.T, tg.eye(2), atol=1e-6)
        True
    """
    if tensor.dim() < 2:
        raise InvalidValue("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows, columns = tensor.shape[0], tensor.numel() // tensor.shape[0]
    drawn = tensor.new_empty((max(rows, columns), min(rows, columns)))
    _draw(drawn.normal_, generator=generator)
    q, r = linalg.qr(drawn)
    q = q * functions.diagonal(r).sign()
    matrix = functions.transpose(q, 0, 1) if rows < columns else q
    tensor.copy_(matrix.reshape(tuple(tensor.shape)) * gain)
    return tensor


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the recommended gain for a nonlinearity; ``param`` is the negative slope of leaky_relu.

    ``nonlinearity`` is "linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu" or the name of a convolution. Raises
    ValueError for another one.

    Examples:
        >>> tg.nn.init.calculate_gain("tanh")
        1.6666666666666667
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise InvalidValue(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity in _LINEAR:
        return 1.0
    if nonlinearity not in _GAINS:
        raise InvalidValue(f"Unsupported nonlinearity {nonlinearity}")
    return _GAINS[nonlinearity]


def fan_in_and_out(tensor: Tensor) -> tuple[int, int]:
    """Return the numbers of inputs per output and of outputs per input of a weight (out, in, …).

    Raises ValueError for a tensor of fewer than two dimensions.

    Examples:
        >>> tg.nn.init.fan_in_and_out(tg.empty(8, 3, 5, 5))
        (75, 200)
    """
    if tensor.dim() < 2:
        raise InvalidValue("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    window = math.prod(tensor.shape[2:])
    return tensor.shape[1] * window, tensor.shape[0] * window


def _kaiming_deviation(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float | None:
    """Return the standard deviation that keeps the variance across layers (He et al. 2015), or None if empty."""
    if tensor.numel() == 0:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=4)
        return None
    if mode.lower() not in ("fan_in", "fan_out"):
        raise InvalidValue(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan = fan_in_and_out(tensor)[mode.lower() == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Random = None
) -> Tensor:
    """Fill with uniform numbers within ±gain·√(3 / fan), which keeps the variance across layers (He et al. 2015).

    ``a`` is the negative slope of the leaky_relu that follows; ``mode`` is fan_in or fan_out.

    ``tensor`` is a weight (out, in, …), which is changed in place and returned; ``nonlinearity`` is one of
    ``calculate_gain``; ``generator`` is the Generator to draw from. Raises ValueError for fewer than two dimensions
    or another ``mode``.

    Examples:
        >>> bound = (6 / 25) ** 0.5
        >>> bool((tg.nn.init.kaiming_uniform_(tg.empty(8, 25), nonlinearity="relu").abs() <= bound).all())
        True
    """
    deviation = _kaiming_deviation(tensor, a, mode, nonlinearity)
    if deviation is None:
        return tensor
    bound = math.sqrt(3.0) * deviation
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Random = None
) -> Tensor:
    """Fill with normal numbers of deviation gain / √fan, which keeps the variance across layers (He et al. 2015).

    The other arguments are those of ``kaiming_uniform_``.

    Examples:
        >>> tg.nn.init.kaiming_normal_(tg.empty(8, 3, 5, 5)).shape
        telegrad.Size([8, 3, 5, 5])
    """
    deviation = _kaiming_deviation(tensor, a, mode, nonlinearity)
    return tensor if deviation is None else normal_(tensor, 0.0, deviation, generator)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Random = None) -> Tensor:
    """Fill with uniform numbers within ±gain·√(6 / (fan_in + fan_out)) (Glorot and Bengio 2010).

    ``tensor`` is a weight (out, in, …), which is changed in place and returned; ``generator`` is the Generator to
    draw from. Raises ValueError for fewer than two dimensions.

    Examples:
        >>> bool((tg.nn.init.xavier_uniform_(tg.empty(8, 4)).abs() <= 0.5 ** 0.5).all())
        True
    """
    bound = gain * math.sqrt(6.0 / max(sum(fan_in_and_out(tensor)), 1))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Random = None) -> Tensor:
    """Fill with normal numbers of deviation gain·√(2 / (fan_in + fan_out)) (Glorot and Bengio 2010).

    The other arguments are those of ``xavier_uniform_``.

    Examples:
        >>> tg.nn.init.xavier_normal_(tg.empty(8, 3)).shape
        telegrad.Size([8, 3])
    """
    deviation = gain * math.sqrt(2.0 / max(sum(fan_in_and_out(tensor)), 1))
    return normal_(tensor, 0.0, deviation, generator)


# Old names ------------------------------------------------------------------------------------


def deprecated(function: Callable[P, Tensor], namespace: str = "nn.init") -> Callable[P, Tensor]:
    """Return ``function`` under its old name without the underscore, which emits torch's warning."""
    name = function.__name__

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        text = f"`{namespace}.{name[:-1]}` is now deprecated in favor of `{namespace}.{name}`."
        warnings.warn(text, FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    call.__name__ = call.__qualname__ = name[:-1]
    return call


uniform = deprecated(uniform_)
normal = deprecated(normal_)
constant = deprecated(constant_)
eye = deprecated(eye_)
dirac = deprecated(dirac_)
xavier_uniform = deprecated(xavier_uniform_)
xavier_normal = deprecated(xavier_normal_)
kaiming_uniform = deprecated(kaiming_uniform_)
kaiming_normal = deprecated(kaiming_normal_)
orthogonal = deprecated(orthogonal_)
sparse = deprecated(sparse_)
