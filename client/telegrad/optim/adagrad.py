"""Steps scaled by past gradients: Adagrad, its decaying forms Adadelta and RMSprop, and Rprop, for full batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from telegrad_engine.errors import InvalidValue

from ..tensor.handle import Tensor
from .optimizer import Optimizer, options_in, settings_of


class Adagrad(Optimizer, algorithm="adagrad"):
    """Divide by the root of the sum of all squared gradients: Duchi, Hazan and Singer 2011."""

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


class Adadelta(Optimizer, algorithm="adadelta"):
    """Scale the gradient by the ratio of the RMS of past updates to that of past gradients: Zeiler 2012."""

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

    def algorithm(self, group: Mapping[str, Any], params: Sequence[Tensor]) -> tuple[str, dict[str, Any]]:
        """Return ``rprop`` and its settings."""
        return settings_of("rprop", group, weight_decay=0.0)


class RMSprop(Optimizer, algorithm="rmsprop"):
    """Divide by the root mean square of recent gradients (Tieleman and Hinton 2012); ``centered``: Graves 2013."""

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
