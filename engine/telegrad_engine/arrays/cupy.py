"""CuPy: NumPy's functions on an NVIDIA GPU. Like NumPy's, its arrays have views and can be written to.

Functions that CuPy lacks are computed by NumPy on the host.

A session's work on a GPU is queued on a CUDA stream of its own, with pinned buffers and checks that it did not wait.
The streams are ordinary ones, which the null stream waits for and which wait for it. So what is not done for a session,
such as a constant that all of them read, needs no events to be ordered.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import numpy as np

from ..errors import InvalidOperation
from .base import NOWHERE, Backend, DeviceInfo, Queue
from .numpy import NUMPY, SPECIAL
from .symbolic import TensorScalar

OLDEST = 14
"""The first CuPy version with bfloat16 and NumPy 2's promotion rules."""

_WHOLE = {"int32", "uint32", "uint64"}
ATOMIC = {"add": _WHOLE | {"float16", "float32", "float64"}, "maximum": _WHOLE, "minimum": _WHOLE}
"""By ufunc, the dtypes for which CuPy's ``ufunc.at`` gives NumPy's results, with an atomic operation of the GPU.

It also accepts floats for maximum and minimum, but ignores NaN and rounds to 32 bits.
"""
WIDER = {
    **dict.fromkeys(("bool", "int8", "uint8", "int16", "uint16"), "int32"),
    **dict.fromkeys(("float16", "bfloat16"), "float32"),
}
"""Wider dtypes for dtypes that are too short for an atomic operation; for integers, only maximum and minimum use it."""
OUT_OF_MEMORY = ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "_STATUS_ALLOC_FAILED")
"""Texts of errors of CUDA and of its libraries for a GPU whose memory is full."""


def _import_cupy() -> Any:
    """Import the library. Raises InvalidOperation if it is too old."""
    namespace = import_module("cupy")
    if int(namespace.__version__.partition(".")[0]) < OLDEST:
        raise InvalidOperation(f"CuPy {OLDEST} or later is needed, but {namespace.__version__} is installed")
    return namespace


class CupyBackend(Backend):
    """``cupy`` on one GPU, with ``cupyx.scipy`` for the special functions."""

    name, library = "cuda", "cupy"
    array_type: type
    """The class of CuPy's arrays."""
    special: Any
    """The module of special functions."""
    triangular: Any
    """The module with ``solve_triangular``."""

    @classmethod
    def devices(cls) -> list[DeviceInfo]:
        """The GPUs that CUDA finds. No context is made on them, which would take memory and time."""
        cupy = _import_cupy()
        found = []
        for index in range(cupy.cuda.runtime.getDeviceCount()):
            properties = cupy.cuda.runtime.getDeviceProperties(index)
            with cupy.cuda.Device(index):
                used = cupy.get_default_memory_pool().used_bytes()
            description, total = properties["name"].decode(), properties["totalGlobalMem"]
            found.append(DeviceInfo(f"{cls.name}:{index}", cls.library, True, description, total, used))
        return found

    def __init__(self, index: int = 0) -> None:
        self.load()
        self.array_type = self.namespace.ndarray
        super().__init__(index)
        self.linalg = Linalg(self)
        self.name = f"{type(self).name}:{index}"
        self.here = Here()
        self.idle_streams: list[Any] = []
        """The streams of sessions that have ended, for new ones: memory that CuPy has freed stays with a stream."""
        self._buffers = PinnedBuffers(self.namespace)

    def load(self) -> None:
        """Import the library."""
        self.namespace = _import_cupy()
        self.special = import_module("cupyx.scipy.special")
        self.triangular = import_module("cupyx.scipy.linalg")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "namespace" not in self.__dict__:
            raise AttributeError(name)
        found = getattr(self.special if name in SPECIAL else self.namespace, SPECIAL.get(name, name), None)
        if found is None:
            known = getattr(NUMPY, name, None)
            if known is None:
                raise AttributeError(f"the {self.library} backend has no function {name!r}")
            found = self.on_host(known)
        setattr(self, name, found)
        return found

    def on_host(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a NumPy function to download its arguments, compute on the host and upload its results."""

        def call(*args: Any, **kwargs: Any) -> Any:
            result = function(*self._each(args, self.array_type, self._copied), **kwargs)
            return self._each(result, np.ndarray, self.upload)

        return call

    def _copied(self, array: Any) -> Any:
        return np.array(self.download(array))  # NumPy's kernels may write to their temporaries

    def _each(self, value: Any, kind: type, convert: Callable[[Any], Any]) -> Any:
        if isinstance(value, (tuple, list)):
            items = [self._each(v, kind, convert) for v in value]
            return tuple(items) if isinstance(value, tuple) else items
        return convert(value) if isinstance(value, kind) else value

    # Where work is queued -----------------------------------------------------------------

    def make_stream(self) -> SessionStream:
        """Make a stream for the work of one session."""
        return SessionStream(self)

    def take_stream(self) -> Any:
        """A CUDA stream on this GPU that no session uses."""
        try:
            return self.idle_streams.pop()
        except IndexError:
            with self.namespace.cuda.Device(self.index):
                return self.namespace.cuda.Stream()

    def placed(self) -> AbstractContextManager[Any]:
        """Run work on this GPU within the block, in the session's stream, or in the null stream outside of sessions."""
        return NOWHERE if self.here.stream is not None else self.namespace.cuda.Device(self.index)

    def constant(self, value: int, dtype: Any) -> Any:
        """A 0-dim array that all sessions may read: the null stream orders it before all that comes later."""
        with self.namespace.cuda.Device(self.index), self.namespace.cuda.Stream.null:
            return self.namespace.asarray(value, dtype)

    # Between host and device --------------------------------------------------------------

    def upload(self, array: Any) -> Any:
        """Copy a NumPy array to the GPU, from pinned memory, so that the host need not wait for earlier work."""
        if not array.ndim or not array.size:
            return self.namespace.array(array)  # the value of a single element is an argument of a kernel
        result = self.namespace.empty(array.shape, array.dtype)
        if not self._buffers.copy_to(result, array):
            result.set(np.ascontiguousarray(array))
        return result

    def download(self, array: Any) -> Any:
        """A copy of the array in the host's memory. Raises InvalidOperation for values that were invalid before."""
        result = self.namespace.asnumpy(array)
        if self.here.stream is not None:
            self.here.stream.check()
        return result

    # Values -----------------------------------------------------------------------------

    def number(self, array: Any) -> Any:
        """A stand-in for the element of an array, because reading it would wait for the GPU."""
        return TensorScalar(array.astype(np.float64))

    def select(self, condition: Any, one: Callable[[], Any], other: Callable[[], Any]) -> Any:
        """Compute both and choose on the GPU."""
        if not isinstance(condition, self.array_type):
            return one() if condition else other()
        both = one(), other()
        a, b = (x.value if isinstance(x, TensorScalar) else x for x in both)
        chosen = self.namespace.where(condition, a, b)
        return (
            TensorScalar(chosen) if isinstance(both[0], TensorScalar) or isinstance(both[1], TensorScalar) else chosen
        )

    def is_invalid(self, condition: Any) -> bool:
        """In a session's stream False, and the check follows when values are read; CUDA_LAUNCH_BLOCKING=1 waits."""
        stream = None if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1" else self.here.stream
        if stream is None or not isinstance(condition, self.array_type):
            return bool(condition)
        stream.assume_not(condition)
        return False

    def needs_care(self, condition: Any) -> bool:
        """True, because the answer would wait for the GPU, where the slower kernel takes less time than that."""
        return True

    def is_out_of_memory(self, error: Exception) -> bool:
        """Whether the GPU's memory, or the host's, is full: the pool, a library's workspace or a kernel says so."""
        kinds = (MemoryError, self.namespace.cuda.memory.OutOfMemoryError)
        return isinstance(error, kinds) or any(text in str(error) for text in OUT_OF_MEMORY)

    # Writes -----------------------------------------------------------------------------

    def index_combine(self, array: Any, index: Any, values: Any, how: str) -> Any:
        """A copy of ``array`` with ``values`` combined into it at ``index`` by the ufunc named ``how``."""
        dtype = array.dtype
        if dtype.name in ATOMIC.get(how, ()):
            result = self.namespace.array(array, order="C")
            getattr(self.namespace, how).at(result, index, values)
            return result
        if how == "multiply" or (how == "add" and dtype.name == "bool"):
            return self.on_host(NUMPY.index_combine)(array, index, values, how)
        values = self.namespace.asarray(values).astype(dtype)
        # Integer sums that wrap around can be computed in uint64, which has an atomic addition.
        wider = np.uint64 if how == "add" and dtype.kind in "iu" else WIDER.get(dtype.name)
        if wider is not None:
            return self.index_combine(array.astype(wider), index, values.astype(wider), how).astype(dtype)
        return self._ranked(self.index_combine(self._ranks(array, how), index, self._ranks(values, how), how), dtype)

    def _ranks(self, array: Any, how: str) -> Any:
        """The rank of each element among all values of its dtype; NaN gets the rank that ``how`` always picks."""
        kind, sign, last = _unsigned(array.dtype)
        bits = array.view(kind)
        if array.dtype.kind == "i":
            return bits ^ sign
        ranks = self.namespace.where(bits >= sign, bits ^ last, bits ^ sign)  # negative floats are in reverse order
        return self.namespace.where(self.namespace.isnan(array), last if how == "maximum" else kind.type(0), ranks)

    def _ranked(self, ranks: Any, dtype: Any) -> Any:
        """The values of a dtype with these ranks."""
        _, sign, last = _unsigned(dtype)
        bits = ranks ^ sign
        return (bits if dtype.kind == "i" else self.namespace.where(ranks >= sign, bits, ranks ^ last)).view(dtype)

    # Functions --------------------------------------------------------------------------

    def kaiser(self, length: int, beta: float) -> Any:
        """Like ``numpy.kaiser``, computed on the host because CuPy uses 32 bits."""
        return self.upload(np.kaiser(length, beta))

    def lgamma(self, array: Any) -> Any:
        """The logarithm of the gamma function's magnitude; CuPy's own result at -inf differs from NumPy's."""
        return self.special.gammaln(self.namespace.where(self.namespace.isneginf(array), -array, array))

    def running(self, how: str, array: Any, axis: int) -> Any:
        """Like NumPy's ``ufunc.accumulate``, by Hillis and Steele's parallel scan."""
        combine, step = getattr(self.namespace, how), 1
        result = self.namespace.moveaxis(array, axis, 0)
        while step < len(result):
            result = self.namespace.concatenate([result[:step], combine(result[:-step], result[step:])])
            step *= 2
        return self.namespace.moveaxis(result, 0, axis)

    # Linear algebra -----------------------------------------------------------------------

    def solve_triangular(self, a: Any, b: Any, upper: bool, unit: bool) -> Any:
        """The solutions of ``a @ x = b`` for batches of triangular matrices; a zero pivot gives infinities."""
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = (self.namespace.broadcast_to(x, batch + x.shape[-2:]) for x in (a, b))
        if not b.size:
            return self.namespace.zeros(b.shape, b.dtype)
        return self.triangular.solve_triangular(a, b, lower=not upper, unit_diagonal=unit)


class Linalg:
    """``cupy.linalg`` with NumPy's errors, where CuPy returns NaN, infinity or meaningless numbers."""

    LinAlgError = np.linalg.LinAlgError

    def __init__(self, backend: CupyBackend) -> None:
        self.backend = backend
        self.namespace = backend.namespace.linalg

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.namespace, name, None)
        return self.backend.on_host(getattr(np.linalg, name)) if found is None else found

    def inv(self, a: Any) -> Any:
        """The inverse of each matrix."""
        with self._raising():
            return self._checked(self.namespace.inv(a), a)

    def solve(self, a: Any, b: Any) -> Any:
        """The solution of ``a @ x = b`` for each matrix; CuPy requires batches of the same shape."""
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = (self.backend.namespace.broadcast_to(x, batch + x.shape[-2:]) for x in (a, b))
        with self._raising():
            return self._checked(self.namespace.solve(a, b), a)

    def cholesky(self, a: Any) -> Any:
        """The lower triangular factor of each matrix. Raises LinAlgError if one is not positive definite."""
        with self._raising():
            result = self.namespace.cholesky(a)
        if self.backend.namespace.isnan(result).any():
            raise np.linalg.LinAlgError("Matrix is not positive definite")
        return result

    def _raising(self) -> Any:
        return import_module("cupyx").errstate(linalg="raise")

    def _checked(self, result: Any, a: Any) -> Any:
        if not self.backend.namespace.isfinite(result).all():
            matrices = self.backend.download(a).reshape(-1, *a.shape[-2:])
            if any(NUMPY.zero_pivot(matrix) for matrix in matrices):
                raise np.linalg.LinAlgError("Singular matrix")
        return result


def _unsigned(dtype: Any) -> tuple[Any, Any, Any]:
    """The unsigned integer dtype of the same size as ``dtype``, its sign bit and its largest value."""
    bits = 8 * dtype.itemsize
    kind = np.dtype(f"uint{bits}")
    return kind, kind.type(2 ** (bits - 1)), kind.type(2**bits - 1)


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
