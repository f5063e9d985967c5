"""Telegrad: torch's tensor API, computed elsewhere.

``import telegrad as tg``; ``tg.connect("http://…")`` names a server, otherwise everything runs in this process.
Every op of the catalogue is a function here under torch's name.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from telegrad_engine.dtypes import (
    DType as dtype,
)
from telegrad_engine.dtypes import (
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)
from telegrad_engine.errors import TelegradError, UnknownOp
from telegrad_engine.formatting import set_printoptions
from telegrad_engine.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from telegrad_engine.specs import Size

from . import aio, amp, autograd, draws, linalg, nn, ops, optim, profiler, random, utils
from .aio import aconnect
from .amp import autocast
from .autograd.anomaly_mode import is_anomaly_check_nan_enabled, is_anomaly_enabled
from .compiled import compile
from .debugging import debug
from .defaults import get_default_dtype, set_default_dtype
from .devices import cuda, device
from .generators import Generator, default_generator, initial_seed, manual_seed
from .interop import from_dlpack, from_numpy, from_torch
from .notebook import graph
from .ops import register_function, remove_function
from .random import get_rng_state, seed, set_rng_state
from .serialization import load, save
from .sessions import Session, connect, current
from .tensor import Tensor, functions, upload
from .tracing_loops import scan, while_loop

if TYPE_CHECKING:
    from ._functions import *  # noqa: F403

draws.install()
__version__ = "0.1.0"
float = float32
double = float64
half = float16
int = int32
long = int64
short = int16
bool = bool_


def tensor(data: Any, *, dtype: Any = None, requires_grad: builtins.bool = False, device: Any = None) -> Tensor:
    """A new tensor with a copy of ``data``: numbers, nested lists, an array or another library's tensor.

    Python floats become float32, ints int64. Raises ValueError for ragged data.
    """
    made = upload(current().recorder, data, dtype, requires_grad)
    return made if device is None else made.to(device)


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """``data`` as a tensor; a tensor stays itself unless its dtype changes."""
    if isinstance(data, Tensor):
        return data if dtype is None and device is None else data.to(device=device, dtype=dtype)
    return tensor(data, dtype=dtype, device=device)


def is_tensor(value: Any) -> builtins.bool:
    """Whether ``value`` is a tensor."""
    return isinstance(value, Tensor)


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module 'telegrad' has no attribute {name!r}")
    try:
        function = getattr(functions, name)
    except UnknownOp as error:
        raise AttributeError(f"module 'telegrad' has no attribute {name!r}: {error}") from None
    globals()[name] = function
    return function


__all__ = [
    "Generator",
    "Session",
    "Size",
    "TelegradError",
    "Tensor",
    "aconnect",
    "aio",
    "amp",
    "as_tensor",
    "autocast",
    "autograd",
    "bfloat16",
    "compile",
    "connect",
    "cuda",
    "current",
    "debug",
    "default_generator",
    "device",
    "dtype",
    "enable_grad",
    "float16",
    "float32",
    "float64",
    "from_dlpack",
    "from_numpy",
    "from_torch",
    "get_default_dtype",
    "get_rng_state",
    "graph",
    "inference_mode",
    "initial_seed",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "is_tensor",
    "linalg",
    "load",
    "manual_seed",
    "nn",
    "no_grad",
    "ops",
    "optim",
    "profiler",
    "random",
    "register_function",
    "remove_function",
    "save",
    "scan",
    "seed",
    "set_default_dtype",
    "set_grad_enabled",
    "set_printoptions",
    "set_rng_state",
    "tensor",
    "uint8",
    "utils",
    "while_loop",
]
