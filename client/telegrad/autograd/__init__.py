"""``telegrad.autograd``: the counterpart of ``torch.autograd``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from telegrad_engine.context import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled

from ..exclusions import attribute_of
from . import anomaly_mode, function, grad_mode, graph
from .anomaly_mode import detect_anomaly, set_detect_anomaly
from .differentiation import backward, grad
from .function import Function
from .grad_mode import is_multithreading_enabled, set_multithreading_enabled
from .gradcheck import gradcheck, gradgradcheck
from .variable import Variable

if TYPE_CHECKING:
    from . import forward_ad, functional, profiler

_ON_DEMAND = {"forward_ad": "forward_ad", "functional": "functional", "profiler": "profiler"}
__getattr__ = attribute_of("autograd", _ON_DEMAND)


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_DEMAND})


__all__ = ["Function", "Variable", "backward", "grad", "gradcheck", "gradgradcheck"]
__all__ += ["anomaly_mode", "forward_ad", "function", "functional", "grad_mode", "graph", "profiler"]
__all__ += ["detect_anomaly", "set_detect_anomaly"]
__all__ += ["enable_grad", "inference_mode", "is_grad_enabled", "no_grad", "set_grad_enabled"]
__all__ += ["is_multithreading_enabled", "set_multithreading_enabled"]
