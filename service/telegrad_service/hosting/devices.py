"""The devices that sessions can use."""

from __future__ import annotations

from typing import NamedTuple

from telegrad_engine.arrays import installed
from telegrad_engine.errors import InvalidOperation, InvalidValue

from ..process import usable_cores
from ..settings import Settings


class Device(NamedTuple):
    """A device: its name, its array library, and the number of the host's cores that it may use."""

    name: str
    backend: str
    cores: int


# Only installed libraries are listed. A device's library is imported, and may fail, when its first session is created.
DEVICES = {choice.device: Device(choice.device, choice.library, usable_cores()) for choice in installed()}


def check_device(name: str) -> Device:
    """Return the device of this name. Raises InvalidValue, which lists the available ones."""
    try:
        return DEVICES[name]
    except KeyError:
        raise InvalidValue(f"no device {name!r:.60} here; available: {', '.join(DEVICES)}") from None


def check_compiling(settings: Settings) -> None:
    """Raise InvalidOperation, with the reason, unless programs can be compiled on this server."""
    if not settings.compile_after:
        raise InvalidOperation("this server compiles no programs: its compile_after is 0")
    if "jax" not in DEVICES:
        raise InvalidOperation(
            "compile needs jax, which is not installed here: pip install 'telegrad-service[jax]' where the server runs"
        )
