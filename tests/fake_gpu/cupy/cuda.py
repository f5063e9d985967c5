"""What stands for ``cupy.cuda``: two GPUs, their streams, pinned memory, and a record of what makes the host wait.

Internals: the line of the engine that waits is read from Python's stack.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import weakref
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np

GPUS = int(os.environ.get("FAKE_GPUS", "2"))
CAPACITY = int(os.environ.get("FAKE_GPU_BYTES", str(2**30)))
"""The memory of each GPU."""
LAGS = False
"""Whether what is queued is not done before somebody waits for it."""

waits: list[str] = []
"""Why the host waited for a GPU, in order."""
uploads: list[tuple[str, bool]] = []
"""For each copy to a GPU the kind of host memory that it came from, and whether the host went on meanwhile."""
used_streams: set[Any] = set()
"""The streams on which work was queued."""
allocated: Counter[int] = Counter()
"""The bytes of arrays on each GPU."""
_lock = threading.RLock()  # a finalizer may run while it is held


def reset() -> None:
    """Forget what was recorded."""
    waits.clear()
    uploads.clear()
    used_streams.clear()


class CUDARuntimeError(RuntimeError):
    """An error of the CUDA runtime."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class OutOfMemoryError(MemoryError):
    """The error for a GPU's memory that is full."""


class _Thread(threading.local):
    device = 0

    def __init__(self) -> None:
        self.streams: list[Any] = []
        self.devices: list[int] = []


_here = _Thread()


class Device:
    """A GPU by its number; the current one without."""

    def __init__(self, device: int | None = None) -> None:
        self.id = _here.device if device is None else int(device)
        if not 0 <= self.id < GPUS:
            raise CUDARuntimeError(101, "cudaErrorInvalidDevice: invalid device ordinal")

    def __int__(self) -> int:
        return self.id

    @property
    def compute_capability(self) -> str:
        return "90"

    @property
    def mem_info(self) -> tuple[int, int]:
        return CAPACITY - allocated[self.id], CAPACITY

    def use(self) -> None:
        _here.device = self.id

    def __enter__(self) -> Device:
        _here.devices.append(_here.device)
        _here.device = self.id
        return self

    def __exit__(self, *exc: object) -> None:
        _here.device = _here.devices.pop()

    def synchronize(self) -> None:
        waits.append("Device.synchronize")


class Event:
    """A place in a stream. It is reached at once, for there is no GPU that lags behind; with ``LAGS`` if waited for."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self.done = not LAGS

    def synchronize(self) -> None:
        waits.append("Event.synchronize")
        self.done = True


class Stream:
    """A queue of work on the current GPU. The null stream, in ``null``, waits for all others, which wait for it."""

    null: Stream

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: int | None = None
    ) -> None:
        self.is_null = null
        self.device_id = -1 if null else _here.device
        assert not non_blocking, "a stream that the null stream does not wait for: a download may come too early"

    def __enter__(self) -> Stream:
        assert self.is_null or self.device_id == _here.device, "a stream of another GPU"
        _here.streams.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        assert _here.streams.pop() is self

    def synchronize(self) -> None:
        waits.append("Stream.synchronize")

    def record(self, event: Event | None = None) -> Event:
        return event or Event()

    def wait_event(self, event: Event) -> None:
        pass


Stream.null = Stream(null=True)


def get_current_stream(device_id: int = -1) -> Stream:
    return _here.streams[-1] if _here.streams else Stream.null


def queue(name: str, arrays: list[Any]) -> Stream:
    """Queue work on the current stream. Raises for arrays that are elsewhere, or that another stream may write."""
    stream = get_current_stream()
    for array in arrays:
        if array.device.id != _here.device:
            raise AssertionError(f"{name}: an array of GPU {array.device.id} is used on GPU {_here.device}")
        other = array.stream
        if other is not stream and not other.is_null and not stream.is_null:
            raise AssertionError(f"{name}: an array of one stream is used on another, which is a race")
    used_streams.add(stream)
    return stream


def wait(name: str) -> None:
    """Record that the host waits for what it is about to read, and for what."""
    with _lock:
        waits.append(f"{name} in {_caller()}")


def _caller() -> str:
    """The function of the engine that waits."""
    frame: Any = sys._getframe(1)
    while frame is not None and "telegrad" not in frame.f_code.co_filename:
        frame = frame.f_back
    return "the test" if frame is None else f"{frame.f_code.co_filename.rpartition('telegrad_')[2]}:{frame.f_lineno}"


def allocate(owner: Any, nbytes: int) -> None:
    """Take memory of the current GPU for as long as ``owner`` lives. Raises OutOfMemoryError."""
    where = _here.device
    if allocated[where] + nbytes > CAPACITY:
        gc.collect()  # as CuPy does
    with _lock:
        if allocated[where] + nbytes > CAPACITY:
            raise OutOfMemoryError(f"Out of memory allocating {nbytes} bytes (allocated so far: {allocated[where]}).")
        allocated[where] += nbytes
    weakref.finalize(owner, _free, where, nbytes)


def _free(where: int, nbytes: int) -> None:
    with _lock:
        allocated[where] -= nbytes


# Pinned memory ----------------------------------------------------------------------------------


class PinnedMemory(np.ndarray):
    """Pinned memory of the host, as bytes."""


def alloc_pinned_memory(size: int) -> Any:
    return PinnedMemory(size, np.uint8)


def is_pinned(array: Any) -> bool:
    while array is not None:
        if isinstance(array, PinnedMemory):
            return True
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    return False


# Modules ------------------------------------------------------------------------------------------


def _properties(device: int) -> dict[str, Any]:
    return {"name": b"Fake GPU", "totalGlobalMem": CAPACITY, "major": 9, "minor": 0, "multiProcessorCount": 4}


runtime = SimpleNamespace(
    getDeviceCount=lambda: GPUS,
    getDeviceProperties=_properties,
    CUDARuntimeError=CUDARuntimeError,
)
memory = SimpleNamespace(OutOfMemoryError=OutOfMemoryError)


def is_available() -> bool:
    return GPUS > 0
