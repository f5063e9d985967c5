"""Rprop, which uses the signs of full-batch gradients, and RMSprop, its counterpart for mini-batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from telegrad_engine.errors import InvalidValue

from .optimizer import Optimizer, settings_of
from .options import options_in


class Rprop(Optimizer):
    """Riedmiller and Braun 1993: step sizes grow by ``etas[1]`` or shrink by ``etas[0]``, by the gradient's sign."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        options = options_in(locals())
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise InvalidValue(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(params, options)

    def algorithm(self, group: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return ``rprop`` and its settings."""
        return settings_of("rprop", group, weight_decay=0.0)


class RMSprop(Optimizer):
    """Divide by the root mean square of recent gradients (Tieleman and Hinton 2012); ``centered``: Graves 2013."""

    algorithm_name = "rmsprop"

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, options_in(locals()))
