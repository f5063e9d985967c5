"""Telegrad's engine: tensors, ops, derivatives, programs and sessions, based on NumPy."""

import warnings

from . import amp, autograd, dtypes, errors, ops, optim, utils
from .amp import autocast, get_autocast_dtype, is_autocast_enabled
from .autograd.anomaly import is_anomaly_check_nan_enabled, is_anomaly_enabled
from .context import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    manual_seed,
    no_grad,
    set_grad_enabled,
)
from .graph import saved_tensor_hooks as saved
from .schema.op import CATALOGUE
from .tensor import fast_paths
from .tensor.eager import Tensor, functions, tensor

# NumPy warns where torch is silent, such as sqrt(-1) or a division by 0. This filter applies only to our modules.
# Sessions disable the warnings once with np.errstate; doing so for each op would take longer than the op.
warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"telegrad_engine\.")

fast_paths.install()
linalg = functions.linalg
__version__ = "0.1.0"
__all__ = [
    "CATALOGUE",
    "Tensor",
    "amp",
    "autocast",
    "autograd",
    "dtypes",
    "enable_grad",
    "errors",
    "functions",
    "get_autocast_dtype",
    "inference_mode",
    "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled",
    "is_autocast_enabled",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "linalg",
    "manual_seed",
    "no_grad",
    "ops",
    "optim",
    "saved",
    "set_grad_enabled",
    "tensor",
    "utils",
]
