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
from .schema.op import CATALOGUE
from .tensor import abstract
from .tensor.call_cache import preparer, remember
from .tensor.eager import Tensor, again, apply, functions, tensor
from .transforms import saved_tensor_hooks as saved

# NumPy warns where torch is silent, such as sqrt(-1) or a division by 0. This filter applies only to our modules.
# Sessions disable the warnings once with np.errstate; doing so for each op would take longer than the op.
warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"telegrad_engine\.")

remember(Tensor, functions, preparer(again, apply), {Tensor}, operators=False)
remember(abstract.Meta, abstract.functions, abstract.prepare, abstract.KINDS)
linalg = functions.linalg
__version__ = "0.1.0"
__all__ = ["CATALOGUE", "Tensor", "functions", "tensor"]
__all__ += ["amp", "autograd", "dtypes", "errors", "linalg", "ops", "optim", "utils"]
__all__ += ["autocast", "get_autocast_dtype", "is_autocast_enabled"]
__all__ += ["is_anomaly_check_nan_enabled", "is_anomaly_enabled", "manual_seed", "saved"]
__all__ += ["enable_grad", "inference_mode", "is_grad_enabled", "is_inference_mode_enabled", "no_grad"]
__all__ += ["set_grad_enabled"]
