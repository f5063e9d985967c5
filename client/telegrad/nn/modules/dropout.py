"""Dropout: noise while training, nothing in evaluation mode."""

from __future__ import annotations

from telegrad_engine.errors import InvalidValue

from ...tensor.handle import Tensor
from .. import functional as F
from .module import Module


class _Dropout(Module):
    """Raises ValueError for a ``p`` outside [0, 1]."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise InvalidValue(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def extra_repr(self) -> str:
        """The probability, and whether it works in place."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """While training, each element zeroed with probability ``p`` and the rest scaled by 1 / (1 - p)."""

    def forward(self, input: Tensor) -> Tensor:
        """The input, thinned out in training mode."""
        return F.dropout(input, self.p, self.training, inplace=self.inplace)


class Dropout1d(_Dropout):
    """While training, whole channels of (N, C, L) or (C, L) zeroed with probability ``p``, the rest scaled up."""

    def forward(self, input: Tensor) -> Tensor:
        """The input, thinned out in training mode."""
        return F.dropout1d(input, self.p, self.training, inplace=self.inplace)


class Dropout2d(_Dropout):
    """While training, whole channels of (N, C, H, W) zeroed with probability ``p``, the rest scaled up."""

    def forward(self, input: Tensor) -> Tensor:
        """The input, thinned out in training mode."""
        return F.dropout2d(input, self.p, self.training, inplace=self.inplace)


class Dropout3d(_Dropout):
    """While training, whole channels of (N, C, D, H, W) zeroed with probability ``p``, the rest scaled up."""

    def forward(self, input: Tensor) -> Tensor:
        """The input, thinned out in training mode."""
        return F.dropout3d(input, self.p, self.training, inplace=self.inplace)


class AlphaDropout(_Dropout):
    """Dropout that keeps mean and variance, for use with SELU (Klambauer et al. 2017)."""

    def forward(self, input: Tensor) -> Tensor:
        """The input, thinned out in training mode."""
        return F.alpha_dropout(input, self.p, self.training, inplace=self.inplace)


class FeatureAlphaDropout(_Dropout):
    """As ``AlphaDropout``, for whole channels of (N, C, …)."""

    def forward(self, input: Tensor) -> Tensor:
        """The input, thinned out in training mode."""
        return F.feature_alpha_dropout(input, self.p, self.training, inplace=self.inplace)
