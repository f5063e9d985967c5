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
    """Extracts the windows of images (N, C, H, W) or (C, H, W) as columns (N, C * window, windows)."""

    _arguments = _shown = ("kernel_size", "dilation", "padding", "stride")

    def __init__(self, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1) -> None:
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride


class Fold(FunctionModule, function="fold"):
    """Combines columns (N, C * window, windows) into images (N, C, *output_size); overlapping values are summed."""

    _arguments = _shown = ("output_size", "kernel_size", "dilation", "padding", "stride")

    def __init__(
        self, output_size: Sizes, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1
    ) -> None:
        super().__init__()
        self.output_size, self.kernel_size = output_size, kernel_size
        self.dilation, self.padding, self.stride = dilation, padding, stride


class Identity(Module):
    """Returns its input. Takes any constructor arguments, so that it can replace any module."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        """Return the input itself."""
        return input


class Flatten(Module):
    """Flattens the dimensions from ``start_dim`` to ``end_dim`` into one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        """Return the flattened input."""
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return options(self, "start_dim", "end_dim")


class Unflatten(Module):
    """Splits one dimension into several of ``unflattened_size``, one of which may be -1."""

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
    """Rearranges (…, C r², H, W) to (…, C, H r, W r), with r the ``upscale_factor`` (Shi et al. 2016)."""

    _arguments = _shown = ("upscale_factor",)

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor


class PixelUnshuffle(FunctionModule, function="pixel_unshuffle"):
    """Rearranges (…, C, H r, W r) to (…, C r², H, W), with r the ``downscale_factor``."""

    _arguments = _shown = ("downscale_factor",)

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor


class ChannelShuffle(FunctionModule, function="channel_shuffle"):
    """Interleaves the channels (dim 1) of ``groups`` groups (Zhang et al. 2017)."""

    _arguments = _shown = ("groups",)

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups


class Upsample(Module):
    """Resizes (N, C, …) to ``size`` or by ``scale_factor``, with one of ``interpolate``'s modes."""

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
    """Resizes images (N, C, H, W) by nearest-neighbor interpolation."""

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Resizes images (N, C, H, W) by bilinear interpolation with aligned corners."""

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)
