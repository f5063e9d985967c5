"""Pooling: what a window of space comes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ..tensor import Tensor
from . import functional as F
from .described import expanded, options
from .module import Module

Sizes = int | Sequence[int]


class _MaxPool(Module):
    """The stride is the kernel's size unless given."""

    dims: ClassVar[int]

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, input: Tensor) -> Any:
        """The maxima; with ``return_indices`` also where they were found."""
        pool = getattr(F, f"max_pool{self.dims}d")
        window = (self.kernel_size, self.stride, self.padding, self.dilation)
        return pool(input, *window, ceil_mode=self.ceil_mode, return_indices=self.return_indices)

    def extra_repr(self) -> str:
        """The window."""
        return options(self, "kernel_size", "stride", "padding", "dilation", "ceil_mode")


class MaxPool1d(_MaxPool):
    """The maximum of each window of sequences (N, C, L) or (C, L)."""

    dims = 1


class MaxPool2d(_MaxPool):
    """The maximum of each window of images (N, C, H, W) or (C, H, W)."""

    dims = 2


class MaxPool3d(_MaxPool):
    """The maximum of each window of volumes (N, C, D, H, W) or (C, D, H, W)."""

    dims = 3


class AvgPool1d(Module):
    """The mean of each window of sequences (N, C, L) or (C, L)."""

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = expanded(kernel_size, 1)
        self.stride = expanded(kernel_size if stride is None else stride, 1)
        self.padding = expanded(padding, 1)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        """The means."""
        window = (self.kernel_size, self.stride, self.padding)
        return F.avg_pool1d(input, *window, self.ceil_mode, self.count_include_pad)

    def extra_repr(self) -> str:
        """The window."""
        return options(self, "kernel_size", "stride", "padding")


class _AvgPool(Module):
    """Of the dimensions beyond the first; ``divisor_override`` stands for the window's size."""

    dims: ClassVar[int]

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode = padding, ceil_mode
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override

    def forward(self, input: Tensor) -> Tensor:
        """The means."""
        pool = getattr(F, f"avg_pool{self.dims}d")
        window = (self.kernel_size, self.stride, self.padding)
        result: Tensor = pool(input, *window, self.ceil_mode, self.count_include_pad, self.divisor_override)
        return result

    def extra_repr(self) -> str:
        """The window."""
        return options(self, "kernel_size", "stride", "padding")


class AvgPool2d(_AvgPool):
    """The mean of each window of images (N, C, H, W) or (C, H, W)."""

    dims = 2


class AvgPool3d(_AvgPool):
    """The mean of each window of volumes (N, C, D, H, W) or (C, D, H, W)."""

    dims = 3


class _LPPool(Module):
    """The stride is the kernel's size unless given."""

    dims: ClassVar[int]

    def __init__(
        self, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        """The norms."""
        pool = getattr(F, f"lp_pool{self.dims}d")
        result: Tensor = pool(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)
        return result

    def extra_repr(self) -> str:
        """The norm and the window."""
        return options(self, "norm_type", "kernel_size", "stride", "ceil_mode")


class LPPool1d(_LPPool):
    """The ``norm_type``-norm of each window of sequences (N, C, L) or (C, L)."""

    dims = 1


class LPPool2d(_LPPool):
    """The ``norm_type``-norm of each window of images (N, C, H, W) or (C, H, W)."""

    dims = 2


class LPPool3d(_LPPool):
    """The ``norm_type``-norm of each window of volumes (N, C, D, H, W) or (C, D, H, W)."""

    dims = 3
