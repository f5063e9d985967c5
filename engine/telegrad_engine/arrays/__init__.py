"""Backends: NumPy-like array libraries with a common interface, and the devices that they offer here.

The NumPy backend is always loaded. The others are imported when a session first uses their device.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

from ..errors import InvalidOperation, InvalidValue
from .base import Backend, DeviceInfo
from .numpy import NUMPY, NumpyBackend

ANY_GPU = "gpu"
"""The name for any GPU: the one with the most memory that this process does not use."""


class Choice(NamedTuple):
    """A kind of device: its name, and its backend's module, class, library and package extra."""

    device: str
    module: str
    cls: str
    library: str
    extra: str


CHOICES = {
    choice.device: choice
    for choice in (
        Choice("cpu", "numpy", "NumpyBackend", "numpy", ""),
        Choice("cuda", "cupy", "CupyBackend", "cupy", "cupy"),
    )
}


def split(name: str) -> tuple[str, int | None]:
    """Split a device's name into its kind and its index, if it has one.

    Raises InvalidOperation for an index that is no number, and InvalidValue for an unknown kind.
    """
    kind, colon, index = name.partition(":")
    if colon and not re.fullmatch(r"0|[1-9]\d{0,5}", index):
        raise InvalidOperation(f"Invalid device string: '{name:.60}'")
    if kind not in CHOICES and kind != ANY_GPU:
        raise InvalidValue(f"no device {name!r:.60}; known: {', '.join([*CHOICES, ANY_GPU])}")
    return kind, int(index) if colon else None


def resolve(name: str) -> str:
    """Return the full name of a device, as tensors have it: "cuda" is "cuda:0", "gpu" the GPU with the
    most free memory.

    Raises as :func:`split`; InvalidOperation, which lists the devices that are here, if there is none of this index or
    no GPU, or if the kind of device cannot be used here, with the reason.
    """
    kind, index = split(name)
    if kind == ANY_GPU:
        return _any_gpu(name)
    if kind != "cuda":
        if index:
            raise _absent(name)
        return kind
    try:
        count = len(_devices_of(CHOICES[kind]))
    except InvalidOperation as error:
        raise InvalidOperation(f"{error}; available: {_names()}") from error
    if (index or 0) >= count:
        raise _absent(name)
    return f"{kind}:{index or 0}"


def is_on(wanted: str, present: str) -> bool:
    """Whether the device ``present``, a full name, is what ``wanted`` asks for: "cuda" and "gpu" are any GPU."""
    kind, colon, index = wanted.partition(":")
    own, _, number = present.partition(":")
    if kind == ANY_GPU:
        return own == "cuda" and not colon
    return kind == own and (not colon or index == (number or "0"))


def _any_gpu(name: str) -> str:
    gpus = [info for info in available() if info.is_gpu]
    if name != ANY_GPU or not gpus:
        raise _absent(name)
    return max(gpus, key=lambda info: info.total_bytes - info.used_bytes).name


def _absent(name: str) -> InvalidOperation:
    return InvalidOperation(f"CUDA error: invalid device ordinal: no device {name!r:.60} here; available: {_names()}")


def _names() -> str:
    return ", ".join(info.name for info in available())


def available() -> list[DeviceInfo]:
    """The devices that can be used here, with their memory at this moment; it imports the libraries of all of them."""
    found = []
    for choice in installed():
        try:
            found += _devices_of(choice)
        except InvalidOperation:  # the library is installed, but finds no driver or is too old
            continue
    return found


def _devices_of(choice: Choice) -> list[DeviceInfo]:
    """The devices of a kind. Raises InvalidOperation if the kind cannot be used here."""
    with _usable(choice):
        return _class_of(choice).devices()


def make_backend(device: str) -> Backend:
    """Make a backend for a device. Raises as :func:`resolve`."""
    kind, index = split(resolve(device))
    choice = CHOICES[kind]
    with _usable(choice):
        cls = _class_of(choice)
        return cls() if index is None else cls(index)


def _class_of(choice: Choice) -> type[Backend]:
    found: type[Backend] = getattr(import_module(f".{choice.module}", __name__), choice.cls)
    return found


@contextmanager
def _usable(choice: Choice) -> Iterator[None]:
    """Raise InvalidOperation, with the reason, for an error that means that a kind of device cannot be used here."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != choice.library:
            raise
        raise InvalidOperation(
            f"device {choice.device!r} needs {choice.library}, which is not installed here: "
            f"install telegrad-engine[{choice.extra}]"
        ) from None
    except InvalidOperation:
        raise
    except Exception as error:  # a library without its driver or its GPU
        raise InvalidOperation(f"device {choice.device!r} cannot be used here: {error}") from error


def installed() -> list[Choice]:
    """The kinds of device whose library is installed; whether there is a GPU is checked only on first use."""
    return [choice for choice in CHOICES.values() if find_spec(choice.library) is not None]


__all__ = [
    "ANY_GPU",
    "CHOICES",
    "NUMPY",
    "Backend",
    "Choice",
    "DeviceInfo",
    "NumpyBackend",
    "available",
    "installed",
    "is_on",
    "make_backend",
    "resolve",
    "split",
]
