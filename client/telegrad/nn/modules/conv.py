"""Convolutions and transposed convolutions over one, two or three spatial dimensions.

Weights are (out, in / groups, *kernel), or (in, out / groups, *kernel) for a transposed convolution; biases are
(out). Both start as uniform numbers within ±1/√(in / groups * kernel size).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, cast

from telegrad_engine.errors import InvalidValue
from telegrad_engine.shapes import torch_size

from ...tensor.handle import Tensor
from .. import functional as F
from .. import init
from ..parameter import Parameter, add_parameters
from .function_module import DeclaredModule
from .module import changed_options, expanded

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")
_PADDINGS = {"same", "valid"}


class _ConvNd(DeclaredModule):
    """Base class of all convolutions. Raises ValueError unless the channels are divisible by ``groups``."""

    dims: ClassVar[int]
    transposed = False
    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int],
        padding: int | Sequence[int] | str,
        output_padding: int | Sequence[int],
        dilation: int | Sequence[int],
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any,
        dtype: Any,
    ) -> None:
        super().__init__()
        if groups <= 0:
            raise InvalidValue("groups must be a positive integer")
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % groups:
                raise InvalidValue(f"{name} must be divisible by groups")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = expanded(kernel_size, self.dims)
        self.stride = expanded(stride, self.dims)
        self.padding = padding if isinstance(padding, str) else expanded(padding, self.dims)
        self.output_padding = expanded(output_padding, self.dims)
        self.dilation = expanded(dilation, self.dims)
        self.padding_mode = padding_mode
        self._check_padding()
        add_parameters(self, self._shapes(), device, dtype, () if bias else ("bias",))
        self.reset_parameters()

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        ends = (self.out_channels, self.in_channels // self.groups)
        if self.transposed:
            ends = (self.in_channels, self.out_channels // self.groups)
        return {"weight": (*ends, *self.kernel_size), "bias": (self.out_channels,)}

    def _check_padding(self) -> None:
        if isinstance(self.padding, str):
            if self.padding not in ("valid", "same"):
                raise InvalidValue(f"Invalid padding string {self.padding!r}, should be one of {_PADDINGS}")
            if self.padding == "same" and any(step != 1 for step in self.stride):
                raise InvalidValue("padding='same' is not supported for strided convolutions")
        if self.padding_mode not in _PADDING_MODES:
            modes = ", ".join(map(repr, _PADDING_MODES))
            raise InvalidValue(f"padding_mode must be one of {{{modes}}}, but got padding_mode={self.padding_mode!r}")

    def reset_parameters(self) -> None:
        """Set the parameters to new random values."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init.fan_in_and_out(self.weight)
            bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        none, one = (0,) * self.dims, (1,) * self.dims
        text += changed_options(self, padding=none, dilation=one, output_padding=none, groups=1)
        return text + ("" if self.bias is not None else ", bias=False") + changed_options(self, padding_mode="zeros")


class _Conv(_ConvNd):
    """A convolution: input (N, C, …) or (C, …)."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        sizes = (in_channels, out_channels, kernel_size, stride, padding, 0, dilation)
        super().__init__(*sizes, groups, bias, padding_mode, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """Return the convolved input."""
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input, padding = F.pad(input, self._around(), self.padding_mode), 0
        sizes = (self.stride, padding, self.dilation, self.groups)
        return cast(Tensor, getattr(F, f"conv{self.dims}d")(input, self.weight, self.bias, *sizes))

    def _around(self) -> list[int]:
        """Return the padding in ``F.pad``'s format: (before, after) for each dimension, starting with the last."""
        if isinstance(self.padding, str):
            same = self.padding == "same"
            missing = [d * (k - 1) * same for d, k in zip(self.dilation, self.kernel_size, strict=True)]
            return [side for total in reversed(missing) for side in (total // 2, total - total // 2)]
        return [side for size in reversed(self.padding) for side in (size, size)]


class Conv1d(_Conv, dims=1):
    """The convolution of sequences (N, C, L) or (C, L).

    The arguments are those of ``Conv2d``. The result is (N, O, L') or (O, L'), the weight (O, C / groups, K).

    Examples:
        >>> tg.nn.Conv1d(3, 8, kernel_size=5, stride=2)(tg.ones(1, 3, 15)).shape
        telegrad.Size([1, 8, 6])
    """


class Conv2d(_Conv, dims=2):
    """The convolution of images (N, C, H, W) or (C, H, W).

    The result is (N, O, H', W') or (O, H', W'), with H' = floor((H + 2 * padding - dilation * (kernel_size - 1) - 1)
    / stride) + 1. The weight is (O, C / groups, KH, KW), the bias (O); both start as uniform numbers within ±1/√(C /
    groups * KH * KW). Raises ValueError unless ``groups`` divides both numbers of channels, or for a padding that is
    not possible.

    Args:
        in_channels: The number of channels of the input.
        out_channels: The number of channels of the result.
        kernel_size: The size of a window: one int, or one for each dimension.
        stride: The distance between windows: one int, or one for each dimension.
        padding: What is added on both sides: one int, or one for each dimension; or "valid" (nothing) or "same".
        dilation: The distance between neighbours in a window: one int, or one for each dimension.
        groups: The number of groups of channels, each with weights of its own; it divides both numbers of channels.
        bias: Whether there is a bias that is added.
        padding_mode: "zeros", "reflect", "replicate" or "circular".
        device: The device of the parameters: only that of the session.
        dtype: The dtype of the parameters; None is the default dtype.

    Examples:
        >>> conv = tg.nn.Conv2d(3, 8, kernel_size=3, padding=1)
        >>> conv(tg.ones(1, 3, 16, 16)).shape
        telegrad.Size([1, 8, 16, 16])
        >>> conv.weight.shape
        telegrad.Size([8, 3, 3, 3])
    """


class Conv3d(_Conv, dims=3):
    """The convolution of volumes (N, C, D, H, W) or (C, D, H, W).

    The arguments are those of ``Conv2d``. The result is (N, O, D', H', W') or (O, D', H', W'), the weight (O, C /
    groups, KD, KH, KW).

    Examples:
        >>> tg.nn.Conv3d(3, 8, kernel_size=3)(tg.ones(1, 3, 8, 8, 8)).shape
        telegrad.Size([1, 8, 6, 6, 6])
    """


class _ConvTransposeNd(_ConvNd):
    """A transposed convolution, the gradient of a convolution with respect to its input: (N, C, …) or (C, …)."""

    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | Sequence[int] = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise InvalidValue(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        sizes = (in_channels, out_channels, kernel_size, stride, padding, output_padding, dilation)
        super().__init__(*sizes, groups, bias, padding_mode, device, dtype)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """Return the result, with ``output_size`` if given. Raises ValueError if that size is not possible."""
        extra = self.output_padding if output_size is None else self._extra(input, tuple(output_size))
        sizes = (self.stride, self.padding, extra, self.groups, self.dilation)
        return cast(Tensor, getattr(F, f"conv_transpose{self.dims}d")(input, self.weight, self.bias, *sizes))

    def _extra(self, input: Tensor, output_size: tuple[int, ...]) -> tuple[int, ...]:
        """Return the output padding that gives ``output_size``. Raises ValueError if there is none."""
        leading = input.dim() - self.dims
        if len(output_size) == input.dim():
            output_size = output_size[leading:]
        if len(output_size) != self.dims:
            raise InvalidValue(
                f"ConvTranspose{self.dims}D: for {input.dim()}D input, output_size must have {self.dims} or "
                f"{input.dim()} elements (got {len(output_size)})"
            )
        space = tuple(input.shape[leading:])
        smallest = [
            (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + 1
            for size, stride, padding, dilation, kernel in zip(
                space, self.stride, self.padding, self.dilation, self.kernel_size, strict=True
            )
        ]
        largest = [size + stride - 1 for size, stride in zip(smallest, self.stride, strict=True)]
        extra = tuple(size - least for size, least in zip(output_size, smallest, strict=True))
        if any(not 0 <= e < stride for e, stride in zip(extra, self.stride, strict=True)):
            raise InvalidValue(
                f"requested an output size of {output_size}, but valid sizes range from {smallest} to {largest} "
                f"(for an input of {torch_size(space)})"
            )
        return extra


class ConvTranspose1d(_ConvTransposeNd, dims=1):
    """The transposed convolution of sequences (N, C, L) or (C, L).

    The arguments are those of ``ConvTranspose2d``. The result is (N, O, L') or (O, L'), the weight (C, O / groups,
    K).

    Examples:
        >>> tg.nn.ConvTranspose1d(8, 3, kernel_size=4, stride=2)(tg.ones(1, 8, 15)).shape
        telegrad.Size([1, 3, 32])
    """


class ConvTranspose2d(_ConvTransposeNd, dims=2):
    """The transposed convolution of images (N, C, H, W) or (C, H, W).

    The result is (N, O, H', W') or (O, H', W'), with H' = (H - 1) * stride - 2 * padding + dilation * (kernel_size -
    1) + output_padding + 1. The weight is (C, O / groups, KH, KW). Raises ValueError as ``Conv2d`` does.

    Args:
        in_channels: The number of channels of the input.
        out_channels: The number of channels of the result.
        kernel_size: The size of a window: one int, or one for each dimension.
        stride: The distance between windows: one int, or one for each dimension.
        padding: What is left out on both sides of the result: one int, or one for each dimension.
        output_padding: What is added to the size of the result on one side: one int, or one for each dimension.
        groups: The number of groups of channels, each with weights of its own; it divides both numbers of channels.
        bias: Whether there is a bias that is added.
        dilation: The distance between neighbours in a window: one int, or one for each dimension.
        padding_mode: Only "zeros".
        device: The device of the parameters: only that of the session.
        dtype: The dtype of the parameters; None is the default dtype.

    Examples:
        >>> up = tg.nn.ConvTranspose2d(8, 3, kernel_size=2, stride=2)
        >>> up(tg.ones(1, 8, 16, 16)).shape
        telegrad.Size([1, 3, 32, 32])
    """


class ConvTranspose3d(_ConvTransposeNd, dims=3):
    """The transposed convolution of volumes (N, C, D, H, W) or (C, D, H, W).

    The arguments are those of ``ConvTranspose2d``. The result is (N, O, D', H', W') or (O, D', H', W'), the weight
    (C, O / groups, KD, KH, KW).

    Examples:
        >>> tg.nn.ConvTranspose3d(8, 3, kernel_size=2)(tg.ones(1, 8, 4, 4, 4)).shape
        telegrad.Size([1, 3, 5, 5, 5])
    """
