"""The devices that sessions can use."""

from __future__ import annotations

from telegrad_engine.arrays import ANY_GPU, available, installed, split
from telegrad_engine.errors import InvalidOperation, InvalidValue

# Only whether a library is installed is known at once. It is imported, and may find no GPU, in a thread of its own.
DEVICES = installed()
"""The kinds of device whose library is installed."""


def check_device(name: str) -> None:
    """Check that a device has a name that may exist here. Raises InvalidValue, which lists the kinds that do."""
    try:
        kind, _ = split(name)
    except (InvalidOperation, InvalidValue) as error:
        raise InvalidValue(f"{error}; available: {', '.join(DEVICES)}") from None
    if kind not in DEVICES and not (kind == ANY_GPU and DEVICES != ["cpu"]):
        raise InvalidValue(f"no device {name!r:.60} here; available: {', '.join(DEVICES)}")


def device_names() -> list[str]:
    """The names that sessions may ask for here, "cuda" and "gpu" among them if there is a GPU of CuPy's.

    It imports the libraries of all devices, which takes seconds, and finds no GPU that the process may not see.
    """
    here = available()
    names = {info.name for info in here} | {info.name.partition(":")[0] for info in here}
    return sorted(names | ({ANY_GPU} if any(info.is_gpu for info in here) else set()))
