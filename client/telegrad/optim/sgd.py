"""Stochastic gradient descent."""

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

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over options and a copy of the state, from this library or from torch."""
        super().load_state_dict(state_dict)
        for param, own in self.state.items():
            if "momentum_buffer" in own:
                own[STEP] = param.new_tensor(1.0, dtype="float32")
