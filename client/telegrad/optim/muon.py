"""Muon: momentum, orthogonalized."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from telegrad_engine.shapes import torch_size

from .optimizer import Optimizer, settings_of
from .options import CHECKS, options_in, require, require_rate


class Muon(Optimizer):
    """Jordan et al. 2024: the momentum of a matrix, orthogonalized by ``ns_steps`` Newton-Schulz steps in bfloat16.

    ``adjust_lr_fn`` is "original", or "match_rms_adamw" for updates of AdamW's size. Raises ValueError for parameters
    that do not have 2 dimensions.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        options = options_in(locals(), unchecked=CHECKS)
        require_rate(lr)
        require(momentum >= 0, f"momentum should be >= 0 but is: {momentum}")
        require(weight_decay >= 0, f"weight decay should be >= 0 but is: {weight_decay}")
        require(
            adjust_lr_fn in (None, "original", "match_rms_adamw"),
            f"Adjust learning rate function {adjust_lr_fn} is not supported",
        )
        super().__init__(params, options)
        for param in self._params():
            require(
                param.dim() == 2,
                f"Muon only supports 2D parameters whereas we found a parameter with size: {torch_size(param.shape)}",
            )

    def algorithm(self, group: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """``muon``."""
        require(group["ns_steps"] < 100, "Number of steps must be less than 100 for computational efficiency")
        require(len(group["ns_coefficients"]) == 3, "Coefficients must be a tuple of exactly 3 values")
        like_adamw = group["adjust_lr_fn"] == "match_rms_adamw"
        return settings_of("muon", group, maximize=False, match_rms_adamw=like_adamw)
