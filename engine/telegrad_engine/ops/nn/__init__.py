"""Activations, convolutions, pooling, normalizations, losses and recurrent layers."""

from . import (
    activation,
    attention,
    average_pooling,
    classification_loss,
    convolution,
    ctc_loss,
    dropout,
    embedding,
    interpolation,
    max_pooling,
    normalization,
    padding,
    pooling_windows,
    recurrent,
    recurrent_layers,
    regression_loss,
)

__all__ = ["activation", "attention", "dropout", "embedding"]
__all__ += ["average_pooling", "convolution", "interpolation", "max_pooling", "padding", "pooling_windows"]
__all__ += ["normalization", "recurrent", "recurrent_layers"]
__all__ += ["classification_loss", "ctc_loss", "regression_loss"]
