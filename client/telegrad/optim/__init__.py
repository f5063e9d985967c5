"""Optimizers, as in ``torch.optim``: a step is one instruction, and the state stays in the session."""

from __future__ import annotations

from ..exclusions import attribute_of
from . import lr_scheduler, swa_utils
from .adagrad import Adadelta, Adagrad, RMSprop, Rprop
from .adam import Adafactor, Adam, Adamax, AdamW, NAdam, RAdam, SparseAdam
from .lbfgs import LBFGS
from .optimizer import Optimizer
from .sgd import ASGD, SGD, Muon

__getattr__ = attribute_of("optim")

__all__ = ["ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam"]
__all__ += ["Optimizer", "RAdam", "RMSprop", "Rprop", "SparseAdam", "lr_scheduler", "swa_utils"]
