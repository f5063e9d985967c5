"""Pooling and adaptive pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from telegrad_engine.errors import InvalidValue

from ...tensor.handle import Tensor
from .. import functional as F
from .module import Module, expanded, options

Sizes = int | Sequence[int]


class _MaxUnpool(Module):
    """The settings are those of the pooling; the stride is the kernel's size unless given."""

    dims: ClassVar[int]

    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> None:
        super().__init__()
        self.kernel_size = expanded(kernel_size, self.dims)
        self.stride = expanded(kernel_size if stride is None else stride, self.dims)
        self.padding = expanded(padding, self.dims)

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """The elements in the places that ``indices`` say, zeros elsewhere."""
        unpool = getattr(F, f"max_unpool{self.dims}d")
        window = (self.kernel_size, self.stride, self.padding)
        result: Tensor = unpool(input, indices, *window, output_size=output_size)
        return result

    def extra_repr(self) -> str:
        """The window."""
        return options(self, "kernel_size", "stride", "padding")


class MaxUnpool1d(_MaxUnpool):
    """What ``MaxPool1d`` made of sequences (N, C, L) or (C, L), back in its places."""

    dims = 1


class MaxUnpool2d(_MaxUnpool):
    """What ``MaxPool2d`` made of images (N, C, H, W) or (C, H, W), back in its places."""

    dims = 2


class MaxUnpool3d(_MaxUnpool):
    """What ``MaxPool3d`` made of volumes (N, C, D, H, W) or (C, D, H, W), back in its places."""

    dims = 3


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


class _FractionalMaxPool(Module):
    """Windows at random places: Graham 2014. Raises ValueError without a size or a ratio, or with both."""

    dims: ClassVar[int]
    _random_samples: Tensor | None

    def __init__(
        self,
        kernel_size: Sizes,
        output_size: Sizes | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size, self.return_indices = expanded(kernel_size, self.dims), return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else expanded(output_size, self.dims)
        self.output_ratio = None if output_ratio is None else expanded(output_ratio, self.dims)
        if output_size is None and output_ratio is None:
            raise InvalidValue(f"{type(self).__name__} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise InvalidValue("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise InvalidValue(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Tensor) -> Any:
        """The maxima; with ``return_indices`` also where they were found."""
        pool = getattr(F, f"fractional_max_pool{self.dims}d")
        size = (self.kernel_size, self.output_size, self.output_ratio)
        return pool(input, *size, self.return_indices, _random_samples=self._random_samples)


class FractionalMaxPool2d(_FractionalMaxPool):
    """Of images (N, C, H, W) or (C, H, W)."""

    dims = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """Of volumes (N, C, D, H, W) or (C, D, H, W)."""

    dims = 3


class _AdaptivePool(Module):
    """Windows such that the result has ``output_size``, one size standing for all; None keeps a dimension's size."""

    dims: ClassVar[int]

    def __init__(self, output_size: int | Sequence[int | None] | None) -> None:
        super().__init__()
        self.output_size = output_size

    def _pooled(self, how: str, input: Tensor, **options: Any) -> Any:
        pool = getattr(F, f"adaptive_{how}_pool{self.dims}d")
        if self.dims == 1:
            return pool(input, self.output_size, **options)
        sizes, kept = expanded(self.output_size, self.dims), tuple(input.shape[-self.dims :])
        return pool(input, tuple(k if s is None else s for s, k in zip(sizes, kept, strict=True)), **options)

    def extra_repr(self) -> str:
        """The size of the result."""
        return options(self, "output_size")


class _AdaptiveAvgPool(_AdaptivePool):
    def forward(self, input: Tensor) -> Tensor:
        """The means."""
        result: Tensor = self._pooled("avg", input)
        return result


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Sequences (N, C, L) or (C, L) averaged down to (…, output_size)."""

    dims = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Images (N, C, H, W) or (C, H, W) averaged down to (…, *output_size)."""

    dims = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Volumes (N, C, D, H, W) or (C, D, H, W) averaged down to (…, *output_size)."""

    dims = 3


class _AdaptiveMaxPool(_AdaptivePool):
    def __init__(self, output_size: int | Sequence[int | None] | None, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        """The maxima; with ``return_indices`` also where they were found."""
        return self._pooled("max", input, return_indices=self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The maxima of ``output_size`` windows of sequences (N, C, L) or (C, L)."""

    dims = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The maxima of a grid of ``output_size`` windows of images (N, C, H, W) or (C, H, W)."""

    dims = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The maxima of a grid of ``output_size`` windows of volumes (N, C, D, H, W) or (C, D, H, W)."""

    dims = 3
