"""Stochastic gradient descent: SGD, ASGD with averaging, and Muon with orthogonalized momentum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from telegrad_engine.errors import InvalidValue
from telegrad_engine.shapes import torch_size

from ..tensor.handle import Tensor
from .optimizer import CHECKS, STEP, Optimizer, options_in, require, require_rate, settings_of


class SGD(Optimizer):
    """``p -= lr * grad``, with plain momentum (Sutskever et al. 2013, in torch's form) or Nesterov's.

    Args:
        params: The parameters, or dicts of parameters (``params``) and options of their own.
        lr: The learning rate.
        momentum: The decay rate of the average of gradients; 0 keeps none.
        dampening: 1 minus the weight of a new gradient in the average.
        weight_decay: The factor of the parameter that is added to its gradient.
        nesterov: Whether the step looks ahead, as in Nesterov's method.
        maximize: Whether the objective is maximized.
        differentiable: Whether steps are part of the graph; only False.

    Examples:
        >>> w = tg.tensor([1.0, 2.0], requires_grad=True)
        >>> optimizer = tg.optim.SGD([w], lr=0.1)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w.detach()
        tensor([0.8000, 1.6000])
    """

    # The step count marks the first step; torch marks it by a missing momentum buffer.
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

    def algorithm(self, group: Mapping[str, Any], params: Sequence[Tensor]) -> tuple[str, dict[str, Any]]:
        """Return ``sgd``, or ``sgd_momentum`` for a group with momentum, and the settings."""
        return settings_of("sgd_momentum" if group["momentum"] else "sgd", group)

    def _loaded(self) -> None:
        for param, own in self.state.items():
            if "momentum_buffer" in own:
                own[STEP] = param.new_tensor(1.0, dtype="float32")


class ASGD(Optimizer, algorithm="asgd"):
    """Averaged stochastic gradient descent: Polyak and Juditsky 1992. The state ``ax`` is the average.

    Args:
        params: The parameters, or dicts of parameters (``params``) and options of their own.
        lr: The learning rate.
        lambd: The factor by which parameters decay with each step.
        alpha: The exponent of the learning rate's decay.
        t0: The step from which on parameters are averaged.
        weight_decay: The factor of the parameter that is added to its gradient.
        maximize: Whether the objective is maximized.
        differentiable: Whether steps are part of the graph; only False.
        capturable: As in torch. It changes nothing.

    Examples:
        >>> w = tg.tensor([1.0], requires_grad=True)
        >>> optimizer = tg.optim.ASGD([w], lr=0.1)
        >>> w.sum().backward()
        >>> optimizer.step()
    """

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


class Muon(Optimizer):
    """Steps by the momentum of a matrix, made orthogonal by ``ns_steps`` Newton-Schulz steps (Jordan et al. 2024).

    The Newton-Schulz steps compute in bfloat16.

    ``adjust_lr_fn`` is "original", or "match_rms_adamw" for updates of AdamW's size. Raises ValueError for parameters
    that do not have 2 dimensions.

    Args:
        params: The parameters, or dicts of parameters (``params``) and options of their own.
        lr: The learning rate.
        weight_decay: The factor by which parameters decay.
        momentum: The decay rate of the average of gradients.
        nesterov: Whether the step looks ahead, as in Nesterov's method.
        ns_coefficients: The coefficients of the polynomial of a Newton-Schulz step.
        eps: The least norm of an update.
        ns_steps: The number of Newton-Schulz steps.
        adjust_lr_fn: How the learning rate is scaled by the sizes of the matrix.

    Examples:
        >>> w = tg.ones(3, 2, requires_grad=True)
        >>> optimizer = tg.optim.Muon([w], lr=0.1)
        >>> w.sum().backward()
        >>> optimizer.step()
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

    def algorithm(self, group: Mapping[str, Any], params: Sequence[Tensor]) -> tuple[str, dict[str, Any]]:
        """Return ``muon`` and its settings."""
        require(group["ns_steps"] < 100, "Number of steps must be less than 100 for computational efficiency")
        require(len(group["ns_coefficients"]) == 3, "Coefficients must be a tuple of exactly 3 values")
        like_adamw = group["adjust_lr_fn"] == "match_rms_adamw"
        return settings_of("muon", group, maximize=False, match_rms_adamw=like_adamw)
