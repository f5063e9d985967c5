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
from telegrad_engine.modes import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from telegrad_engine.specs import Size

from . import autograd, linalg, nn, optim
from .sessions import Session, connect, current
from .tensor import Tensor, functions, upload

if TYPE_CHECKING:
    from ._functions import *  # noqa: F403

__version__ = "0.1.0"
float = float32
double = float64
half = float16
int = int32
long = int64
bool = bool_


def tensor(data: Any, *, dtype: Any = None, requires_grad: builtins.bool = False, device: Any = None) -> Tensor:
    """A new tensor with a copy of ``data``: numbers, nested lists, an array or another library's tensor.

    Python floats become float32, ints int64. Raises ValueError for ragged data.
    """
    return upload(current().recorder, data, dtype, requires_grad)


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """``data`` as a tensor; a tensor stays itself unless its dtype changes."""
    if isinstance(data, Tensor):
        return data if dtype is None else data.to(dtype=dtype)
    return tensor(data, dtype=dtype)


def from_numpy(array: Any) -> Tensor:
    """A tensor with an array's values and dtype."""
    return tensor(array)


def is_tensor(value: Any) -> builtins.bool:
    """Whether ``value`` is a tensor."""
    return isinstance(value, Tensor)


def manual_seed(seed: builtins.int) -> None:
    """Start the current session's random numbers anew."""
    current().recorder.emit("manual_seed", (), (), {"seed": seed})


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
    "Session",
    "Size",
    "TelegradError",
    "Tensor",
    "as_tensor",
    "autograd",
    "bfloat16",
    "connect",
    "current",
    "dtype",
    "enable_grad",
    "float16",
    "float32",
    "float64",
    "from_numpy",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_grad_enabled",
    "is_tensor",
    "linalg",
    "manual_seed",
    "nn",
    "no_grad",
    "optim",
    "set_grad_enabled",
    "tensor",
    "uint8",
]
