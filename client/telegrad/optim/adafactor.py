"""Adafactor: Adam's second moments, factored into rows and columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from telegrad_engine.optim.adaptive import epsilon

from ..tensor.handle import Tensor
from .optimizer import Optimizer, settings_of
from .options import CHECKS, options_in, require, require_rate


class Adafactor(Optimizer):
    """Shazeer and Stern 2018: for a matrix, the state has one second moment per row and per column.

    ``eps`` has the lower bounds of the variance (None: the dtype's epsilon) and of a parameter's scale; ``d`` is the
    threshold at which updates are clipped.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        options = options_in(locals(), unchecked=CHECKS)
        require_rate(lr)
        require(beta2_decay <= 0, f"beta2_decay should be <= 0 but is: {beta2_decay}")
        require(eps[0] is None or eps[0] >= 0, f"epsilon1 should be >= 0 but is: {eps[0]}")
        require(eps[1] >= 0, f"epsilon2 should be >= 0 but is: {eps[1]}")
        require(d >= 1, f"Clipping threshold d should be >= 1 but is: {d}")
        require(weight_decay >= 0, f"weight_decay should be >= 0 but is: {weight_decay}")
        super().__init__(params, options)

    def _portions(self, params: list[Tensor]) -> list[list[Tensor]]:
        for param in params:
            self.state[param]  # creates the entries in the order of torch's state dict
        return [[p for p in params if p.dim() > 1], [p for p in params if p.dim() <= 1]]

    def _algorithm_of(self, group: dict[str, Any], params: list[Tensor]) -> tuple[str, dict[str, Any]]:
        """``adafactor`` for parameters of at least 2 dimensions, ``adafactor_vector`` for the others."""
        least = group["eps"][0]
        if least is None:
            least = epsilon(params[0].dtype)
        name = "adafactor" if params[0].dim() > 1 else "adafactor_vector"
        return settings_of(name, group, eps=(least, group["eps"][1]))
