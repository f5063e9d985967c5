"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .optimizer import Optimizer, settings_of
from .options import options_in


class Adam(Optimizer):
    """Kingma and Ba 2015, algorithm 1; weight decay is added to the gradient, unless decoupled."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        super().__init__(params, options_in(locals()))

    def algorithm(self, group: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """``adam``, ``adamw`` for a group whose weight decay is decoupled, or with the largest averages kept."""
        decoupled = group["decoupled_weight_decay"]
        if group["amsgrad"]:
            return settings_of("adam_amsgrad", group, decoupled=decoupled)
        return settings_of("adamw" if decoupled else "adam", group)


class AdamW(Adam):
    """Loshchilov and Hutter 2019, algorithm 2; weight decay shrinks the parameter directly."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, **options_in(locals()), decoupled_weight_decay=True)
