"""Dropout."""

from __future__ import annotations

from telegrad_engine.errors import InvalidValue

from ..tensor import Tensor
from . import functional as F
from .module import Module


class Dropout(Module):
    """While training, each element zeroed with probability ``p`` and the rest scaled by 1 / (1 - p).

    Raises ValueError for a ``p`` outside [0, 1].
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise InvalidValue(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def forward(self, input: Tensor) -> Tensor:
        """The input, thinned out in training mode."""
        return F.dropout(input, self.p, self.training, inplace=self.inplace)

    def extra_repr(self) -> str:
        """The probability, and whether it works in place."""
        return f"p={self.p}, inplace={self.inplace}"
