"""Learning rate schedulers, as in ``torch.optim.lr_scheduler``: plain Python on the groups' ``lr``."""

from __future__ import annotations

from .base import LRScheduler
from .composed import ChainedScheduler, SequentialLR
from .cyclic import CosineAnnealingLR, CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from .factors import (
    ConstantLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    ReduceLROnPlateau,
    StepLR,
)

__all__ = ["ChainedScheduler", "LRScheduler", "ReduceLROnPlateau", "SequentialLR"]
__all__ += ["ConstantLR", "ExponentialLR", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "PolynomialLR"]
__all__ += ["StepLR"]
__all__ += ["CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "OneCycleLR"]
