"""``telegrad.device`` and checks of GPU devices: a session computes on its server's device."""

from __future__ import annotations

import functools
import re
from typing import Any, Self

from telegrad_engine.amp.autocast import DEVICE_TYPES
from telegrad_engine.arrays import ON_A_GPU, is_on
from telegrad_engine.errors import InvalidArgument, InvalidChoice, InvalidOperation

from ..sessions.session import current

KNOWN = (*DEVICE_TYPES.split(", "), "gpu")
NO_CUDA = f"Torch not compiled with CUDA enabled. The session computes on {{}}. {ON_A_GPU}"


class device:
    """A device type and an optional index: ``device("cuda:0")``, ``device("cuda", 0)``; ``device("gpu")`` is any GPU.

    Equal only to a device of the same type and index, as in torch. Raises RuntimeError for an unknown name.

    ``type`` is the name, with or without an index, and ``index`` the index.

    Examples:
        >>> tg.device("cuda:0").index, tg.device("cpu")
        (0, device(type='cpu'))
    """

    __slots__ = ("index", "type")
    type: str
    index: int | None

    def __new__(cls, type: Any, index: int | None = None) -> device:
        """Return the device with this name; a ``device`` is returned as it is."""
        if isinstance(type, device):
            return type
        made = super().__new__(cls)
        made.type, made.index = _parse(str(type) if hasattr(type, "type") else type, index)
        return made

    def __enter__(self) -> device:
        """Raise RuntimeError unless this is "cpu" or the session's device, where tensors are created in any case."""
        return check_device(self)

    def __exit__(self, *exc: object) -> None:
        pass

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, device):
            return NotImplemented
        return (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type={self.type!r}{index})"

    def __reduce__(self) -> Any:
        return (device, (str(self),))


def _parse(name: Any, index: int | None) -> tuple[str, int | None]:
    if not isinstance(name, str):
        raise InvalidArgument(f"a device is named by a text, as 'cuda:0', not by {type(name).__name__}")
    return _parsed(name, index)


@functools.lru_cache(64)
def _parsed(name: str, index: int | None) -> tuple[str, int | None]:
    if not name:
        raise InvalidOperation("Device string must not be empty")
    if index is not None and index < 0:
        raise InvalidOperation("Device index must not be negative")
    kind, colon, number = name.partition(":")
    if colon and not re.fullmatch(r"0|[1-9]\d*", number):
        raise InvalidOperation(f"Invalid device string: '{name}'")
    if kind not in KNOWN:
        raise InvalidOperation(f"Expected one of {DEVICE_TYPES} device type at start of device string: {kind}")
    if colon and index is not None:
        raise InvalidOperation(f"type (string) must not include an index because index was passed explicitly: {name}")
    return kind, int(number) if colon else index


def require_cuda(present: str, wanted: Any = None) -> None:
    """Raise AssertionError, with torch's text, unless the session's device is a GPU; as :func:`check_device` if it is
    not the ``wanted`` one."""
    if not present.startswith("cuda"):
        raise InvalidChoice(NO_CUDA.format(present))
    if wanted is not None:
        check_device(wanted)


def check_device(wanted: Any) -> device:
    """Return the device with this name. Raises RuntimeError unless it is "cpu" or the current session's device.

    Values are fetched to the host on request, so a session on a GPU accepts "cpu" as well.
    """
    found = device(wanted) if not isinstance(wanted, int) else device("cuda", wanted)
    present = current().recorder.transport.device
    if found.type != "cpu" and not is_on(str(found), present):
        raise InvalidOperation(f"device {str(found)!r} is not available; available: {present}. {ON_A_GPU}")
    return found


class OnDevice:
    """Methods of a tensor about the device that its session computes on."""

    _recorder: Any

    def cpu(self, memory_format: Any = None) -> Self:
        """Return the tensor itself: values are fetched on request.

        ``memory_format`` has no effect.

        Examples:
            >>> tg.ones(2).cpu()
            tensor([1., 1.])
        """
        return self

    @property
    def device(self) -> device:
        """The device that the session computes on.

        Examples:
            >>> tg.ones(2).device.type in ("cpu", "cuda")
            True
        """
        return device(self._recorder.transport.device)

    @property
    def is_cuda(self) -> bool:
        """Whether the session computes on a GPU.

        Examples:
            >>> x = tg.ones(2)
            >>> x.is_cpu != x.is_cuda
            True
        """
        return self.device.type == "cuda"

    def cuda(self, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Self:
        """Return the tensor itself if it is on a GPU. Raises AssertionError otherwise, RuntimeError for another GPU.

        ``device`` is the GPU, and ``non_blocking`` and ``memory_format`` have no effect.

        Examples:
            >>> x = tg.ones(2)
            >>> x.cuda() is x if x.is_cuda else True
            True
        """
        require_cuda(self._recorder.transport.device, device)
        return self

    def get_device(self) -> int:
        """Return the index of the GPU that the session computes on, or -1 without one.

        Examples:
            >>> tg.ones(2).get_device() >= -1
            True
        """
        place = self.device
        return (place.index or 0) if place.type != "cpu" else -1

    @property
    def is_cpu(self) -> bool:
        """Whether the session computes on the CPU.

        Examples:
            >>> x = tg.ones(2)
            >>> x.is_cpu != x.is_cuda
            True
        """
        return self.device.type == "cpu"

    def pin_memory(self, device: Any = None) -> Self:
        """Return the tensor itself if its session computes on a GPU. Raises RuntimeError otherwise.

        ``device`` has no effect.

        Examples:
            >>> x = tg.ones(2)
            >>> x.pin_memory() is x if x.is_cuda else True
            True
        """
        if not self.is_cuda:
            raise InvalidOperation("Cannot access accelerator device when none is available.")
        return self
