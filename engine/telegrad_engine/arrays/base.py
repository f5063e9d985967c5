"""Backends: array libraries under NumPy's names, with methods for everything that differs between libraries.

Kernels take the backend as ``xp``. Functions that a library shares with NumPy come from the library. The methods here
cover the rest: transfers between host and device, functional writes (kernels are pure), and functions that NumPy does
not have.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np


class DeviceInfo(NamedTuple):
    """A device of this machine."""

    name: str
    """The name that sessions are opened with."""
    library: str
    """The array library that computes on it."""
    is_gpu: bool
    description: str
    """What its driver calls it; empty if it is this machine's processor."""
    total_bytes: int
    """The memory of a GPU; 0 for a device that uses the host's memory, or whose library does not say."""
    used_bytes: int
    """The part of it that arrays of this process take at this moment."""

    def described(self, cores: int) -> dict[str, Any]:
        """Return the device as ``GET /v1/devices`` describes it; ``cores`` of the host's processors may be used."""
        return {
            "name": self.name,
            "kind": "gpu" if self.is_gpu else "cpu",
            "backend": self.library,
            "description": self.description,
            "cores": cores,
            "total_bytes": self.total_bytes if self.is_gpu else None,
            "used_bytes": self.used_bytes if self.is_gpu else None,
        }


class Queue(nullcontext[Any]):
    """What the work of one session is queued in within its block; this one is of a library that works at once."""

    def keep_up(self) -> None:
        """Count an instruction, and wait for the device if it is far behind."""


NOWHERE = Queue()


class _Constants(dict[Any, Any]):
    """A number as a 0-dim array, cached by dtype."""

    def __init__(self, backend: Backend, value: int) -> None:
        self._backend, self._value = backend, value

    def __missing__(self, dtype: Any) -> Any:
        self[dtype] = self._backend.constant(self._value, dtype)
        return self[dtype]


class Backend:
    """An array library as kernels use it. The methods here use the library's functions; subclasses override them."""

    name: str
    """The device's name in the public API."""
    library: str
    """The array library."""
    aliases = True
    """Whether views share memory and arrays can be written to."""
    namespace: Any
    """The library's NumPy-like module."""

    def __init__(self, index: int = 0) -> None:
        """``index`` is the number of the device among those of its kind."""
        self.index = index
        self._ones, self._zeros = _Constants(self, 1), _Constants(self, 0)

    @classmethod
    def devices(cls) -> list[DeviceInfo]:
        """The devices of this kind that are here. Raises any error of a library that cannot be used."""
        return [DeviceInfo(cls.name, cls.library, False, "", 0, 0)]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the {self.library} backend has no function {name!r}")

    # Where work is queued -----------------------------------------------------------------

    def make_stream(self) -> Queue:
        """Make a queue for the work of one session, which is queued there within its block, if the library has any."""
        return NOWHERE

    def placed(self) -> AbstractContextManager[Any]:
        """Run work on this device within the block, in the session's queue if there is one."""
        return NOWHERE

    # Between host and device ------------------------------------------------------------

    def upload(self, array: Any) -> Any:
        """Copy a NumPy array to an array of the library."""
        return self.namespace.array(array)

    def download(self, array: Any) -> Any:
        """Convert an array of the library to a NumPy array, which may be read-only."""
        return np.asarray(array)

    def is_out_of_memory(self, error: Exception) -> bool:
        """Whether an error of the library means that the device's memory is full."""
        return isinstance(error, MemoryError)

    # Values -----------------------------------------------------------------------------

    def number(self, array: Any) -> Any:
        """The element of a one-element array as a Python number."""
        return float(array)

    def wrapped(self, number: float, dtype: Any) -> Any:
        """A 0-dim array of a number, which wraps around if it does not fit an integer dtype."""
        return self.asarray(np.asarray(number).astype(dtype))

    def holds(self, condition: Any) -> bool:
        """Whether a condition on values holds."""
        return bool(condition)

    def select(self, condition: Any, one: Callable[[], Any], other: Callable[[], Any]) -> Any:
        """``one()`` if a condition on values holds, else ``other()``. A backend may compute both, and then choose."""
        return one() if self.holds(condition) else other()

    def is_invalid(self, condition: Any) -> bool:
        """Whether values are invalid, so that the caller raises an error.

        A GPU would have to be waited for: its backend answers False, and raises an error when values are next read.
        """
        return self.holds(condition)

    def needs_care(self, condition: Any) -> bool:
        """Whether values need the slower of two kernels. A backend may say so without looking at them."""
        return self.holds(condition)

    # Constants --------------------------------------------------------------------------

    def constant(self, value: int, dtype: Any) -> Any:
        """A 0-dim array that all sessions may read at any time."""
        return self.namespace.asarray(value, dtype)

    def one(self, array: Any) -> Any:
        """1 as a 0-dim array of the dtype of ``array``, which is faster than a Python number with small arrays."""
        return self._ones[array.dtype]

    def zero(self, array: Any) -> Any:
        """0 as a 0-dim array of the dtype of ``array``."""
        return self._zeros[array.dtype]

    # Writes -----------------------------------------------------------------------------

    def index_set(self, array: Any, index: Any, values: Any) -> Any:
        """A copy of ``array`` with ``array[index] = values``."""
        result = self.namespace.array(array, order="C")
        result[index] = values
        return result

    def index_add(self, array: Any, index: Any, values: Any) -> Any:
        """A copy of ``array`` with ``values`` added at ``index``; repeated indices add up."""
        return self.index_combine(array, index, values, "add")

    # Strides ----------------------------------------------------------------------------

    def is_contiguous(self, array: Any) -> bool:
        """Whether the elements lie in memory in row-major order, without gaps."""
        return bool(array.flags.c_contiguous)

    def reshape_view(self, array: Any, shape: Any) -> Any:
        """The array in another shape without a copy. Raises AttributeError if its strides do not allow it."""
        view = array.view()
        view.shape = shape
        return view

    def as_strided(self, array: Any, size: Any, stride: Any, offset: int) -> Any:
        """The elements of a contiguous array starting at ``offset``, ``stride`` elements apart along each dimension."""
        places = np.full(tuple(size), offset)
        for axis, (n, step) in enumerate(zip(size, stride, strict=True)):
            places += (np.arange(n) * step).reshape([-1 if axis == other else 1 for other in range(len(size))])
        return array.reshape(-1)[self.namespace.asarray(places)]

    # Windows ----------------------------------------------------------------------------

    def windows(self, array: Any, size: int, axis: int) -> Any:
        """All windows of ``size`` neighbours along ``axis``, in a new last dimension."""
        axis %= array.ndim
        starts = np.arange(array.shape[axis] - size + 1)
        places = self.namespace.asarray(starts[:, None] + np.arange(size))
        return self.namespace.moveaxis(array.take(places, axis=axis), axis + 1, -1)

    def padded(self, array: Any, padding: Any) -> Any:
        """Pad the last dimensions with ``padding`` zeros on both sides; return the array itself if all are 0."""
        if not any(padding):
            return array
        return self.namespace.pad(array, [(0, 0)] * (array.ndim - len(padding)) + [(p, p) for p in padding])

    def strided_windows(self, array: Any, sizes: Any, strides: Any, dilation: Any) -> Any:
        """All windows over the last dimensions of ``array``: (…, *places, *sizes)."""
        spans = zip(array.shape[-len(sizes) :], sizes, dilation, strides, strict=True)
        places = [(n - d * (k - 1) - 1) // s + 1 for n, k, d, s in spans]
        return array[(..., *self._window_index(places, sizes, strides, dilation))]

    def fold(self, windows: Any, sizes: Any, strides: Any, dilation: Any) -> Any:
        """Add up overlapping windows (N, C, *window, *places) at their places in an array (N, C, *sizes) of zeros."""
        ndim = len(sizes)
        window, places = windows.shape[2 : 2 + ndim], windows.shape[2 + ndim :]
        zeros = self.namespace.zeros((*windows.shape[:2], *sizes), windows.dtype)
        index = self._window_index(window, places, dilation, strides)
        return self.index_add(zeros, (slice(None), slice(None), *index), windows)

    def unpool(self, grad: Any, taps: Any, window: Any, sizes: Any, strides: Any, dilation: Any) -> Any:
        """The ``fold`` of windows that are 0 except for an element of ``grad`` (N, 1, *places) at position ``taps``."""
        places = grad.shape[2:]
        numbers = self.namespace.arange(math.prod(window)).reshape((-1, *(1,) * len(places)))
        shares = self.namespace.where(taps == numbers, grad, self.zero(grad)).reshape(
            (grad.shape[0], 1, *window, *places)
        )
        return self.fold(shares, sizes, strides, dilation)

    def _window_index(self, first: Any, second: Any, first_steps: Any, second_steps: Any) -> list[Any]:
        """The element positions in each dimension, as index arrays that broadcast to (*first, *second)."""
        ndim, index = len(first), []
        for axis, (n, m, a, b) in enumerate(zip(first, second, first_steps, second_steps, strict=True)):
            places = np.arange(n)[:, None] * a + np.arange(m) * b
            shape = [1] * (2 * ndim)
            shape[axis], shape[ndim + axis] = n, m
            index.append(self.namespace.asarray(places.reshape(shape)))
        return index

    # Functions --------------------------------------------------------------------------

    def running(self, how: str, array: Any, axis: int) -> Any:
        """The running results of the ufunc named ``how`` along ``axis``, like ``ufunc.accumulate``."""
        return getattr(self.namespace, how).accumulate(array, axis=axis)

    def sigmoid(self, array: Any) -> Any:
        """``1 / (1 + exp(-array))``."""
        one = self.one(array)
        return one / (one + self.namespace.exp(-array))

    def sigmoid_slope(self, grad: Any, output: Any) -> Any:
        """``grad`` times the derivative of the sigmoid, given its ``output``."""
        return (self.one(output) - output) * output * grad

    def tanh_slope(self, grad: Any, output: Any) -> Any:
        """``grad`` times the derivative of tanh, given its ``output``."""
        return (self.one(output) - output * output) * grad

    def normal_cdf(self, array: Any) -> Any:
        """The cumulative distribution function of the standard normal distribution."""
        return 0.5 * (1 + self.erf(array * math.sqrt(0.5)))

    def softmax(self, array: Any, axis: int) -> Any:
        """Softmax along ``axis``, without overflow."""
        shifted = array - array.max(axis=axis, keepdims=True) if math.prod(array.shape) else array
        result = self.namespace.exp(shifted)
        return result / result.sum(axis=axis, keepdims=True)

    def log_softmax(self, array: Any, axis: int) -> Any:
        """The logarithm of softmax along ``axis``, without overflow."""
        shifted = array - array.max(axis=axis, keepdims=True) if math.prod(array.shape) else array
        return shifted - self.namespace.log(self.namespace.exp(shifted).sum(axis=axis, keepdims=True))

    def matmul_like(self, like: Any, a: Any, b: Any) -> Any:
        """The matrix product; its memory layout may follow that of ``like``."""
        return self.namespace.matmul(a, b)

    def column_sums(self, matrix: Any) -> Any:
        """The sum of each column of a matrix."""
        return matrix.sum(axis=0)

    def row_sums(self, matrix: Any) -> Any:
        """The sum of each row of a matrix."""
        return matrix.sum(axis=1)

    def affine(self, own: Any, scale: Any, shift: Any = None) -> Any:
        """``own * scale + shift``; ``own`` is a temporary that may be overwritten."""
        return own * scale if shift is None else own * scale + shift
