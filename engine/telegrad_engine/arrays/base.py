"""Backends: an array library under NumPy's names, with methods for everything on which libraries differ.

Kernels take the backend as ``xp``. What a library has under NumPy's name and with NumPy's meaning is
taken from it; a method here is one of these: a way between the host and the device, a write (kernels
are pure), or a function for which NumPy has no name.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np


class _Constants(dict[Any, Any]):
    """A number as a 0-dim array, by dtype, made when first asked for."""

    def __init__(self, backend: Backend, value: int) -> None:
        self._backend, self._value = backend, value

    def __missing__(self, dtype: Any) -> Any:
        self[dtype] = self._backend.namespace.asarray(self._value, dtype)
        return self[dtype]


class Backend:
    """An array library as kernels see it. The methods here are in terms of the library; a subclass may know better."""

    name: str
    """The device, as users name it."""
    library: str
    """The array library."""
    aliases = True
    """Whether views share memory and arrays can be written to."""
    namespace: Any
    """The library's NumPy-like module."""

    def __init__(self) -> None:
        self._ones, self._zeros = _Constants(self, 1), _Constants(self, 0)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the {self.library} backend has no function {name!r}")

    # Between host and device ------------------------------------------------------------

    def upload(self, array: Any) -> Any:
        """A NumPy array as the library's; its memory is not used further."""
        return self.namespace.array(array)

    def download(self, array: Any) -> Any:
        """The library's array as NumPy's, maybe read-only."""
        return np.asarray(array)

    def is_out_of_memory(self, error: Exception) -> bool:
        """Whether an error of the library says that the device's memory is full."""
        return isinstance(error, MemoryError)

    # Beside JAX, which compiles programs ---------------------------------------------------

    def jax_device(self, jax: Any) -> Any:
        """JAX's name for where the arrays are. Raises Untraceable where JAX does not find that."""
        return jax.devices("cpu")[0]

    def to_jax(self, array: Any) -> Any:
        """The array as JAX's, without a copy where that can be; the executable only reads it."""
        raise NotImplementedError

    def from_jax(self, array: Any) -> Any:
        """JAX's array as the library's, which may not be written to."""
        raise NotImplementedError

    # Values -----------------------------------------------------------------------------

    def number(self, array: Any) -> Any:
        """The one element of an array as a Python number."""
        return float(array)

    def wrapped(self, number: float, dtype: Any) -> Any:
        """A 0-dim array of a number; what an integer dtype has no room for wraps around."""
        return self.asarray(np.asarray(number).astype(dtype))

    def holds(self, condition: Any, usually: bool) -> bool:
        """Whether a condition on values holds. ``usually`` is what to take for granted where they are not known yet."""
        return bool(condition)

    # Constants --------------------------------------------------------------------------

    def one(self, array: Any) -> Any:
        """1 as a 0-dim array of the dtype of ``array``: small arrays meet it in half the time of a Python number."""
        return self._ones[array.dtype]

    def zero(self, array: Any) -> Any:
        """0 as a 0-dim array of the dtype of ``array``."""
        return self._zeros[array.dtype]

    # Writes -----------------------------------------------------------------------------

    def index_set(self, array: Any, index: Any, values: Any) -> Any:
        """A copy of ``array`` with ``array[index] = values``."""
        raise NotImplementedError

    def index_add(self, array: Any, index: Any, values: Any) -> Any:
        """A copy of ``array`` with ``values`` added at ``index``; repeated indices add up."""
        raise NotImplementedError

    def index_combine(self, array: Any, index: Any, values: Any, how: str) -> Any:
        """A copy of ``array`` with ``values`` combined into it at ``index`` by the ufunc named ``how``."""
        raise NotImplementedError

    # Strides ----------------------------------------------------------------------------

    def is_contiguous(self, array: Any) -> bool:
        """Whether the elements lie in memory in row-major order, without gaps."""
        return bool(array.flags.c_contiguous)

    def reshape_view(self, array: Any, shape: Any) -> Any:
        """The array in another shape without a copy. Raises AttributeError where its strides do not allow that."""
        view = array.view()
        view.shape = shape
        return view

    def as_strided(self, array: Any, size: Any, stride: Any, offset: int) -> Any:
        """The elements of a contiguous array from ``offset`` on, ``stride`` elements apart along each dimension."""
        places = np.full(tuple(size), offset)
        for axis, (n, step) in enumerate(zip(size, stride, strict=True)):
            places += (np.arange(n) * step).reshape([-1 if axis == other else 1 for other in range(len(size))])
        return array.reshape(-1)[self.namespace.asarray(places)]

    # Windows ----------------------------------------------------------------------------

    def windows(self, array: Any, size: int, axis: int) -> Any:
        """Every ``size`` neighbours along ``axis``, in a new last dimension."""
        axis %= array.ndim
        starts = np.arange(array.shape[axis] - size + 1)
        places = self.namespace.asarray(starts[:, None] + np.arange(size))
        return self.namespace.moveaxis(array.take(places, axis=axis), axis + 1, -1)

    def padded(self, array: Any, padding: Any) -> Any:
        """The array with as many zeros before and after each of the last dimensions; itself where there are none."""
        if not any(padding):
            return array
        return self.namespace.pad(array, [(0, 0)] * (array.ndim - len(padding)) + [(p, p) for p in padding])

    def strided_windows(self, array: Any, sizes: Any, strides: Any, dilation: Any) -> Any:
        """All windows over the last dimensions of ``array``: (…, *places, *sizes)."""
        spans = zip(array.shape[-len(sizes) :], sizes, dilation, strides, strict=True)
        places = [(n - d * (k - 1) - 1) // s + 1 for n, k, d, s in spans]
        return array[(..., *self._window_index(places, sizes, strides, dilation))]

    def fold(self, windows: Any, sizes: Any, strides: Any, dilation: Any) -> Any:
        """The sums of what overlaps when windows (N, C, *window, *places) are laid over zeros of ``sizes``."""
        ndim = len(sizes)
        window, places = windows.shape[2 : 2 + ndim], windows.shape[2 + ndim :]
        zeros = self.namespace.zeros((*windows.shape[:2], *sizes), windows.dtype)
        index = self._window_index(window, places, dilation, strides)
        return self.index_add(zeros, (slice(None), slice(None), *index), windows)

    def unpool(self, grad: Any, taps: Any, window: Any, sizes: Any, strides: Any, dilation: Any) -> Any:
        """What ``fold`` gives for windows that hold one element of ``grad`` (N, 1, *places) each, at ``taps``."""
        places = grad.shape[2:]
        numbers = self.namespace.arange(math.prod(window)).reshape((-1, *(1,) * len(places)))
        shares = ((taps == numbers) * grad).reshape((grad.shape[0], 1, *window, *places))
        return self.fold(shares, sizes, strides, dilation)

    def _window_index(self, first: Any, second: Any, first_steps: Any, second_steps: Any) -> list[Any]:
        """For each dimension where its elements are, as indices that broadcast to (*first, *second)."""
        ndim, index = len(first), []
        for axis, (n, m, a, b) in enumerate(zip(first, second, first_steps, second_steps, strict=True)):
            places = np.arange(n)[:, None] * a + np.arange(m) * b
            shape = [1] * (2 * ndim)
            shape[axis], shape[ndim + axis] = n, m
            index.append(self.namespace.asarray(places.reshape(shape)))
        return index

    # Functions --------------------------------------------------------------------------

    def running(self, how: str, array: Any, axis: int) -> Any:
        """What the ufunc named ``how`` makes of each element and all before it along ``axis``."""
        return getattr(self.namespace, how).accumulate(array, axis=axis)

    def sigmoid(self, array: Any) -> Any:
        """``1 / (1 + exp(-array))``."""
        one = self.one(array)
        return one / (one + self.namespace.exp(-array))

    def sigmoid_slope(self, grad: Any, output: Any) -> Any:
        """``grad`` times the slope of the sigmoid where it is ``output``."""
        return (self.one(output) - output) * output * grad

    def tanh_slope(self, grad: Any, output: Any) -> Any:
        """``grad`` times the slope of tanh where it is ``output``."""
        return (self.one(output) - output * output) * grad

    def normal_cdf(self, array: Any) -> Any:
        """How likely a number drawn from the normal distribution is below each element."""
        return 0.5 * (1 + self.erf(array * math.sqrt(0.5)))

    def softmax(self, array: Any, axis: int) -> Any:
        """Softmax without overflow."""
        shifted = array - array.max(axis=axis, keepdims=True) if math.prod(array.shape) else array
        result = self.namespace.exp(shifted)
        return result / result.sum(axis=axis, keepdims=True)

    def log_softmax(self, array: Any, axis: int) -> Any:
        """The logarithm of ``softmax``, likewise."""
        shifted = array - array.max(axis=axis, keepdims=True) if math.prod(array.shape) else array
        return shifted - self.namespace.log(self.namespace.exp(shifted).sum(axis=axis, keepdims=True))

    def matmul_like(self, like: Any, a: Any, b: Any) -> Any:
        """The matrix product, its dimensions in memory in the order of those of ``like`` where that may help."""
        return self.namespace.matmul(a, b)

    def column_sums(self, matrix: Any) -> Any:
        """The sums over the rows of a matrix, one for each column."""
        return matrix.sum(axis=0)

    def row_sums(self, matrix: Any) -> Any:
        """The sums over the columns of a matrix, one for each row."""
        return matrix.sum(axis=1)

    def affine(self, own: Any, scale: Any, shift: Any = None) -> Any:
        """``own * scale + shift``; ``own`` is a temporary of the caller's."""
        return own * scale if shift is None else own * scale + shift
