"""The devices that sessions can live on."""

from __future__ import annotations

from typing import NamedTuple

from telegrad_engine.arrays import installed
from telegrad_engine.errors import InvalidOperation, InvalidValue

from ..process import usable_cores
from ..settings import Settings


class Device(NamedTuple):
    """A device: its name in ``device``, the array library behind it, and how many of the host's cores it may use."""

    name: str
    backend: str
    cores: int


# By what is installed: the library of a device is imported with its first session, and says then if it can't run.
DEVICES = {choice.device: Device(choice.device, choice.library, usable_cores()) for choice in installed()}


def check_device(name: str) -> Device:
    """The device of this name, or InvalidValue with those that there are."""
    try:
        return DEVICES[name]
    except KeyError:
        raise InvalidValue(f"no device {name!r:.60} here; available: {', '.join(DEVICES)}") from None


def check_compiling(settings: Settings) -> None:
    """Raise InvalidOperation, with what is missing, unless programs can be compiled here."""
    if not settings.compile_after:
        raise InvalidOperation("this server compiles no programs: its compile_after is 0")
    if "jax" not in DEVICES:
        raise InvalidOperation(
            "compile needs jax, which is not installed here: pip install 'telegrad-service[jax]' where the server runs"
        )
