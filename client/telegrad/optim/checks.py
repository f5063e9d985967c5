"""What the optimizers check of their options, in torch's words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad_engine.errors import InvalidValue, NotSupported


def check_learning_rate(lr: Any) -> None:
    """Raise ValueError for a negative rate, NotImplementedError for a tensor."""
    if hasattr(lr, "shape"):
        raise NotSupported("a learning rate is a number; tensors are not supported")
    if not lr >= 0.0:
        raise InvalidValue(f"Invalid learning rate: {lr}")


def check_not_negative(**options: float) -> None:
    """Raise ValueError for an option that is negative or not a number; the names are those in torch's texts."""
    for name, value in options.items():
        if not value >= 0.0:
            raise InvalidValue(f"Invalid {name} value: {value}")


def check_betas(betas: Sequence[float]) -> None:
    """Raise ValueError unless both are in [0, 1)."""
    for index in range(2):
        if not 0.0 <= betas[index] < 1.0:
            raise InvalidValue(f"Invalid beta parameter at index {index}: {betas[index]}")
