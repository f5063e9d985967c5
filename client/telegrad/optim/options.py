"""The options of an optimizer: its constructor's arguments, checked by name with torch's error texts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from telegrad_engine.errors import InvalidValue

from ..tensor.handle import Tensor

Check = Callable[[Any], None]
"""Raises ValueError for an invalid value of the option; the check is the same for every optimizer."""


def _learning_rate(lr: Any) -> None:
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise InvalidValue("Tensor lr must be 1-element")
    if not lr >= 0.0:
        raise InvalidValue(f"Invalid learning rate: {lr}")


def _betas(betas: Sequence[float]) -> None:
    for index in range(2):
        if not 0.0 <= betas[index] < 1.0:
            raise InvalidValue(f"Invalid beta parameter at index {index}: {betas[index]}")


def _rho(rho: float) -> None:
    if not 0.0 <= rho <= 1.0:
        raise InvalidValue(f"Invalid rho value: {rho}")


def _not_negative(called: str) -> Check:
    def check(value: float) -> None:
        if not value >= 0.0:  # rejects NaN, too
            raise InvalidValue(f"Invalid {called} value: {value}")

    return check


CHECKS: dict[str, Check] = {
    "lr": _learning_rate,
    "lr_decay": _not_negative("lr_decay"),
    "rho": _rho,
    "eps": _not_negative("epsilon"),
    "betas": _betas,
    "momentum": _not_negative("momentum"),
    "weight_decay": _not_negative("weight_decay"),
    "momentum_decay": _not_negative("momentum_decay"),
    "initial_accumulator_value": _not_negative("initial_accumulator_value"),
    "alpha": _not_negative("alpha"),
}
"""The checks in torch's order, so that the same error is reported first; only Adagrad differs in torch (eps last)."""


def options_in(arguments: Mapping[str, Any], unchecked: Collection[str] = ()) -> dict[str, Any]:
    """Return the options in the ``locals()`` of a constructor that starts with this call, checked except ``unchecked``.

    All arguments except the parameters are options, so only the constructor's signature names them. Raises ValueError
    for values that torch rejects; to check a tensor, its value is fetched.
    """
    options = {name: value for name, value in arguments.items() if name not in ("self", "params", "__class__")}
    for name, check in CHECKS.items():
        if name in options and name not in unchecked:
            check(options[name])
    return options


def require(condition: bool, text: str) -> None:
    """Raise ValueError with ``text`` unless the condition holds."""
    if not condition:
        raise InvalidValue(text)


def require_rate(lr: Any) -> None:
    """Raise ValueError for a negative learning rate, with the text of torch's newer optimizers."""
    require(not isinstance(lr, Tensor) or lr.numel() == 1, "Tensor lr must be 1-element")
    require(bool(lr >= 0.0), f"Learning rate should be >= 0 but is: {lr}")
