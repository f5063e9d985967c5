"""The graph behind Telegrad: tensors, ops, derivatives, programs and sessions, on NumPy alone."""

from . import autograd, dtypes, errors, ops
from .modes import enable_grad, is_grad_enabled, manual_seed, no_grad, set_grad_enabled
from .registry import CATALOGUE
from .tensor import Tensor, functions, tensor

__version__ = "0.1.0"
__all__ = [
    "CATALOGUE",
    "Tensor",
    "autograd",
    "dtypes",
    "enable_grad",
    "errors",
    "functions",
    "is_grad_enabled",
    "manual_seed",
    "no_grad",
    "ops",
    "set_grad_enabled",
    "tensor",
]
