"""``telegrad.autograd``: gradients, as ``torch.autograd``."""

from __future__ import annotations

from telegrad_engine.modes import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled

from . import anomaly_mode, function, functional, profiler
from .anomaly_mode import detect_anomaly, set_detect_anomaly
from .differentiation import backward, grad
from .function import Function
from .gradcheck import gradcheck, gradgradcheck

__all__ = [
    "Function",
    "anomaly_mode",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "function",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "is_grad_enabled",
    "no_grad",
    "profiler",
    "set_detect_anomaly",
    "set_grad_enabled",
]
