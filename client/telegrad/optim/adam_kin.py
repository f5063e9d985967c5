"""Adam's kin: Adamax, NAdam and RAdam."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .optimizer import Optimizer, settings_of
from .options import options_in


class Adamax(Optimizer):
    """Adam by the largest gradient instead of the mean square: Kingma and Ba 2015, algorithm 2."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, options_in(locals()))

    def algorithm(self, group: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """``adamax``."""
        return settings_of("adamax", group)


class NAdam(Optimizer):
    """Adam with Nesterov's momentum: Dozat 2016."""

    initial = {"mu_product": 1.0}

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, options_in(locals()))

    def algorithm(self, group: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """``nadam``."""
        return settings_of("nadam", group, decoupled=group["decoupled_weight_decay"])


class RAdam(Optimizer):
    """Adam that waits until its averages can be relied on: Liu et al. 2020."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, options_in(locals()))

    def algorithm(self, group: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """``radam``."""
        return settings_of("radam", group, decoupled=group["decoupled_weight_decay"])
