"""The options of an optimizer: its constructor's arguments, checked by name with torch's error texts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from telegrad_engine.errors import InvalidValue

from ..tensor.handle import Tensor

CHECKS = {
    "lr": "learning rate",
    "lr_decay": "lr_decay value",
    "rho": "rho value",
    "eps": "epsilon value",
    "betas": "beta parameter at index",
    "momentum": "momentum value",
    "weight_decay": "weight_decay value",
    "momentum_decay": "momentum_decay value",
    "initial_accumulator_value": "initial_accumulator_value value",
    "alpha": "alpha value",
}
"""The options that may not be negative, and what error texts call them.

They are checked in torch's order, so that the same error is reported first; only Adagrad differs in torch (eps last).
"""


def _check(name: str, value: Any) -> None:
    """Raise ValueError for an invalid value of an option; the check is the same for every optimizer."""
    if name == "lr" and isinstance(value, Tensor) and value.numel() != 1:
        raise InvalidValue("Tensor lr must be 1-element")
    if name == "betas":
        for index in range(2):
            if not 0.0 <= value[index] < 1.0:
                raise InvalidValue(f"Invalid {CHECKS[name]} {index}: {value[index]}")
    elif not value >= 0.0 or (name == "rho" and value > 1.0):  # rejects NaN, too
        raise InvalidValue(f"Invalid {CHECKS[name]}: {value}")


def options_in(arguments: Mapping[str, Any], unchecked: Collection[str] = ()) -> dict[str, Any]:
    """Return the options in the ``locals()`` of a constructor that starts with this call, checked except ``unchecked``.

    All arguments except the parameters are options, so only the constructor's signature names them. Raises ValueError
    for values that torch rejects; to check a tensor, its value is fetched.
    """
    options = {name: value for name, value in arguments.items() if name not in ("self", "params", "__class__")}
    for name in CHECKS:
        if name in options and name not in unchecked:
            _check(name, options[name])
    return options


def require(condition: bool, text: str) -> None:
    """Raise ValueError with ``text`` unless the condition holds."""
    if not condition:
        raise InvalidValue(text)


def require_rate(lr: Any) -> None:
    """Raise ValueError for a negative learning rate, with the text of torch's newer optimizers."""
    require(not isinstance(lr, Tensor) or lr.numel() == 1, "Tensor lr must be 1-element")
    require(bool(lr >= 0.0), f"Learning rate should be >= 0 but is: {lr}")
