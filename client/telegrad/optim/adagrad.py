"""Adagrad, and Adadelta, which uses decaying averages in place of Adagrad's sums."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .optimizer import Optimizer
from .options import options_in


class Adagrad(Optimizer):
    """Divide by the root of the sum of all squared gradients: Duchi, Hazan and Singer 2011."""

    algorithm_name = "adagrad"

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, options_in(locals()))
        self.initial = {"sum": float(initial_accumulator_value)}
        # As in torch, the state exists before the first step.
        for group in self.param_groups:
            for param in group["params"]:
                self._state(param, "t", group)
                self._state(param, "sum", group)


class Adadelta(Optimizer):
    """Scale the gradient by the ratio of the RMS of past updates to that of past gradients: Zeiler 2012."""

    algorithm_name = "adadelta"

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, options_in(locals()))
