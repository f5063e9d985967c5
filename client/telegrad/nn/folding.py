"""Images as columns, one a sliding window, and back."""

from __future__ import annotations

from ..tensor.handle import Tensor
from . import functional as F
from .described import options
from .module import Module
from .pooling import Sizes


class Unfold(Module):
    """The windows of images (N, C, H, W) or (C, H, W) as columns (N, C * window, windows)."""

    def __init__(self, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1) -> None:
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        """The columns."""
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        """The window."""
        return options(self, "kernel_size", "dilation", "padding", "stride")


class Fold(Module):
    """Columns (N, C * window, windows) laid over images (N, C, *output_size); what overlaps adds up."""

    def __init__(
        self, output_size: Sizes, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1
    ) -> None:
        super().__init__()
        self.output_size, self.kernel_size = output_size, kernel_size
        self.dilation, self.padding, self.stride = dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        """The images."""
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        """The sizes and the window."""
        return options(self, "output_size", "kernel_size", "dilation", "padding", "stride")
