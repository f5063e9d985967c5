"""torch's process-wide settings: threads, determinism, precision, the default device.

The setters store their value for the getters and change nothing else: kernels are deterministic, and the server
chooses threads and precision. Invalid values raise as in torch.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

from telegrad_engine.errors import InvalidArgument, InvalidOperation

from .sessions.session import current
from .tensor.devices import check_device, device

MODES = ("default", "warn", "error")
"""The modes of ``set_deterministic_debug_mode``, indexed by number."""
PRECISIONS = ("highest", "high", "medium")


class _Settings:
    threads = os.cpu_count() or 1
    interop_threads = os.cpu_count() or 1
    deterministic = 0
    precision = "highest"
    warn_always = False
    device: device | None = None


_settings = _Settings()


def _threads(function: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidOperation(f"{function} expects an int, but got {type(value).__name__}")
    if value <= 0:
        raise InvalidOperation(f"{function} expects a positive integer")
    return value


def set_num_threads(threads: int) -> None:
    """Set the number that :func:`get_num_threads` returns; the server's setting decides how many threads compute.

    Raises RuntimeError for anything but a positive int.

    ``threads`` is the number.

    Examples:
        >>> tg.set_num_threads(tg.get_num_threads())
    """
    _settings.threads = _threads("set_num_threads", threads)


def get_num_threads() -> int:
    """Return the number set by :func:`set_num_threads`, by default the number of this machine's cores.

    Examples:
        >>> tg.get_num_threads() >= 1
        True
    """
    return _settings.threads


def set_num_interop_threads(threads: int) -> None:
    """Set the number that :func:`get_num_interop_threads` returns; otherwise like :func:`set_num_threads`.

    ``threads`` is the number.

    Examples:
        >>> tg.set_num_interop_threads(tg.get_num_interop_threads())
    """
    _settings.interop_threads = _threads("set_num_interop_threads", threads)


def get_num_interop_threads() -> int:
    """Return the number set by :func:`set_num_interop_threads`, by default the number of this machine's cores.

    Examples:
        >>> tg.get_num_interop_threads() >= 1
        True
    """
    return _settings.interop_threads


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Request deterministic kernels; all kernels are deterministic. Raises TypeError for a mode that is not a bool.

    With ``warn_only``, only warnings are requested.

    Examples:
        >>> tg.use_deterministic_algorithms(True)
        >>> tg.use_deterministic_algorithms(False)
    """
    if not isinstance(mode, bool):
        raise InvalidArgument(
            f"_set_deterministic_algorithms(): argument 'mode' (position 1) must be bool, not {type(mode).__name__}"
        )
    _settings.deterministic = 0 if not mode else 1 if warn_only else 2


def are_deterministic_algorithms_enabled() -> bool:
    """Whether :func:`use_deterministic_algorithms` requested deterministic kernels.

    Examples:
        >>> tg.are_deterministic_algorithms_enabled()
        False
    """
    return _settings.deterministic > 0


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether :func:`use_deterministic_algorithms` requested warnings only.

    Examples:
        >>> tg.is_deterministic_algorithms_warn_only_enabled()
        False
    """
    return _settings.deterministic == 1


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """Set the mode: ``default`` (0), ``warn`` (1) or ``error`` (2). Raises RuntimeError for any other value.

    ``debug_mode`` is the name or the number of the mode.

    Examples:
        >>> tg.set_deterministic_debug_mode("default")
    """
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if isinstance(debug_mode, str):
        if debug_mode not in MODES:
            raise InvalidOperation(
                f"invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got {debug_mode}"
            )
        debug_mode = MODES.index(debug_mode)
    if debug_mode not in range(len(MODES)):
        raise InvalidOperation(f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}")
    _settings.deterministic = debug_mode


def get_deterministic_debug_mode() -> int:
    """Return the mode as a number: 0, 1 or 2.

    Examples:
        >>> tg.get_deterministic_debug_mode()
        0
    """
    return _settings.deterministic


def set_float32_matmul_precision(precision: str) -> None:
    """Store ``highest``, ``high`` or ``medium``; products are always computed in float32.

    ``precision`` is the word.

    Examples:
        >>> tg.set_float32_matmul_precision("highest")
    """
    if precision not in PRECISIONS:
        warnings.warn(
            f"{precision} is not one of 'highest', 'high', or 'medium'; the currentsetFloat32MatmulPrecision call has "
            "no effect.",
            stacklevel=2,
        )
        return
    _settings.precision = precision


def get_float32_matmul_precision() -> str:
    """Return the value stored by :func:`set_float32_matmul_precision`.

    Examples:
        >>> tg.get_float32_matmul_precision()
        'highest'
    """
    return _settings.precision


def set_flush_denormal(mode: bool) -> bool:
    """Return False: denormal numbers are never flushed to zero.

    ``mode`` has no effect.

    Examples:
        >>> tg.set_flush_denormal(True)
        False
    """
    if not isinstance(mode, bool):
        raise InvalidOperation(f"flush_denormal expects a bool, but got {type(mode).__name__}")
    return False


def set_warn_always(b: bool, /) -> None:
    """Store whether warnings repeat; only Python's own filters have an effect.

    ``b`` is the value.

    Examples:
        >>> tg.set_warn_always(False)
    """
    if not isinstance(b, bool):
        raise InvalidOperation(f"setWarnOnlyOnce expects a bool, but got {type(b).__name__}")
    _settings.warn_always = b


def is_warn_always_enabled() -> bool:
    """Return the value stored by :func:`set_warn_always`.

    Examples:
        >>> tg.is_warn_always_enabled()
        False
    """
    return _settings.warn_always


def set_default_device(device: Any) -> None:
    """Set the device that :func:`get_default_device` returns; None resets it.

    Tensors are always created on the session's device. Raises RuntimeError for a device that the current session does
    not have.

    ``device`` is a device or its name.

    Examples:
        >>> tg.set_default_device("cpu")
        >>> tg.set_default_device(None)
    """
    _settings.device = None if device is None else check_device(device)


def get_default_device() -> device:
    """Return the device set by :func:`set_default_device`, or the current session's.

    Examples:
        >>> tg.get_default_device()
        device(type='cpu')
    """
    return _settings.device or device(current().recorder.transport.device)
