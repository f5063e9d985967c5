"""Backends: NumPy-like array libraries with a common interface.

The NumPy backend is always loaded. The others are imported when a session first uses their device.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

from ..errors import InvalidOperation, InvalidValue
from .base import Backend
from .numpy import NUMPY, NumpyBackend


class Choice(NamedTuple):
    """An available backend: its device name, module, class, library and package extra."""

    device: str
    module: str
    cls: str
    library: str
    extra: str


CHOICES = {
    choice.device: choice
    for choice in (
        Choice("cpu", "numpy", "NumpyBackend", "numpy", ""),
        Choice("jax", "jax", "JaxBackend", "jax", "jax"),
        Choice("cuda", "cupy", "CupyBackend", "cupy", "cupy"),
    )
}


def make_backend(device: str) -> Backend:
    """Make a backend for a device. Raises InvalidValue if it is unknown, InvalidOperation if it cannot be used."""
    choice = CHOICES.get(device)
    if choice is None:
        raise InvalidValue(f"no device {device!r:.60}; known: {', '.join(CHOICES)}")
    try:
        backend: Backend = getattr(import_module(f".{choice.module}", __name__), choice.cls)()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != choice.library:
            raise
        raise InvalidOperation(
            f"device {choice.device!r} needs {choice.library}, which is not installed here: "
            f"pip install 'telegrad-engine[{choice.extra}]'"
        ) from None
    except Exception as error:  # a library without its driver or its GPU
        raise InvalidOperation(f"device {choice.device!r} cannot be used here: {error}") from error
    return backend


def installed() -> list[Choice]:
    """The backends whose library is installed; whether there is a GPU is checked only on first use."""
    return [choice for choice in CHOICES.values() if find_spec(choice.library) is not None]


__all__ = ["CHOICES", "NUMPY", "Backend", "Choice", "NumpyBackend", "installed", "make_backend"]
