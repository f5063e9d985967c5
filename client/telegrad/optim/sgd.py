"""Stochastic gradient descent: SGD and, with averaging, ASGD."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from telegrad_engine.errors import InvalidValue

from .optimizer import STEP, Optimizer, settings_of
from .options import options_in


class SGD(Optimizer):
    """``p -= lr * grad``, with momentum (Sutskever et al. 2013, in torch's form), Nesterov's or not."""

    # It tells the first step from the others; torch does by the absence of the buffer.
    unsaved = (STEP,)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        options = options_in(locals())
        if nesterov and (momentum <= 0 or dampening != 0):
            raise InvalidValue("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, options)

    def algorithm(self, group: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """``sgd``, or ``sgd_momentum`` for a group that has any."""
        return settings_of("sgd_momentum" if group["momentum"] else "sgd", group)

    def _loaded(self) -> None:
        for param, own in self.state.items():
            if "momentum_buffer" in own:
                own[STEP] = param.new_tensor(1.0, dtype="float32")


class ASGD(Optimizer):
    """Averaged stochastic gradient descent: Polyak and Juditsky 1992. The state ``ax`` is the average."""

    algorithm_name = "asgd"
    initial = {"mu": 1.0, "eta": "lr"}

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, options_in(locals(), unchecked=["alpha"]))
