"""Losses as modules."""

from __future__ import annotations

from ..tensor import Tensor
from . import functional as F
from .module import Module


def _reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """torch's two older arguments, which win over ``reduction`` if given."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


class MSELoss(Module):
    """The squared differences of two tensors of one shape: their mean, their sum or, with "none", all."""

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = _reduction(size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return F.mse_loss(input, target, reduction=self.reduction)


class CrossEntropyLoss(Module):
    """The cross entropy of logits (N, C, …) and class indices (N, …), or class probabilities (N, C, …).

    ``weight`` (C) scales the classes; targets of ``ignore_index`` do not count; ``label_smoothing`` mixes
    the target with the uniform distribution.
    """

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction = _reduction(size_average, reduce, reduction)
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return F.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )
