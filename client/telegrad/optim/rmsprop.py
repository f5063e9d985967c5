"""RMSprop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .optimizer import Optimizer, settings_of
from .options import options_in


class RMSprop(Optimizer):
    """Divide by a moving average of the gradient's size (Tieleman and Hinton 2012); ``centered``: Graves 2013."""

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

    def algorithm(self, group: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """``rmsprop``, with the states that its settings call for."""
        return settings_of("rmsprop", group)
