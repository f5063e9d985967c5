"""Neural network modules, as ``torch.nn``: the parameters live in the session, the modules here."""

from __future__ import annotations

from . import functional, init
from .activation import ReLU, Sigmoid, Tanh
from .containers import Sequential
from .dropout import Dropout
from .linear import Flatten, Identity, Linear
from .loss import CrossEntropyLoss, MSELoss
from .module import Module
from .parameter import Parameter

__all__ = [
    "CrossEntropyLoss",
    "Dropout",
    "Flatten",
    "Identity",
    "Linear",
    "MSELoss",
    "Module",
    "Parameter",
    "ReLU",
    "Sequential",
    "Sigmoid",
    "Tanh",
    "functional",
    "init",
]
