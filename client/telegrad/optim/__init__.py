"""Optimizers, as ``torch.optim``: a step is one instruction, and the state stays in the session."""

from __future__ import annotations

from .adam import Adam, AdamW
from .optimizer import Optimizer
from .sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer"]
