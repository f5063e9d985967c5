"""Dropout modules, which change their input only in training mode."""

from __future__ import annotations

from telegrad_engine.errors import InvalidValue

from .function_module import FunctionModule


class _DropoutNd(FunctionModule):
    """Base class of dropout modules. Raises ValueError unless ``p`` is in [0, 1]."""

    _arguments = ("p", "training", "inplace")

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise InvalidValue(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd, function="dropout"):
    """In training mode, zeroes each element with probability ``p`` and scales the rest by 1 / (1 - p).

    Input and result have any shape. With ``inplace``, the result is written to the input. Raises ValueError unless
    ``p`` is between 0 and 1.

    Examples:
        >>> drop = tg.nn.Dropout(0.5)
        >>> drop.eval()(tg.ones(3))
        tensor([1., 1., 1.])
    """


class Dropout1d(_DropoutNd, function="dropout1d"):
    """In training mode, zeroes whole channels of (N, C, L) or (C, L) with probability ``p`` and scales up the rest.

    The arguments ``p`` and ``inplace`` are those of ``Dropout``.

    Examples:
        >>> tg.nn.Dropout1d(0.5)(tg.ones(2, 3, 4)).shape
        telegrad.Size([2, 3, 4])
    """


class Dropout2d(_DropoutNd, function="dropout2d"):
    """In training mode, zeroes whole channels of (N, C, H, W) with probability ``p`` and scales up the rest.

    The arguments ``p`` and ``inplace`` are those of ``Dropout``.

    Examples:
        >>> tg.nn.Dropout2d(0.5)(tg.ones(2, 3, 4, 4)).shape
        telegrad.Size([2, 3, 4, 4])
    """


class Dropout3d(_DropoutNd, function="dropout3d"):
    """In training mode, zeroes whole channels of (N, C, D, H, W) with probability ``p`` and scales up the rest.

    The arguments ``p`` and ``inplace`` are those of ``Dropout``.

    Examples:
        >>> tg.nn.Dropout3d(0.5)(tg.ones(2, 3, 4, 4, 4)).shape
        telegrad.Size([2, 3, 4, 4, 4])
    """


class AlphaDropout(_DropoutNd, function="alpha_dropout"):
    """Dropout that keeps mean and variance, for use with SELU (Klambauer et al. 2017).

    The arguments ``p`` and ``inplace`` are those of ``Dropout``.

    Examples:
        >>> tg.nn.AlphaDropout(0.5).eval()(tg.ones(3))
        tensor([1., 1., 1.])
    """


class FeatureAlphaDropout(_DropoutNd, function="feature_alpha_dropout"):
    """``AlphaDropout`` for whole channels of (N, C, …).

    The arguments ``p`` and ``inplace`` are those of ``Dropout``.

    Examples:
        >>> tg.nn.FeatureAlphaDropout(0.5)(tg.ones(2, 3, 4)).shape
        telegrad.Size([2, 3, 4])
    """
