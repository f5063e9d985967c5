"""``torch.autograd``: what differentiates, and the modes, Functions and checks around it."""

from __future__ import annotations

from .. import forward_ad, function, functional
from ..anomaly import detect_anomaly, set_detect_anomaly
from ..differentiation import backward
from ..errors import GradcheckError
from ..function import Function
from ..functional.batched import grad
from ..gradcheck import gradcheck, gradgradcheck
from ..modes import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = [
    "Function",
    "GradcheckError",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "forward_ad",
    "function",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
]
