"""The devices that sessions can live on."""

from __future__ import annotations

import os
from typing import NamedTuple

from telegrad_engine.errors import InvalidValue


class Device(NamedTuple):
    """A device: its name in ``device``, the array library behind it, and how many cores it has."""

    name: str
    backend: str
    cores: int


DEVICES = {"cpu": Device("cpu", "numpy", os.cpu_count() or 1)}


def check_device(name: str) -> Device:
    """The device of this name, or InvalidValue with those that there are."""
    try:
        return DEVICES[name]
    except KeyError:
        raise InvalidValue(f"no device {name!r:.60} here; available: {', '.join(DEVICES)}") from None
