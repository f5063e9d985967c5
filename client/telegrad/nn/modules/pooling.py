"""Pooling and adaptive pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

from telegrad_engine.errors import InvalidValue

from ...tensor.handle import Tensor
from .function_module import FunctionModule
from .module import expanded

Sizes = int | Sequence[int]


class _MaxUnpoolNd(FunctionModule):
    """Base class of max unpooling, with the settings of the pooling. The default stride is the kernel size."""

    _shown = ("kernel_size", "stride", "padding")
    dims: ClassVar[int]

    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> None:
        super().__init__()
        self.kernel_size = expanded(kernel_size, self.dims)
        self.stride = expanded(kernel_size if stride is None else stride, self.dims)
        self.padding = expanded(padding, self.dims)

    def forward(  # type: ignore[override]
        self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        """Return the input's elements at the positions ``indices``, with zeros elsewhere."""
        return cast(Tensor, self._call(input, indices, self.kernel_size, self.stride, self.padding, output_size))


class MaxUnpool1d(_MaxUnpoolNd, function="max_unpool1d", dims=1):
    """Puts the maxima of ``MaxPool1d`` back at their positions in sequences (N, C, L) or (C, L)."""


class MaxUnpool2d(_MaxUnpoolNd, function="max_unpool2d", dims=2):
    """Puts the maxima of ``MaxPool2d`` back at their positions in images (N, C, H, W) or (C, H, W)."""


class MaxUnpool3d(_MaxUnpoolNd, function="max_unpool3d", dims=3):
    """Puts the maxima of ``MaxPool3d`` back at their positions in volumes (N, C, D, H, W) or (C, D, H, W)."""


class _MaxPoolNd(FunctionModule):
    """Base class of max pooling. The default stride is the kernel size; ``return_indices`` also returns the indices."""

    _arguments = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
    _shown = _arguments[:-1]

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


class MaxPool1d(_MaxPoolNd, function="max_pool1d"):
    """The maximum of each window of sequences (N, C, L) or (C, L)."""


class MaxPool2d(_MaxPoolNd, function="max_pool2d"):
    """The maximum of each window of images (N, C, H, W) or (C, H, W)."""


class MaxPool3d(_MaxPoolNd, function="max_pool3d"):
    """The maximum of each window of volumes (N, C, D, H, W) or (C, D, H, W)."""


class AvgPool1d(FunctionModule, function="avg_pool1d"):
    """The mean of each window of sequences (N, C, L) or (C, L)."""

    _arguments = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
    _shown = ("kernel_size", "stride", "padding")

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


class _AvgPoolNd(FunctionModule):
    """Average pooling in two or three dimensions; ``divisor_override`` replaces the window's size as divisor."""

    _arguments = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
    _shown = ("kernel_size", "stride", "padding")

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


class AvgPool2d(_AvgPoolNd, function="avg_pool2d"):
    """The mean of each window of images (N, C, H, W) or (C, H, W)."""


class AvgPool3d(_AvgPoolNd, function="avg_pool3d"):
    """The mean of each window of volumes (N, C, D, H, W) or (C, D, H, W)."""


class _LPPoolNd(FunctionModule):
    """Base class of power-average pooling. The default stride is the kernel size."""

    _shown = ("norm_type", "kernel_size", "stride", "ceil_mode")

    def __init__(
        self, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        """Return the norm of each window."""
        return cast(Tensor, self._call(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode))


class LPPool1d(_LPPoolNd, function="lp_pool1d"):
    """The ``norm_type``-norm of each window of sequences (N, C, L) or (C, L)."""


class LPPool2d(_LPPoolNd, function="lp_pool2d"):
    """The ``norm_type``-norm of each window of images (N, C, H, W) or (C, H, W)."""


class LPPool3d(_LPPoolNd, function="lp_pool3d"):
    """The ``norm_type``-norm of each window of volumes (N, C, D, H, W) or (C, D, H, W)."""


class _FractionalMaxPool(FunctionModule):
    """Max pooling of pseudorandom windows (Graham 2014). Raises ValueError unless given either a size or a ratio.

    With ``return_indices``, the indices of the maxima are returned too.
    """

    _arguments = ("kernel_size", "output_size", "output_ratio", "return_indices")
    _keywords = ("_random_samples",)
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


class FractionalMaxPool2d(_FractionalMaxPool, function="fractional_max_pool2d", dims=2):
    """Fractional max pooling of images (N, C, H, W) or (C, H, W)."""


class FractionalMaxPool3d(_FractionalMaxPool, function="fractional_max_pool3d", dims=3):
    """Fractional max pooling of volumes (N, C, D, H, W) or (C, D, H, W)."""


class _AdaptivePool(FunctionModule):
    """Pooling to ``output_size``, which may be one size for all dimensions; None keeps a dimension's size."""

    _shown = ("output_size",)
    dims: ClassVar[int]

    def __init__(self, output_size: int | Sequence[int | None] | None) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Any:
        """Return the means or maxima."""
        if self.dims == 1:
            return self._call(input, self.output_size)
        sizes, kept = expanded(self.output_size, self.dims), tuple(input.shape[-self.dims :])
        return self._call(input, tuple(k if s is None else s for s, k in zip(sizes, kept, strict=True)))


class AdaptiveAvgPool1d(_AdaptivePool, function="adaptive_avg_pool1d", dims=1):
    """Averages sequences (N, C, L) or (C, L) to (…, output_size)."""


class AdaptiveAvgPool2d(_AdaptivePool, function="adaptive_avg_pool2d", dims=2):
    """Averages images (N, C, H, W) or (C, H, W) to (…, *output_size)."""


class AdaptiveAvgPool3d(_AdaptivePool, function="adaptive_avg_pool3d", dims=3):
    """Averages volumes (N, C, D, H, W) or (C, D, H, W) to (…, *output_size)."""


class _AdaptiveMaxPoolNd(_AdaptivePool):
    """Adaptive max pooling. With ``return_indices``, the indices of the maxima are returned too."""

    _keywords = ("return_indices",)

    def __init__(self, output_size: int | Sequence[int | None] | None, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd, function="adaptive_max_pool1d", dims=1):
    """The maxima of ``output_size`` windows of sequences (N, C, L) or (C, L)."""


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd, function="adaptive_max_pool2d", dims=2):
    """The maxima of a grid of ``output_size`` windows of images (N, C, H, W) or (C, H, W)."""


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd, function="adaptive_max_pool3d", dims=3):
    """The maxima of a grid of ``output_size`` windows of volumes (N, C, D, H, W) or (C, D, H, W)."""
