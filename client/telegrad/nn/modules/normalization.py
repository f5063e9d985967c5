"""Normalization of each sample separately, which is the same in training and evaluation mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad_engine.errors import InvalidValue

from ...tensor.handle import Tensor, functions
from .. import functional as F
from .. import init
from ..parameter import Parameter, add_parameters
from .function_module import DeclaredModule, FunctionModule
from .module import Module, expanded, options


class _Affine(DeclaredModule):
    """A module with an optional weight, which starts at 1, and an optional bias, which starts at 0."""

    weight: Parameter | None
    bias: Parameter | None

    def _add_parameters(self, shape: tuple[int, ...], weight: bool, bias: bool | None, device: Any, dtype: Any) -> None:
        """Register the parameters; ``bias`` is None for a module that never has a bias."""
        wanted = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
        absent = [name for name, there in wanted.items() if not there]
        add_parameters(self, dict.fromkeys(wanted, shape), device, dtype, absent)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to 1 and the bias to 0."""
        for name, parameter in self.named_parameters(recurse=False):
            init.constant_(parameter, float(name == "weight"))


class LayerNorm(_Affine):
    """Normalizes the last dimensions, ``normalized_shape``, to mean 0 and variance 1 (Ba et al. 2016).

    Args:
        normalized_shape: The last sizes of the input, over which to normalize.
        eps: A small number that is added to the variance.
        elementwise_affine: Whether there are a learned factor and summand for each element.
        bias: Whether, if ``elementwise_affine``, there is a summand.
        device: The device of the parameters: only that of the session.
        dtype: The dtype of the parameters; None is the default dtype.

    Examples:
        >>> tg.nn.LayerNorm(2)(tg.tensor([[1.0, 3.0]])).detach()
        tensor([[-1.0000,  1.0000]])
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = expanded(normalized_shape, 1)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        shape, bias = self.normalized_shape, elementwise_affine and bias
        self._add_parameters(shape, elementwise_affine, bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalized input, times the weight plus the bias."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        text = f"{self.normalized_shape}, {options(self, 'eps', 'elementwise_affine')}"
        return f"{text}, bias={self.bias is not None}"


class GroupNorm(_Affine):
    """Normalizes each of ``num_groups`` groups of channels (dim 1) to mean 0 and variance 1 (Wu and He 2018).

    Input and result are (N, C, …). Raises ValueError unless ``num_groups`` divides ``num_channels``.

    Args:
        num_groups: The number of groups.
        num_channels: The number of channels.
        eps: A small number that is added to the variance.
        affine: Whether there are a learned factor and summand for each channel.
        device: The device of the parameters: only that of the session.
        dtype: The dtype of the parameters; None is the default dtype.
        bias: Whether, if ``affine``, there is a summand.

    Examples:
        >>> tg.nn.GroupNorm(2, 4)(tg.ones(1, 4, 3)).shape
        telegrad.Size([1, 4, 3])
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise InvalidValue(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self._add_parameters((num_channels,), affine, affine and bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalized input, times the weight plus the bias of its channel."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        text = f"{self.num_groups}, {self.num_channels}, {options(self, 'eps', 'affine')}"
        return f"{text}, bias={self.bias is not None}"


class RMSNorm(_Affine):
    """Divides the last dimensions, ``normalized_shape``, by their root mean square (Zhang and Sennrich 2019).

    Args:
        normalized_shape: The last sizes of the input, over which to normalize.
        eps: A small number that is added to the mean square; None is the epsilon of the dtype.
        elementwise_affine: Whether there is a learned factor for each element.
        device: The device of the parameters: only that of the session.
        dtype: The dtype of the parameters; None is the default dtype.

    Examples:
        >>> tg.nn.RMSNorm(2)(tg.tensor([[3.0, 4.0]])).detach()
        tensor([[0.8485, 1.1314]])
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = expanded(normalized_shape, 1)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self._add_parameters(self.normalized_shape, elementwise_affine, None, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized input, times the weight."""
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, {options(self, 'eps', 'elementwise_affine')}"


class LocalResponseNorm(FunctionModule, function="local_response_norm"):
    """``input / (k + alpha * mean square of size neighbouring channels) ** beta`` (Krizhevsky et al. 2012).

    Examples:
        >>> tg.nn.LocalResponseNorm(2)(tg.ones(1, 4, 3)).shape
        telegrad.Size([1, 4, 3])
    """

    _arguments = ("size", "alpha", "beta", "k")

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(Module):
    """Local response normalization of images (N, C, H, W), as in Lua Torch; see LocalResponseNorm.

    As in torch, the first channel also counts in the windows that start after it.

    ``size``, ``alpha``, ``beta`` and ``k`` are those of ``LocalResponseNorm``.

    Examples:
        >>> tg.nn.CrossMapLRN2d(2)(tg.ones(1, 4, 3, 3)).shape
        telegrad.Size([1, 4, 3, 3])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        """Return ``input / (k + alpha / size * sum of squares) ** beta``. Raises ValueError unless the input is 4D."""
        if input.dim() != 4:
            raise InvalidValue(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
        channels = input.shape[1]
        reach = int((self.size - 1) / 2 + 1)
        square = input * input
        sums = [square[:, max(c - reach + 1, 0) : c + reach].sum(1, keepdim=True) for c in range(channels)]
        for c in range(reach, channels):
            sums[c] = sums[c] + square[:, :1]
        scale = functions.cat(sums, 1) * (self.alpha / self.size) + self.k
        return input * scale**-self.beta

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
