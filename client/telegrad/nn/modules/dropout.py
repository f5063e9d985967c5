"""Dropout: noise while training, nothing in evaluation mode."""

from __future__ import annotations

from telegrad_engine.errors import InvalidValue

from .function_module import FunctionModule


class _Dropout(FunctionModule):
    """Raises ValueError for a ``p`` outside [0, 1]."""

    _arguments = ("p", "training", "inplace")

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise InvalidValue(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """While training, each element zeroed with probability ``p`` and the rest scaled by 1 / (1 - p)."""

    _function = "dropout"


class Dropout1d(_Dropout):
    """While training, whole channels of (N, C, L) or (C, L) zeroed with probability ``p``, the rest scaled up."""

    _function = "dropout1d"


class Dropout2d(_Dropout):
    """While training, whole channels of (N, C, H, W) zeroed with probability ``p``, the rest scaled up."""

    _function = "dropout2d"


class Dropout3d(_Dropout):
    """While training, whole channels of (N, C, D, H, W) zeroed with probability ``p``, the rest scaled up."""

    _function = "dropout3d"


class AlphaDropout(_Dropout):
    """Dropout that keeps mean and variance, for use with SELU (Klambauer et al. 2017)."""

    _function = "alpha_dropout"


class FeatureAlphaDropout(_Dropout):
    """As ``AlphaDropout``, for whole channels of (N, C, …)."""

    _function = "feature_alpha_dropout"
