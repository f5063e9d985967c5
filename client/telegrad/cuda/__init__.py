"""``telegrad.cuda``: whether the current session computes on a GPU, and what scripts ask and set on their way."""

from __future__ import annotations

from typing import Any

from telegrad_engine.errors import InvalidOperation

from ..exclusions import attribute_of
from ..random import seed as _seed
from ..sessions.generators import initial_seed, manual_seed
from ..sessions.session import current
from ..tensor.devices import device as _device
from ..tensor.devices import require_cuda
from . import amp


def _present() -> str:
    return current().recorder.transport.device


def is_available() -> bool:
    """Whether the current session's tensors are on a GPU.

    Examples:
        >>> tg.ones(2).is_cuda == tg.cuda.is_available()
        True
    """
    return _present().startswith("cuda")


def device_count() -> int:
    """The number of the server's GPUs, of which a session computes on one; 0 if the current session is on none.

    Examples:
        >>> tg.cuda.device_count() >= 0
        True
    """
    return len(_gpus()) if is_available() else 0


def _gpus() -> list[dict[str, Any]]:
    """The server's GPUs that CUDA numbers, in their order."""
    found = [each for each in current().devices() if each["name"].startswith("cuda")]
    return sorted(found, key=lambda each: int(each["name"].partition(":")[2]))


def is_initialized() -> bool:
    """Whether the current session's tensors are on a GPU.

    Examples:
        >>> tg.cuda.is_initialized() == tg.cuda.is_available()
        True
    """
    return is_available()


def init() -> None:
    """Raise AssertionError unless the current session's tensors are on a GPU; there is nothing else to do.

    Examples:
        >>> if tg.cuda.is_available():
        ...     tg.cuda.init()
    """
    require_cuda(_present())


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether a GPU computes in bfloat16: as whether there is one.

    ``including_emulation`` has no effect.

    Examples:
        >>> tg.cuda.is_bf16_supported() == tg.cuda.is_available()
        True
    """
    return is_available()


def is_tf32_supported() -> bool:
    """False: products of float32 are computed in float32.

    Examples:
        >>> tg.cuda.is_tf32_supported()
        False
    """
    return False


def current_device() -> int:
    """The index of the current session's GPU. Raises AssertionError without one.

    Examples:
        >>> try:
        ...     print(tg.cuda.current_device() >= 0)
        ... except AssertionError:
        ...     print(True)
        True
    """
    require_cuda(_present())
    return _device(_present()).index or 0


def set_device(device: Any) -> None:
    """Name the current session's GPU. Raises AssertionError without one, and RuntimeError for another.

    ``device`` is the index or the device.

    Examples:
        >>> if tg.cuda.is_available():
        ...     tg.cuda.set_device(0)
    """
    index = _index(device)
    if index != current_device():
        raise InvalidOperation(
            f"CUDA error: invalid device ordinal: the session computes on {_present()}; "
            f"tg.connect(url, device='cuda:{index}') opens one on another GPU"
        )


def _index(device: Any) -> int:
    """The index of a GPU, by default of the current session's."""
    if device is None or isinstance(device, int):
        return current_device() if device is None else device
    index = _device(device).index
    return current_device() if index is None else index


def get_device_name(device: Any = None) -> str:
    """What the server calls a GPU, by default the session's. Raises AssertionError without one, RuntimeError for
    one that the server does not have.

    ``device`` is the index or the device.

    Examples:
        >>> tg.cuda.get_device_name(0) if tg.cuda.is_available() else "none"
        'none'
    """
    require_cuda(_present())
    gpus, index = _gpus(), _index(device)
    if not 0 <= index < len(gpus):
        raise InvalidOperation(f"CUDA error: invalid device ordinal: the server has {len(gpus)} GPUs")
    name: str = gpus[index]["description"]
    return name


def manual_seed_all(seed: int) -> None:
    """As :func:`telegrad.manual_seed`: a session has one source of random numbers.

    ``seed`` is an int.

    Examples:
        >>> tg.cuda.manual_seed_all(0)
    """
    manual_seed(seed)


def seed() -> None:
    """As :func:`telegrad.seed`.

    Examples:
        >>> tg.cuda.seed()
    """
    _seed()


seed_all = seed


def synchronize(device: Any = None) -> None:
    """Wait until everything that was recorded has run.

    ``device`` is the index or the device.

    Examples:
        >>> tg.cuda.synchronize()
    """
    current().flush()


def empty_cache() -> None:
    """Do nothing: the server keeps no cache of GPU memory for a session.

    Examples:
        >>> tg.cuda.empty_cache()
    """


def ipc_collect() -> None:
    """Do nothing: no memory is shared with other processes.

    Examples:
        >>> tg.cuda.ipc_collect()
    """


class device:
    """``with telegrad.cuda.device(0)``: nothing changes, for a session has one GPU.

    ``device`` is the index or the device.

    Examples:
        >>> with tg.cuda.device(0):
        ...     print(tg.ones(1).item())
        1.0
    """

    def __init__(self, device: Any) -> None:
        self.idx = device

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass


__getattr__ = attribute_of("cuda")

__all__ = ["amp", "current_device", "device", "device_count", "get_device_name", "set_device"]
__all__ += ["init", "is_available", "is_bf16_supported", "is_initialized", "is_tf32_supported"]
__all__ += ["empty_cache", "ipc_collect", "synchronize"]
__all__ += ["initial_seed", "manual_seed", "manual_seed_all", "seed", "seed_all"]
