"""CUDA streams: the queue of one session's work on a GPU, its pinned buffers, and the checks that it did not wait for.

The streams are ordinary ones, which the null stream waits for and which wait for it. So what is not done for a session,
such as a constant that all of them read, needs no events to be ordered.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import numpy as np

from ..errors import InvalidOperation
from .base import Queue

SMALLEST_BUFFER = 2**16
"""The bytes of the smallest pinned buffer; the others are powers of two times this."""
MAX_PINNED_BYTES = 2**28
"""The pinned memory of the process. It is never paged out, so it cannot grow with the requests."""
MAX_UNCHECKED = 64
"""The number of conditions on the device before they are combined into one."""
AHEAD = 32
"""The host waits if the GPU is behind by twice as many instructions: enough to keep it busy, and a program that is
stopped leaves no long queue."""
ASSERTION = (
    "CUDA error: device-side assert triggered: an index or a value was out of range in an instruction since values "
    "were last read. Results computed since then are undefined. With CUDA_LAUNCH_BLOCKING=1 in the server's "
    "environment, the instruction itself raises the error."
)


class PinnedBuffers:
    """Buffers of pinned memory, from which a GPU copies while the host goes on. Thread-safe."""

    def __init__(self, namespace: Any) -> None:
        self._cuda = namespace.cuda
        self._free: dict[int, list[Any]] = {}
        self._busy: deque[tuple[Any, int, Any]] = deque()
        """For each buffer that may still be read, the event after the copy, the buffer's size and the buffer."""
        self._total = 0
        self._lock = threading.Lock()

    def copy_to(self, result: Any, array: Any) -> bool:
        """Queue a copy of a host array to a device array of its shape and dtype, in the current stream.

        Return False, with nothing done, if no pinned memory is left.
        """
        size = max(SMALLEST_BUFFER, 1 << (array.nbytes - 1).bit_length())
        buffer = self._take(size)
        if buffer is None:
            return False
        staged = np.frombuffer(buffer, np.uint8, array.nbytes).view(array.dtype).reshape(array.shape)
        np.copyto(staged, array)
        result.set(staged)
        event = self._cuda.Event(disable_timing=True)
        self._cuda.get_current_stream().record(event)
        with self._lock:
            self._busy.append((event, size, buffer))
        return True

    def _take(self, size: int) -> Any:
        with self._lock:
            for _ in range(len(self._busy)):
                event, own, buffer = self._busy.popleft()
                if event.done:  # this does not wait
                    self._free.setdefault(own, []).append(buffer)
                else:
                    self._busy.append((event, own, buffer))
            free = self._free.get(size)
            if free:
                return free.pop()
            if self._total + size > MAX_PINNED_BYTES:
                return None
            self._total += size
        try:
            return self._cuda.alloc_pinned_memory(size)
        except Exception:  # the system allows less
            with self._lock:
                self._total -= size
            return None


class SessionStream(Queue):
    """A CUDA stream for the work of one session, which is queued in it inside its ``with`` block.

    Blocks may be nested, but only one thread may be inside at a time.
    """

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self._device = backend.namespace.cuda.Device(backend.index)
        self._stream = backend.take_stream()
        self._unchecked: list[Any] = []
        """Conditions on the device that must be false, not yet known."""
        self._queued = 0
        self._mark: Any = None
        """An event that was queued ``_queued`` instructions ago."""

    def __del__(self) -> None:
        if hasattr(self, "_stream"):
            self._backend.idle_streams.append(self._stream)

    def __enter__(self) -> SessionStream:
        self._device.__enter__()
        self._stream.__enter__()
        self._backend.here.enter(self)
        return self

    def __exit__(self, *exc: object) -> None:
        self._backend.here.leave()
        self._stream.__exit__(*exc)
        self._device.__exit__(*exc)

    def keep_up(self) -> None:
        """Count an instruction, and wait for the GPU if it is far behind."""
        self._queued += 1
        if self._queued < AHEAD:
            return
        before, self._queued = self._mark, 0
        self._mark = self._stream.record(self._backend.namespace.cuda.Event(block=True, disable_timing=True))
        if before is not None and not before.done:
            before.synchronize()

    def assume_not(self, condition: Any) -> None:
        """Assume that a condition on the device is false, until :meth:`check`."""
        self._unchecked.append(condition)
        if len(self._unchecked) > MAX_UNCHECKED:
            self._unchecked = [self._backend.namespace.stack(self._unchecked).any()]

    def check(self) -> None:
        """Wait for the assumptions. Raises InvalidOperation, as CUDA reports an assertion, if one was wrong."""
        if not self._unchecked:
            return
        conditions, self._unchecked = self._unchecked, []
        if bool(self._backend.namespace.stack(conditions).any()):
            raise InvalidOperation(ASSERTION)


class Here(threading.local):
    """The streams that this thread is in, innermost last."""

    def __init__(self) -> None:
        self._entered: list[SessionStream] = []

    @property
    def stream(self) -> SessionStream | None:
        """The innermost stream."""
        return self._entered[-1] if self._entered else None

    def enter(self, stream: SessionStream) -> None:
        """Enter a stream."""
        self._entered.append(stream)

    def leave(self) -> None:
        """Leave the innermost stream."""
        self._entered.pop()
