"""Telegrad: torch's tensor API with remote execution.

After ``import telegrad as tg``, ``tg.connect("http://…")`` selects a server; without one, everything runs in this
process. Every op of the catalogue is a function of this module under torch's name.
"""

from __future__ import annotations

import builtins
from math import e, inf, nan, pi
from typing import TYPE_CHECKING, Any

from telegrad_engine.context import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from telegrad_engine.dtypes import WIDE_UNSIGNED as _WIDE_UNSIGNED
from telegrad_engine.dtypes import DType as dtype
from telegrad_engine.dtypes import bfloat16, bool_, float16, float32, float64, int8, int16, int32, int64, uint8
from telegrad_engine.errors import InvalidOperation, TelegradError, UnknownOp
from telegrad_engine.errors import TooLarge as OutOfMemoryError
from telegrad_engine.memory_layout import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    layout,
    memory_format,
    preserve_format,
    strided,
)
from telegrad_engine.shapes import Size
from telegrad_engine.tensor.formatting import set_printoptions

from . import amp, autograd, linalg, ops, random, version
from .amp import (
    GradScaler,
    autocast,
    clear_autocast_cache,
    get_autocast_dtype,
    is_autocast_cache_enabled,
    is_autocast_enabled,
)
from .autograd import client_evaluation
from .autograd.anomaly_mode import is_anomaly_check_nan_enabled, is_anomaly_enabled
from .autograd.anomaly_mode import set_detect_anomaly as set_anomaly_enabled
from .autograd.client_evaluation import RemovableHandle as RemovableHandle
from .dtype_functions import (
    broadcast_shapes,
    can_cast,
    finfo,
    get_default_dtype,
    iinfo,
    promote_types,
    result_type,
    set_default_dtype,
    set_default_tensor_type,
)
from .exclusions import explain, import_on_demand, missing_attribute, publish
from .global_settings import (
    are_deterministic_algorithms_enabled,
    get_default_device,
    get_deterministic_debug_mode,
    get_float32_matmul_precision,
    get_num_interop_threads,
    get_num_threads,
    is_deterministic_algorithms_warn_only_enabled,
    is_warn_always_enabled,
    set_default_device,
    set_deterministic_debug_mode,
    set_float32_matmul_precision,
    set_flush_denormal,
    set_num_interop_threads,
    set_num_threads,
    set_warn_always,
    use_deterministic_algorithms,
)
from .late_bindings import bindings
from .ops import register_function, remove_function
from .random import get_rng_state, seed, set_rng_state
from .registered_functions.tracer import scan, while_loop
from .sessions.generators import Generator, default_generator, initial_seed, manual_seed
from .sessions.session import (
    Session,
    connect,
    current,
    debug,
    import_session,
    session,
)
from .tensor import constructors, copies, keyword_arguments, method_functions
from .tensor.constructors import TYPED, asarray, from_dlpack, from_numpy, from_torch, frombuffer
from .tensor.devices import device
from .tensor.handle import OPS, Tensor, upload
from .tensor.method_functions import is_storage, typename
from .tensor.notebook import graph

if TYPE_CHECKING:
    from . import aio, backends, cuda, func, nn, notebook, optim, profiler, return_types, testing, utils
    from . import serialization as serialization
    from ._functions import *  # noqa: F403
    from .aio import aconnect
    from .compiled import compile
    from .func import vmap
    from .serialization import load, save

ON_DEMAND = {
    **{name: name for name in ["aio", "backends", "cuda", "func", "nn", "optim", "profiler", "return_types"]},
    **{name: name for name in ["notebook", "serialization", "testing", "utils"]},
    "aconnect": "aio",
    "compile": "compiled",
    "load": "serialization",
    "save": "serialization",
    "vmap": "func",
}
"""The submodules that are imported when these attributes are first used."""

bindings.backward = autograd.backward
bindings.register_hook = client_evaluation.register
bindings.register_post_accumulate_grad_hook = client_evaluation.register_post_accumulate
bindings.register_node_hook = client_evaluation.register_on_node
bindings.legacy_tensor = constructors.construct
bindings.copy_into_fork, bindings.take = copies.in_fork, copies.take
keyword_arguments.install_generators(Tensor, OPS)
keyword_arguments.install_out(OPS)
__version__ = version.__version__
newaxis = None
float = float32
double = float64
half = float16
int = int32
long = int64
short = int16
uint16, uint32, uint64 = _WIDE_UNSIGNED
bool = bool_


def tensor(
    data: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: builtins.bool = False,
    pin_memory: builtins.bool = False,
) -> Tensor:
    """Return a new tensor with a copy of ``data``: numbers, nested lists, an array or another library's tensor.

    Python floats become float32, ints int64; NumPy numbers keep their dtype. Raises ValueError for ragged data.

    The tensor is a leaf in the current session. Raises RuntimeError for one that requires gradients and is not
    floating.

    Args:
        data: Numbers, nested lists of one length at each level, an array, or another library's tensor.
        dtype: The dtype of the result; None follows from the data.
        device: The device of the result: only that of the session.
        requires_grad: Whether gradients are computed for the result.
        pin_memory: Only False without a GPU.

    Examples:
        >>> tg.tensor([[1.0, 2.0], [3.0, 4.0]])
        tensor([[1., 2.],
                [3., 4.]])
        >>> tg.tensor([1, 2], dtype=tg.float32, requires_grad=True)
        tensor([1., 2.], requires_grad=True)
    """
    if pin_memory:
        raise InvalidOperation("Cannot access accelerator device when none is available.")
    made = upload(current().recorder, data, dtype, requires_grad)
    return made if device is None else made.to(device)


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """Return ``data`` as a tensor; a tensor is returned as it is unless its dtype changes.

    ``data`` is numbers, nested lists, an array or a tensor; ``device`` can only be that of the session.

    Examples:
        >>> x = tg.ones(2)
        >>> tg.as_tensor(x) is x, tg.as_tensor([1, 2])
        (True, tensor([1, 2]))
    """
    if isinstance(data, Tensor):
        return data if dtype is None and device is None else data.to(device=device, dtype=dtype)
    return tensor(data, dtype=dtype, device=device)


def is_tensor(value: Any) -> builtins.bool:
    """Whether ``value`` is a tensor.

    Examples:
        >>> tg.is_tensor(tg.zeros(2)), tg.is_tensor([0.0, 0.0])
        (True, False)
    """
    return isinstance(value, Tensor)


def load_ipython_extension(ipython: Any) -> None:
    """Add the magics ``%telegrad`` and ``%%telegrad_profile``; IPython calls it for ``%load_ext telegrad``."""
    from .notebook import extension

    extension.load(ipython)


globals().update(TYPED)
globals().update(method_functions.METHODS)


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module 'telegrad' has no attribute {name!r}")
    if name in ON_DEMAND:
        found = globals()[name] = import_on_demand(__name__, ON_DEMAND, name)
        return found
    return publish(globals(), name, _function(name))


def _function(name: str) -> Any:
    """The op of this name, including ``nn.functional`` ops that torch also has at the top level."""
    if explain("", name):
        raise missing_attribute("telegrad", "", name)  # a local variable would form a reference cycle with this frame
    try:
        return getattr(OPS, name)
    except UnknownOp as error:
        if name.endswith(("_", "_with_indices")):
            from .nn import functional

            if hasattr(functional, name):
                return getattr(functional, name)
        raise AttributeError(f"{missing_attribute('telegrad', '', name)}: {error}") from None


def __dir__() -> list[str]:
    return sorted({*__all__, *TYPED, *method_functions.METHODS, *OTHER_NAMES, *keyword_arguments.public_functions()})


OTHER_NAMES = ("bool", "double", "float", "half", "int", "long", "short")
"""Names of dtypes that are also Python builtins; ``from telegrad import *`` leaves them out."""

__all__ = ["Generator", "GradScaler", "OutOfMemoryError", "Session", "Size", "TelegradError", "Tensor"]
__all__ += ["aio", "amp", "autograd", "backends", "cuda", "func", "linalg", "nn", "notebook", "ops", "optim"]
__all__ += ["profiler", "random", "return_types", "testing", "utils", "version"]
__all__ += ["bfloat16", "dtype", "float16", "float32", "float64"]
__all__ += ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
__all__ += ["broadcast_shapes", "can_cast", "finfo", "iinfo", "promote_types", "result_type"]
__all__ += ["channels_last", "channels_last_3d", "contiguous_format", "memory_format", "preserve_format"]
__all__ += ["layout", "strided"]
__all__ += ["e", "inf", "nan", "newaxis", "pi"]
__all__ += ["as_tensor", "asarray", "from_dlpack", "from_numpy", "from_torch", "frombuffer", "tensor"]
__all__ += ["graph", "is_storage", "is_tensor", "load", "save", "set_printoptions", "typename"]
__all__ += ["enable_grad", "inference_mode", "is_grad_enabled", "is_inference_mode_enabled", "no_grad"]
__all__ += ["set_grad_enabled"]
__all__ += ["is_anomaly_check_nan_enabled", "is_anomaly_enabled", "set_anomaly_enabled"]
__all__ += ["autocast", "clear_autocast_cache", "get_autocast_dtype", "is_autocast_cache_enabled"]
__all__ += ["is_autocast_enabled"]
__all__ += ["compile", "register_function", "remove_function", "scan", "vmap", "while_loop"]
__all__ += ["aconnect", "connect", "current", "debug", "device", "import_session", "session"]
__all__ += ["default_generator", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]
__all__ += ["get_default_device", "get_default_dtype", "set_default_device", "set_default_dtype"]
__all__ += ["set_default_tensor_type"]
__all__ += ["get_num_interop_threads", "get_num_threads", "set_num_interop_threads", "set_num_threads"]
__all__ += ["are_deterministic_algorithms_enabled", "is_deterministic_algorithms_warn_only_enabled"]
__all__ += ["get_deterministic_debug_mode", "set_deterministic_debug_mode", "use_deterministic_algorithms"]
__all__ += ["get_float32_matmul_precision", "set_float32_matmul_precision", "set_flush_denormal"]
__all__ += ["is_warn_always_enabled", "set_warn_always"]
