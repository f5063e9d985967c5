"""Activations: elementwise, of the input's shape and dtype."""

from __future__ import annotations

from ..tensor import Tensor
from . import functional as F
from .module import Module


class ReLU(Module):
    """The input where positive, else 0; written into the input if ``inplace``."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """``max(input, 0)``."""
        return F.relu(input, inplace=self.inplace)

    def extra_repr(self) -> str:
        """Whether it works in place."""
        return "inplace=True" if self.inplace else ""


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        """``tanh(input)``."""
        return F.tanh(input)


class Sigmoid(Module):
    """The logistic function."""

    def forward(self, input: Tensor) -> Tensor:
        """``1 / (1 + exp(-input))``."""
        return F.sigmoid(input)
