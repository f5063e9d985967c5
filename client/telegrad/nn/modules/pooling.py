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
    """Puts the maxima of ``MaxPool1d`` back at their positions in sequences (N, C, L) or (C, L).

    ``kernel_size``, ``stride`` and ``padding`` are those of the pooling. ``forward`` takes its result and its
    indices, and as ``output_size`` the size to restore; the rest is zeros.

    Examples:
        >>> pooled, places = tg.nn.MaxPool1d(2, return_indices=True)(tg.tensor([[1.0, 3.0, 4.0, 2.0]]))
        >>> tg.nn.MaxUnpool1d(2)(pooled, places)
        tensor([[0., 3., 4., 0.]])
    """


class MaxUnpool2d(_MaxUnpoolNd, function="max_unpool2d", dims=2):
    """Puts the maxima of ``MaxPool2d`` back at their positions in images (N, C, H, W) or (C, H, W).

    The arguments are those of ``MaxUnpool1d``.

    Examples:
        >>> pooled, places = tg.nn.MaxPool2d(2, return_indices=True)(tg.ones(1, 3, 8, 8))
        >>> tg.nn.MaxUnpool2d(2)(pooled, places).shape
        telegrad.Size([1, 3, 8, 8])
    """


class MaxUnpool3d(_MaxUnpoolNd, function="max_unpool3d", dims=3):
    """Puts the maxima of ``MaxPool3d`` back at their positions in volumes (N, C, D, H, W) or (C, D, H, W).

    The arguments are those of ``MaxUnpool1d``.

    Examples:
        >>> pooled, places = tg.nn.MaxPool3d(2, return_indices=True)(tg.ones(1, 3, 4, 4, 4))
        >>> tg.nn.MaxUnpool3d(2)(pooled, places).shape
        telegrad.Size([1, 3, 4, 4, 4])
    """


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
    """The maximum of each window of sequences (N, C, L) or (C, L).

    The arguments are those of ``MaxPool2d``. The result is (N, C, L') or (C, L').

    Examples:
        >>> tg.nn.MaxPool1d(2)(tg.tensor([[1.0, 3.0, 2.0, 4.0]]))
        tensor([[3., 4.]])
    """


class MaxPool2d(_MaxPoolNd, function="max_pool2d"):
    """The maximum of each window of images (N, C, H, W) or (C, H, W).

    The result is (N, C, H', W') or (C, H', W'), with H' = floor((H + 2 * padding - dilation * (kernel_size - 1) - 1)
    / stride) + 1.

    Args:
        kernel_size: The size of a window: one int, or one for each dimension.
        stride: The distance between windows: one int, or one for each dimension; None is ``kernel_size``.
        padding: What is added on both sides, at most half a window; it is never the maximum.
        dilation: The distance between neighbours in a window: one int, or one for each dimension.
        return_indices: Whether ``forward`` also returns the place of each maximum in its flattened plane.
        ceil_mode: Whether a last window that only partly covers the input counts, too.

    Examples:
        >>> tg.nn.MaxPool2d(2)(tg.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
        tensor([[[4.]]])
    """


class MaxPool3d(_MaxPoolNd, function="max_pool3d"):
    """The maximum of each window of volumes (N, C, D, H, W) or (C, D, H, W).

    The arguments are those of ``MaxPool2d``. The result is (N, C, D', H', W') or (C, D', H', W').

    Examples:
        >>> tg.nn.MaxPool3d(2)(tg.ones(1, 3, 4, 4, 4)).shape
        telegrad.Size([1, 3, 2, 2, 2])
    """


class AvgPool1d(FunctionModule, function="avg_pool1d"):
    """The mean of each window of sequences (N, C, L) or (C, L).

    The arguments are those of ``AvgPool2d``. The result is (N, C, L') or (C, L').

    Examples:
        >>> tg.nn.AvgPool1d(2)(tg.tensor([[1.0, 3.0, 2.0, 4.0]]))
        tensor([[2., 3.]])
    """

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
    """The mean of each window of images (N, C, H, W) or (C, H, W).

    The result is (N, C, H', W') or (C, H', W'), with H' = floor((H + 2 * padding - kernel_size) / stride) + 1.

    Args:
        kernel_size: The size of a window: one int, or one for each dimension.
        stride: The distance between windows: one int, or one for each dimension; None is ``kernel_size``.
        padding: What is added on both sides: one int, or one for each dimension.
        ceil_mode: Whether a last window that only partly covers the input counts, too.
        count_include_pad: Whether padding counts in the divisor.
        divisor_override: What each sum is divided by; None is the size of the window.

    Examples:
        >>> tg.nn.AvgPool2d(2)(tg.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
        tensor([[[2.5000]]])
    """


class AvgPool3d(_AvgPoolNd, function="avg_pool3d"):
    """The mean of each window of volumes (N, C, D, H, W) or (C, D, H, W).

    The arguments are those of ``AvgPool2d``. The result is (N, C, D', H', W') or (C, D', H', W').

    Examples:
        >>> tg.nn.AvgPool3d(2)(tg.ones(1, 3, 4, 4, 4)).shape
        telegrad.Size([1, 3, 2, 2, 2])
    """


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
    """The ``norm_type``-norm of each window of sequences (N, C, L) or (C, L).

    The arguments are those of ``LPPool2d``.

    Examples:
        >>> tg.nn.LPPool1d(2, kernel_size=2)(tg.tensor([[3.0, 4.0]]))
        tensor([[5.]])
    """


class LPPool2d(_LPPoolNd, function="lp_pool2d"):
    """The ``norm_type``-norm of each window of images (N, C, H, W) or (C, H, W).

    The result is as that of ``AvgPool2d`` without padding.

    Args:
        norm_type: The order of the norm.
        kernel_size: The size of a window: one int, or one for each dimension.
        stride: The distance between windows: one int, or one for each dimension; None is ``kernel_size``.
        ceil_mode: Whether a last window that only partly covers the input counts, too.

    Examples:
        >>> tg.nn.LPPool2d(2, kernel_size=2)(tg.ones(1, 1, 2, 2))
        tensor([[[[2.]]]])
    """


class LPPool3d(_LPPoolNd, function="lp_pool3d"):
    """The ``norm_type``-norm of each window of volumes (N, C, D, H, W) or (C, D, H, W).

    The arguments are those of ``LPPool2d``.

    Examples:
        >>> tg.nn.LPPool3d(2, kernel_size=2)(tg.ones(1, 1, 4, 4, 4)).shape
        telegrad.Size([1, 1, 2, 2, 2])
    """


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
    """Fractional max pooling of images (N, C, H, W) or (C, H, W).

    The windows have random sizes (Graham 2014). Raises ValueError unless exactly one of ``output_size`` and
    ``output_ratio`` is given.

    Args:
        kernel_size: The size of a window: one int, or one for each dimension.
        output_size: The sizes of the result: one int, or one for each dimension.
        output_ratio: The sizes of the result as parts of those of the input, between 0 and 1.
        return_indices: Whether ``forward`` also returns the place of each maximum in its flattened plane.

    Examples:
        >>> tg.nn.FractionalMaxPool2d(2, output_ratio=0.5)(tg.ones(1, 3, 8, 8)).shape
        telegrad.Size([1, 3, 4, 4])
    """


class FractionalMaxPool3d(_FractionalMaxPool, function="fractional_max_pool3d", dims=3):
    """Fractional max pooling of volumes (N, C, D, H, W) or (C, D, H, W).

    The arguments are those of ``FractionalMaxPool2d``.

    Examples:
        >>> tg.nn.FractionalMaxPool3d(2, output_size=3)(tg.ones(1, 3, 8, 8, 8)).shape
        telegrad.Size([1, 3, 3, 3, 3])
    """


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
    """Averages sequences (N, C, L) or (C, L) to (…, output_size).

    ``output_size`` is the number of windows; None keeps the size.

    Examples:
        >>> tg.nn.AdaptiveAvgPool1d(2)(tg.tensor([[1.0, 2.0, 3.0, 4.0]]))
        tensor([[1.5000, 3.5000]])
    """


class AdaptiveAvgPool2d(_AdaptivePool, function="adaptive_avg_pool2d", dims=2):
    """Averages images (N, C, H, W) or (C, H, W) to (…, *output_size).

    ``output_size`` is one int for both dimensions, or two; None keeps a size.

    Examples:
        >>> tg.nn.AdaptiveAvgPool2d((1, 1))(tg.ones(2, 8, 7, 5)).shape
        telegrad.Size([2, 8, 1, 1])
    """


class AdaptiveAvgPool3d(_AdaptivePool, function="adaptive_avg_pool3d", dims=3):
    """Averages volumes (N, C, D, H, W) or (C, D, H, W) to (…, *output_size).

    ``output_size`` is one int for all three dimensions, or three; None keeps a size.

    Examples:
        >>> tg.nn.AdaptiveAvgPool3d(2)(tg.ones(2, 8, 7, 5, 4)).shape
        telegrad.Size([2, 8, 2, 2, 2])
    """


class _AdaptiveMaxPoolNd(_AdaptivePool):
    """Adaptive max pooling. With ``return_indices``, the indices of the maxima are returned too."""

    _keywords = ("return_indices",)

    def __init__(self, output_size: int | Sequence[int | None] | None, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd, function="adaptive_max_pool1d", dims=1):
    """The maxima of ``output_size`` windows of sequences (N, C, L) or (C, L).

    With ``return_indices``, the result is a pair of the maxima and their places in the sequence.

    Examples:
        >>> tg.nn.AdaptiveMaxPool1d(2)(tg.tensor([[1.0, 3.0, 2.0, 4.0]]))
        tensor([[3., 4.]])
    """


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd, function="adaptive_max_pool2d", dims=2):
    """The maxima of a grid of ``output_size`` windows of images (N, C, H, W) or (C, H, W).

    With ``return_indices``, the result is a pair of the maxima and their places in the flattened images.

    Examples:
        >>> tg.nn.AdaptiveMaxPool2d((1, 1))(tg.ones(2, 8, 7, 5)).shape
        telegrad.Size([2, 8, 1, 1])
    """


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd, function="adaptive_max_pool3d", dims=3):
    """The maxima of a grid of ``output_size`` windows of volumes (N, C, D, H, W) or (C, D, H, W).

    With ``return_indices``, the result is a pair of the maxima and their places in the flattened volumes.

    Examples:
        >>> tg.nn.AdaptiveMaxPool3d(2)(tg.ones(2, 8, 7, 5, 4)).shape
        telegrad.Size([2, 8, 2, 2, 2])
    """
