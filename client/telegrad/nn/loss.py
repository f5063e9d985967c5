"""Losses that compare numbers with numbers, and what all losses share."""

from __future__ import annotations

from ..tensor.handle import Tensor
from . import functional as F
from .module import Module


class Loss(Module):
    """``reduction`` is what becomes of the elements' losses: their "mean", their "sum", or "none" to keep them.

    ``size_average`` and ``reduce`` are torch's two older arguments for that; they win if given.
    """

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__()
        if reduce is False:
            reduction = "none"
        elif size_average is not None or reduce is not None:
            reduction = "sum" if size_average is False else "mean"
        self.reduction = reduction


class WeightedLoss(Loss):
    """With weights in the buffer ``weight``."""

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class MSELoss(Loss):
    """The squared differences of two tensors of one shape."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return F.mse_loss(input, target, reduction=self.reduction)


class L1Loss(Loss):
    """The absolute differences of two tensors of one shape."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return F.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(Loss):
    """The absolute differences, squared and over ``2 beta`` where they are less than ``beta``."""

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(Loss):
    """Half the squared differences, going on as a straight line beyond ``delta`` (Huber 1964)."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class GaussianNLLLoss(Loss):
    """The negative log likelihood of targets under normal distributions of mean ``input`` and variance ``var``.

    Variances are at least ``eps``; ``full`` adds the constant term.
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.full, self.eps = full, eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        """The loss."""
        return F.gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


class PoissonNLLLoss(Loss):
    """The negative log likelihood of counts under Poisson distributions of rate ``exp(input)``, or ``input`` itself.

    The latter without ``log_input``, with ``eps`` added before the logarithm; ``full`` adds Stirling's term.
    """

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        kind = (self.log_input, self.full)
        return F.poisson_nll_loss(log_input, target, *kind, eps=self.eps, reduction=self.reduction)
