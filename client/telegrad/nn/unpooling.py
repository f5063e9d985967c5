"""Max pooling undone: each element where the pooling found it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..tensor.handle import Tensor
from . import functional as F
from .described import expanded, options
from .module import Module
from .pooling import Sizes


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
