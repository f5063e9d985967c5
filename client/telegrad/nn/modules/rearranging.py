"""Modules without parameters that rearrange or resize their input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad_engine.errors import InvalidValue

from ...tensor.handle import Tensor
from .. import functional as F
from .function_module import FunctionModule
from .module import Module, options
from .pooling import Sizes


class Unfold(FunctionModule, function="unfold"):
    """Extracts the windows of images (N, C, H, W) or (C, H, W) as columns (N, C * window, windows).

    Args:
        kernel_size: The size of a window: one int, or one for each dimension.
        dilation: The distance between neighbours in a window: one int, or one for each dimension.
        padding: The number of zeros on both sides: one int, or one for each dimension.
        stride: The distance between windows: one int, or one for each dimension.

    Examples:
        >>> tg.nn.Unfold(kernel_size=2)(tg.ones(1, 3, 8, 8)).shape
        telegrad.Size([1, 12, 49])
    """

    _arguments = _shown = ("kernel_size", "dilation", "padding", "stride")

    def __init__(self, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1) -> None:
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride


class Fold(FunctionModule, function="fold"):
    """Combines columns (N, C * window, windows) into images (N, C, *output_size); overlapping values are summed.

    The other arguments are those of ``Unfold``.

    Examples:
        >>> tg.nn.Fold(output_size=(8, 8), kernel_size=2)(tg.ones(1, 12, 49)).shape
        telegrad.Size([1, 3, 8, 8])
    """

    _arguments = _shown = ("output_size", "kernel_size", "dilation", "padding", "stride")

    def __init__(
        self, output_size: Sizes, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1
    ) -> None:
        super().__init__()
        self.output_size, self.kernel_size = output_size, kernel_size
        self.dilation, self.padding, self.stride = dilation, padding, stride


class Identity(Module):
    """Returns its input. Takes any constructor arguments, so that it can replace any module.

    Examples:
        >>> tg.nn.Identity()(tg.ones(2))
        tensor([1., 1.])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        """Return the input itself."""
        return input


class Flatten(Module):
    """Flattens the dimensions from ``start_dim`` to ``end_dim`` into one.

    Examples:
        >>> tg.nn.Flatten()(tg.ones(2, 3, 4, 4)).shape
        telegrad.Size([2, 48])
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        """Return the flattened input."""
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return options(self, "start_dim", "end_dim")


class Unflatten(Module):
    """Splits one dimension into several of ``unflattened_size``, one of which may be -1.

    ``dim`` is the dimension that is split.

    Examples:
        >>> tg.nn.Unflatten(1, (3, 4))(tg.ones(2, 12)).shape
        telegrad.Size([2, 3, 4])
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        if not isinstance(unflattened_size, (tuple, list)):
            raise TypeError(
                f"unflattened_size must be a tuple of ints, but found type {type(unflattened_size).__name__}"
            )
        for place, size in enumerate(unflattened_size):
            if not isinstance(size, int):
                raise TypeError(
                    "unflattened_size must be tuple of ints, but found element of type "
                    f"{type(size).__name__} at pos {place}"
                )
        self.dim, self.unflattened_size = dim, unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with the dimension split."""
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return options(self, "dim", "unflattened_size")


class PixelShuffle(FunctionModule, function="pixel_shuffle"):
    """Rearranges (…, C r², H, W) to (…, C, H r, W r), with r the ``upscale_factor`` (Shi et al. 2016).

    Examples:
        >>> tg.nn.PixelShuffle(2)(tg.ones(1, 8, 2, 2)).shape
        telegrad.Size([1, 2, 4, 4])
    """

    _arguments = _shown = ("upscale_factor",)

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor


class PixelUnshuffle(FunctionModule, function="pixel_unshuffle"):
    """Rearranges (…, C, H r, W r) to (…, C r², H, W), with r the ``downscale_factor``.

    Examples:
        >>> tg.nn.PixelUnshuffle(2)(tg.ones(1, 2, 4, 4)).shape
        telegrad.Size([1, 8, 2, 2])
    """

    _arguments = _shown = ("downscale_factor",)

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor


class ChannelShuffle(FunctionModule, function="channel_shuffle"):
    """Interleaves the channels (dim 1) of ``groups`` groups (Zhang et al. 2017).

    Examples:
        >>> tg.nn.ChannelShuffle(2)(tg.arange(4.0).view(1, 4, 1, 1)).flatten()
        tensor([0., 2., 1., 3.])
    """

    _arguments = _shown = ("groups",)

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups


class Upsample(Module):
    """Resizes (N, C, …) to ``size`` or by ``scale_factor``, with one of ``interpolate``'s modes.

    Args:
        size: The new sizes: one int, or one for each dimension.
        scale_factor: The factor of the sizes: one number, or one for each dimension.
        mode: "nearest", "linear", "bilinear", "bicubic" or "trilinear".
        align_corners: Whether the centers of corner elements keep their places.
        recompute_scale_factor: Whether the factor is computed again from the sizes.

    Examples:
        >>> tg.nn.Upsample(scale_factor=2)(tg.tensor([[[1.0, 2.0]]]))
        tensor([[[1., 1., 2., 2.]]])
    """

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        self.scale_factor: Any
        if isinstance(scale_factor, (tuple, list)):
            self.scale_factor = tuple(float(factor) for factor in scale_factor)
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None  # type: ignore[arg-type]
        self.mode, self.align_corners = mode, align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        """Return the resized input. Raises ValueError if neither ``size`` nor ``scale_factor`` is set."""
        if self.size is None and self.scale_factor is None:
            raise InvalidValue("either size or scale_factor should be defined")
        return F.interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            recompute_scale_factor=self.recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        return options(self, "size" if self.scale_factor is None else "scale_factor", "mode")


class UpsamplingNearest2d(Upsample):
    """Resizes images (N, C, H, W) by nearest-neighbor interpolation.

    ``size`` and ``scale_factor`` are those of ``Upsample``.

    Examples:
        >>> tg.nn.UpsamplingNearest2d(scale_factor=2)(tg.ones(1, 3, 4, 4)).shape
        telegrad.Size([1, 3, 8, 8])
    """

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Resizes images (N, C, H, W) by bilinear interpolation with aligned corners.

    ``size`` and ``scale_factor`` are those of ``Upsample``.

    Examples:
        >>> tg.nn.UpsamplingBilinear2d(scale_factor=2)(tg.ones(1, 3, 4, 4)).shape
        telegrad.Size([1, 3, 8, 8])
    """

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)
