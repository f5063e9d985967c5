"""``telegrad.cuda``: whether the current session computes on a GPU, and what scripts ask and set on their way."""

from __future__ import annotations

from typing import Any

from telegrad_engine.errors import InvalidValue

from ..exclusions import attribute_of
from ..random import seed as _seed
from ..session.generators import initial_seed, manual_seed
from ..session.sessions import current
from ..tensor.devices import device as _device
from ..tensor.devices import require_cuda
from . import amp


def _present() -> str:
    return current().recorder.transport.device


def is_available() -> bool:
    """Whether the current session's tensors are on a GPU."""
    return _present().startswith("cuda")


def device_count() -> int:
    """The number of GPUs that the current session computes on: one or none."""
    return int(is_available())


def is_initialized() -> bool:
    """Whether the current session's tensors are on a GPU."""
    return is_available()


def init() -> None:
    """Raise AssertionError unless the current session's tensors are on a GPU; there is nothing else to do."""
    require_cuda(_present())


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether a GPU computes in bfloat16: as whether there is one."""
    return is_available()


def is_tf32_supported() -> bool:
    """False: products of float32 are computed in float32."""
    return False


def current_device() -> int:
    """0, the one GPU of a session. Raises AssertionError without one."""
    require_cuda(_present())
    return 0


def set_device(device: Any) -> None:
    """Name the one GPU of a session. Raises AssertionError without one, and ValueError for another."""
    require_cuda(_present())
    index = device if isinstance(device, int) else _device(device).index
    if index not in (None, 0):
        raise InvalidValue(f"invalid device ordinal {index}: a session computes on one GPU, 0")


def get_device_name(device: Any = None) -> str:
    """What the server calls the GPU. Raises AssertionError without one."""
    require_cuda(_present())
    return _present()


def manual_seed_all(seed: int) -> None:
    """As :func:`telegrad.manual_seed`: a session has one source of random numbers."""
    manual_seed(seed)


def seed() -> None:
    """As :func:`telegrad.seed`."""
    _seed()


seed_all = seed


def synchronize(device: Any = None) -> None:
    """Wait until everything that was recorded has run."""
    current().flush()


def empty_cache() -> None:
    """Do nothing: the server keeps no cache of GPU memory for a session."""


def ipc_collect() -> None:
    """Do nothing: no memory is shared with other processes."""


class device:
    """``with telegrad.cuda.device(0)``: nothing changes, for a session has one GPU."""

    def __init__(self, device: Any) -> None:
        self.idx = device

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass


__getattr__ = attribute_of("cuda")

__all__ = [
    "amp",
    "current_device",
    "device",
    "device_count",
    "empty_cache",
    "get_device_name",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "is_tf32_supported",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_device",
    "synchronize",
]
