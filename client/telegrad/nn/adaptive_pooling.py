"""Pooling into as many windows as are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ..tensor.handle import Tensor
from . import functional as F
from .module import Module, expanded, options


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
