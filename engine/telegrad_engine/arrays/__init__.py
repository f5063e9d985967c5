"""Backends: NumPy and CuPy with a common interface, and the devices that they offer here.

CuPy itself is imported when a session first uses a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from ..errors import InvalidOperation, InvalidValue
from .base import Backend, DeviceInfo
from .cupy import CupyBackend
from .numpy import NUMPY, NumpyBackend

ANY_GPU = "gpu"
"""The name for any GPU: the one with the most memory that this process does not use."""
KINDS: dict[str, type[Backend]] = {"cpu": NumpyBackend, "cuda": CupyBackend}
"""The kinds of device."""


def split(name: str) -> tuple[str, int | None]:
    """Split a device's name into its kind and its index, if it has one.

    Raises InvalidOperation for an index that is no number, and InvalidValue for an unknown kind.
    """
    kind, colon, index = name.partition(":")
    if colon and not re.fullmatch(r"0|[1-9]\d{0,5}", index):
        raise InvalidOperation(f"Invalid device string: '{name:.60}'")
    if kind not in KINDS and kind != ANY_GPU:
        raise InvalidValue(f"no device {name!r:.60}; known: {', '.join([*KINDS, ANY_GPU])}")
    return kind, int(index) if colon else None


def resolve(name: str) -> str:
    """Return the full name of a device, as tensors have it: "cuda" is "cuda:0", "gpu" the GPU with the
    most free memory.

    Raises as :func:`split`; InvalidOperation, which lists the devices that are here, if there is none of this index or
    no GPU, or if the kind of device cannot be used here, with the reason.
    """
    kind, index = split(name)
    if kind == ANY_GPU:
        gpus = [info for info in available() if info.is_gpu]
        if index is not None or not gpus:
            raise _absent(name)
        return max(gpus, key=lambda info: info.total_bytes - info.used_bytes).name
    if kind != "cuda":
        if index:
            raise _absent(name)
        return kind
    try:
        count = len(_devices_of(kind))
    except InvalidOperation as error:
        raise InvalidOperation(f"{error}; available: {_names()}") from error
    if (index or 0) >= count:
        raise _absent(name)
    return f"{kind}:{index or 0}"


ON_A_GPU = "A session that is opened with device='cuda' computes on a GPU, where the server has one."
"""What the errors for a device that the session does not have say besides."""


def is_on(wanted: str, present: str) -> bool:
    """Whether the device ``present``, a full name, is what ``wanted`` asks for: "cuda" and "gpu" are any GPU."""
    kind, colon, index = wanted.partition(":")
    own, _, number = present.partition(":")
    if kind == ANY_GPU:
        return own == "cuda" and not colon
    return kind == own and (not colon or index == (number or "0"))


def _absent(name: str) -> InvalidOperation:
    return InvalidOperation(f"CUDA error: invalid device ordinal: no device {name!r:.60} here; available: {_names()}")


def _names() -> str:
    return ", ".join(info.name for info in available())


def available() -> list[DeviceInfo]:
    """The devices that can be used here, with their memory at this moment; it imports the libraries of all of them."""
    found = []
    for kind in installed():
        try:
            found += _devices_of(kind)
        except InvalidOperation:  # the library is installed, but finds no driver or is too old
            continue
    return found


def _devices_of(kind: str) -> list[DeviceInfo]:
    """The devices of a kind. Raises InvalidOperation if the kind cannot be used here."""
    with _usable(kind):
        return KINDS[kind].devices()


def make_backend(device: str) -> Backend:
    """Make a backend for a device. Raises as :func:`resolve`."""
    kind, index = split(resolve(device))
    with _usable(kind):
        return KINDS[kind]() if index is None else KINDS[kind](index)


@contextmanager
def _usable(kind: str) -> Iterator[None]:
    """Raise InvalidOperation, with the reason, for an error that means that a kind of device cannot be used here."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = KINDS[kind].library
        if (error.name or "").partition(".")[0] != library:
            raise
        raise InvalidOperation(
            f"device {kind!r} needs {library}, which is not installed here: install telegrad-engine[{library}]"
        ) from None
    except InvalidOperation:
        raise
    except Exception as error:  # a library without its driver or its GPU
        raise InvalidOperation(f"device {kind!r} cannot be used here: {error}") from error


def installed() -> list[str]:
    """The kinds of device whose library is installed; whether there is a GPU is checked only on first use."""
    return [kind for kind, cls in KINDS.items() if find_spec(cls.library) is not None]


__all__ = ["NUMPY", "Backend", "NumpyBackend", "make_backend"]
__all__ += ["ANY_GPU", "DeviceInfo", "available", "installed", "is_on", "resolve", "split"]
