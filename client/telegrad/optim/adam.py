"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from telegrad_engine.errors import InvalidValue

from .optimizer import Optimizer, check_learning_rate


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
        check_learning_rate(lr)
        if not eps >= 0.0:
            raise InvalidValue(f"Invalid epsilon value: {eps}")
        for index in range(2):
            if not 0.0 <= betas[index] < 1.0:
                raise InvalidValue(f"Invalid beta parameter at index {index}: {betas[index]}")
        if not weight_decay >= 0.0:
            raise InvalidValue(f"Invalid weight_decay value: {weight_decay}")
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    def algorithm(self, group: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """``adam``, or ``adamw`` for a group whose weight decay is decoupled."""
        settings = {name: group[name] for name in ("lr", "betas", "eps", "weight_decay", "maximize")}
        return "adamw" if group["decoupled_weight_decay"] else "adam", settings


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
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )
