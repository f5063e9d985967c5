"""The options of an optimizer: its constructor's arguments, checked by their names in torch's words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from telegrad_engine.errors import InvalidValue

from ..tensor.handle import Tensor

Check = Callable[[Any], None]
"""Raises ValueError for a value that the option of a name cannot have, whichever optimizer it is an option of."""


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
        if not value >= 0.0:  # nor NaN
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
"""In torch's order, of which Adagrad alone has another (eps last): of several mistakes the first is told."""


def options_in(arguments: Mapping[str, Any], unchecked: Collection[str] = ()) -> dict[str, Any]:
    """The options in the ``locals()`` of a constructor that begins with this call, checked but for ``unchecked``.

    All arguments but the parameters are options, so a constructor's signature is the one place that names them.
    Raises ValueError for what torch does not take; to check a tensor, its value is fetched.
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
    """Raise ValueError for a negative learning rate, in the words of torch's newer optimizers."""
    require(not isinstance(lr, Tensor) or lr.numel() == 1, "Tensor lr must be 1-element")
    require(bool(lr >= 0.0), f"Learning rate should be >= 0 but is: {lr}")
