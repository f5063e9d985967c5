"""``torch.autograd``: differentiation, gradient modes, custom Functions and gradient checks."""

from __future__ import annotations

from ..context import enable_grad, inference_mode, no_grad, set_grad_enabled
from ..errors import GradcheckError
from ..graph.differentiation import backward
from ..transforms import forward_ad
from ..transforms.batched_gradients import grad
from . import custom_function as function
from . import functional
from .anomaly import detect_anomaly, set_detect_anomaly
from .custom_function import Function
from .gradcheck import gradcheck, gradgradcheck

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
