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

__all__ = ["Function", "backward", "forward_ad", "function", "functional", "grad"]
__all__ += ["GradcheckError", "gradcheck", "gradgradcheck"]
__all__ += ["detect_anomaly", "set_detect_anomaly"]
__all__ += ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled"]
