"""``telegrad.autograd``: gradients, as ``torch.autograd``."""

from __future__ import annotations

from telegrad_engine.modes import enable_grad, is_grad_enabled, no_grad, set_grad_enabled

from .tensor import backward, grad

__all__ = ["backward", "enable_grad", "grad", "is_grad_enabled", "no_grad", "set_grad_enabled"]
