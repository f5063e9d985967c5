"""The default backend: NumPy, with SciPy where NumPy has no kernel."""

from __future__ import annotations

import math
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from ..errors import InvalidOperation
from ..shapes import check_strided
from . import blocked_matmul
from .base import Backend

MAX_ONES = 4096
"""The maximum length of sums computed as a product with ones; NumPy's pairwise sums of longer ones are more exact."""

LONG_SLICE = 256
"""The minimum number of elements per slice for which combining whole slices is faster than single elements."""


BITS: dict[Any, Any] = {np.dtype(f"f{size}"): np.dtype(f"i{size}") for size in (2, 4, 8)}
"""The integer dtypes by whose products with 0 and 1 floating arrays are masked."""

SPECIAL = {"digamma": "psi", "erf": "erf", "erfc": "erfc", "erfinv": "erfinv"}
"""The special functions of one array that SciPy and CuPy compute, and their names there. They replace NumPy's own."""

LONGEST_STEP = 2**63 - 1
"""The largest stride of a NumPy array in bytes."""


class NumpyBackend(Backend):
    """NumPy's namespace plus functional forms of indexed writes."""

    name = "cpu"
    library = "numpy"
    namespace = np

    def __init__(self) -> None:
        super().__init__()
        # Plain attributes, so that lookups on the hot path do not go through __getattr__. Modules that NumPy imports
        # lazily, such as np.testing, are left out.
        for name in np.__all__:
            if not hasattr(type(self), name) and name in vars(np):
                self.__dict__[name] = getattr(np, name)
        self.__dict__["dot"] = blocked_matmul.dot_whole
        self.__dict__ |= {name: partial(_special, scipys) for name, scipys in SPECIAL.items()}
        # Vectors of ones for sums, by dtype: a product by BLAS is several times faster than NumPy's own loops.
        self._weights = {np.dtype(kind): np.ones(MAX_ONES, kind) for kind in (np.float32, np.float64)}

    def multiply_in_pieces(self) -> None:
        """Compute ``dot`` in blocks from now on, in a process with one BLAS thread."""
        self.__dict__["dot"] = blocked_matmul.dot_in_blocks

    # Functional writes -------------------------------------------------------------------

    def index_combine(self, array: Any, index: Any, values: Any, how: str) -> Any:
        """A copy of ``array`` with ``values`` combined into it at ``index`` by the ufunc named ``how``."""
        result = np.array(array, order="C")
        axis = _one_line(index)
        if axis is not None and index[axis].size * LONG_SLICE <= np.size(values):
            return _combine_slices(result, axis, index[axis], np.asarray(values, result.dtype), getattr(np, how))
        # ufunc.at is fast only with indices into a one-dimensional array.
        places = np.arange(result.size).reshape(result.shape)[index]
        added = np.broadcast_to(np.asarray(values, result.dtype), places.shape)
        getattr(np, how).at(result.reshape(-1), places.reshape(-1), added.reshape(-1))
        return result

    def windows(self, array: Any, size: int, axis: int) -> Any:
        """A writeable view of all windows of ``size`` neighbours along ``axis``, in a new last dimension."""
        return np.lib.stride_tricks.sliding_window_view(array, size, axis=axis, writeable=True)

    def as_strided(self, array: Any, size: Any, stride: Any, offset: int) -> Any:
        """A view of the elements starting at ``offset``, ``stride`` elements apart along each dimension.

        Raises ShapeMismatch if the view exceeds the array's memory, which NumPy does not check.
        """
        check_strided(array.shape, array.itemsize, size, stride, offset)
        # The strides of empty arrays and of dimensions of one element are unused, and may not fit an int64.
        steps = [step * array.itemsize if n > 1 else 0 for n, step in zip(size, stride, strict=True)]
        if 0 in size and max(steps) > LONGEST_STEP:
            steps = [0] * len(steps)
        return np.lib.stride_tricks.as_strided(array.reshape(-1)[offset:], size, steps)

    def padded(self, array: Any, padding: Any) -> Any:
        """Pad the last dimensions with ``padding`` zeros on both sides; return the array itself if all are 0."""
        if not any(padding):
            return array
        lead = array.ndim - len(padding)
        sizes = [n + 2 * p for n, p in zip(array.shape[lead:], padding, strict=True)]
        result = np.zeros((*array.shape[:lead], *sizes), array.dtype)
        inner: Any = (..., *[slice(p, n - p) for p, n in zip(padding, sizes, strict=True)])
        result[inner] = array
        return result

    def strided_windows(self, array: Any, sizes: Any, strides: Any, dilation: Any) -> Any:
        """A view of all windows over the last dimensions of ``array``: (…, *places, *sizes)."""
        lead = array.ndim - len(sizes)
        if min((*strides, *dilation), default=1) < 1:  # NumPy does not check the view, and a snapshot may say anything
            raise ValueError(f"windows have strides {strides} and dilation {dilation}")
        each = zip(array.shape[lead:], sizes, strides, dilation, strict=True)
        places = tuple([(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in each])
        if min(places, default=1) < 1 or min(sizes, default=1) < 1:
            raise ValueError(f"windows of {sizes} are larger than the array, {array.shape}")
        # The stride of a dimension of one element is unused, and may not fit an int64.
        steps = array.strides[lead:]
        between = [step * s if n > 1 else 0 for step, s, n in zip(steps, strides, places, strict=True)]
        within = [step * d if n > 1 else 0 for step, d, n in zip(steps, dilation, sizes, strict=True)]
        # sliding_window_view would take as long as a small convolution.
        return np.lib.stride_tricks.as_strided(
            array, (*array.shape[:lead], *places, *sizes), (*array.strides[:lead], *between, *within), writeable=False
        )

    def fold(self, windows: Any, sizes: Any, strides: Any, dilation: Any) -> Any:
        """Add up overlapping windows (N, C, *window, *places) at their places in an array (N, C, *sizes) of zeros."""
        ndim = len(sizes)
        window, places = windows.shape[2 : 2 + ndim], windows.shape[2 + ndim :]
        if math.prod(window) > math.prod(places):
            # Swap windows and places, so that the loop is over the smaller number.
            order = (0, 1, *range(2 + ndim, 2 + 2 * ndim), *range(2, 2 + ndim))
            return self.fold(windows.transpose(order), sizes, dilation, strides)
        result = np.zeros((*windows.shape[:2], *sizes), windows.dtype)
        for at in np.ndindex(*window):
            starts = [i * d for i, d in zip(at, dilation, strict=True)]
            each = zip(starts, places, strides, strict=True)
            spots: Any = (..., *[slice(b, b + (n - 1) * s + 1, s) for b, n, s in each])
            result[spots] += windows[(slice(None), slice(None), *at)]
        return result

    def unpool(self, grad: Any, taps: Any, window: Any, sizes: Any, strides: Any, dilation: Any) -> Any:
        """The ``fold`` of windows that are 0 except for an element of ``grad`` (N, 1, *places) at position ``taps``."""
        result = np.zeros((*grad.shape[:2], *sizes), grad.dtype)
        places = grad.shape[2:]
        apart = all(s >= d * (k - 1) + 1 for s, k, d in zip(strides, window, dilation, strict=True))
        for number, at in enumerate(np.ndindex(*window)):
            each = zip(at, dilation, places, strides, strict=True)
            spots: Any = (..., *[slice(i * d, i * d + (n - 1) * s + 1, s) for i, d, n, s in each])
            if apart:
                result[spots] = self.where(taps == number, grad, 0)
            else:
                result[spots] += self.where(taps == number, grad, 0)
        return result

    def matmul_like(self, like: Any, a: Any, b: Any) -> Any:
        """The matrix product, with the memory layout of ``like``, which has the same number of dimensions."""
        shape = (*a.shape[:-1], b.shape[-1])
        return np.matmul(a, b, out=np.empty_like(like, shape=shape))

    def column_sums(self, matrix: Any) -> Any:
        """The sum of each column of a matrix."""
        ones, n = self._weights.get(matrix.dtype), len(matrix)
        return np.add.reduce(matrix, 0) if ones is None or n > MAX_ONES else np.dot(ones[:n], matrix)

    def row_sums(self, matrix: Any) -> Any:
        """The sum of each row of a matrix."""
        ones, n = self._weights.get(matrix.dtype), matrix.shape[1]
        return np.add.reduce(matrix, 1) if ones is None or n > MAX_ONES else np.dot(matrix, ones[:n])

    def where(self, condition: Any, *choices: Any) -> Any:
        """``np.where``. Where a choice is 0, its result is a product of bits."""
        # np.where, which has a branch for each element, takes 17 times as long with a random mask of 256x256 float32.
        if len(choices) == 2:
            array, other = choices
            if _is_zero(array):
                condition, array, other = np.logical_not(condition), other, array
            bits = BITS.get(getattr(array, "dtype", None)) if _is_zero(other) else None
            if bits is not None and getattr(condition, "dtype", None) == np.bool_:
                own = _empty_for(array, condition)
                np.multiply(array.view(bits), condition, out=own.view(bits))
                return own
            choices = array, other
        return np.where(condition, *choices)

    def affine(self, own: Any, scale: Any, shift: Any = None) -> Any:
        """``own * scale + shift``, computed in ``own``, a temporary that is overwritten."""
        np.multiply(own, scale, out=own)
        return own if shift is None else np.add(own, shift, out=own)

    def sigmoid(self, array: Any) -> Any:
        """``1 / (1 + exp(-array))``, with one temporary array."""
        if not array.ndim:
            return super().sigmoid(array)
        one, own = self._ones[array.dtype], np.negative(array)
        np.exp(own, out=own)
        np.add(own, one, out=own)
        return np.divide(one, own, out=own)

    def sigmoid_slope(self, grad: Any, output: Any) -> Any:
        """``grad`` times the derivative of the sigmoid, given its ``output``, with one temporary array."""
        if not output.ndim or grad.dtype is not output.dtype or grad.shape != output.shape:
            return super().sigmoid_slope(grad, output)
        own = np.subtract(self._ones[output.dtype], output)
        np.multiply(own, output, out=own)
        return np.multiply(own, grad, out=own)

    def tanh_slope(self, grad: Any, output: Any) -> Any:
        """``grad`` times the derivative of tanh, given its ``output``, with one temporary array."""
        if not output.ndim or grad.dtype is not output.dtype or grad.shape != output.shape:
            return super().tanh_slope(grad, output)
        own = np.multiply(output, output)
        np.subtract(self._ones[output.dtype], own, out=own)
        return np.multiply(own, grad, out=own)

    def normal_cdf(self, array: Any) -> Any:
        """The cumulative distribution function of the standard normal distribution, to 1.2e-7 in float32."""
        return _normal_cdf32(array) if array.dtype == np.float32 else super().normal_cdf(array)

    def softmax(self, array: Any, axis: int) -> Any:
        """Softmax along ``axis``, without overflow and with few temporaries."""
        if not array.size:
            return np.array(array)
        result = np.exp(_within(64, array, axis))
        return np.divide(result, self._sums(result, axis), out=result)

    def log_softmax(self, array: Any, axis: int) -> Any:
        """The logarithm of softmax along ``axis``, without overflow."""
        if not array.size:
            return np.array(array)
        small = _within(16, array, axis)
        return small - np.log(self._sums(np.exp(small), axis))

    def _sums(self, array: Any, axis: int) -> Any:
        """The sums along ``axis``, which is kept with size 1."""
        if axis % array.ndim != array.ndim - 1 or not array.flags.c_contiguous:
            return array.sum(axis=axis, keepdims=True)
        return self.row_sums(array.reshape(-1, array.shape[-1])).reshape(*array.shape[:-1], 1)

    # Linear algebra, where NumPy has no kernel ------------------------------------------------

    def zero_pivot(self, matrix: Any) -> int:
        """The position, counted from 1, of the first zero on the diagonal of the LU decomposition; 0 if none."""
        (getrf,) = _scipy("linalg").get_lapack_funcs(("getrf",), (matrix,))
        return int(getrf(matrix)[2])

    def solve_triangular(self, a: Any, b: Any, upper: bool, unit: bool) -> Any:
        """The solutions of ``a @ x = b`` for batches of triangular matrices; a zero pivot gives infinities."""
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = (np.broadcast_to(x, batch + x.shape[-2:]) for x in (a, b))
        result = np.empty(b.shape, b.dtype)
        if result.size:
            (trsm,) = _scipy("linalg").get_blas_funcs(("trsm",), (a, b))
            for at in np.ndindex(*batch):
                result[at] = trsm(1.0, a[at], b[at], lower=not upper, diag=unit)
        return result

    # Special functions, which SciPy has; for those of ``SPECIAL`` see ``__init__`` ----------

    def lgamma(self, array: Any) -> Any:
        """The logarithm of the gamma function's magnitude."""
        return _special("gammaln", np.where(np.isneginf(array), -array, array))

    def polygamma(self, order: int, array: Any) -> Any:
        """The ``order``-th derivative of ``digamma``."""
        return _special("polygamma", array, order)


def _is_zero(value: Any) -> bool:
    """Whether this is the number 0, but not -0.0 or an array."""
    return type(value) in (int, float) and value == 0 and math.copysign(1, value) > 0


def _empty_for(array: Any, other: Any) -> Any:
    """A new array for a result of both, with the memory layout of ``array`` if the shapes are equal."""
    if array.shape == other.shape:
        # The order of a broadcast array's strides would be no layout to copy.
        return np.empty(array.shape, array.dtype) if 0 in array.strides else np.empty_like(array, subok=False)
    return np.empty(np.broadcast_shapes(array.shape, other.shape), array.dtype)


def _one_line(index: Any) -> int | None:
    """The dimension that a vector of integers indexes if the others are whole slices; None for other indices."""
    if not isinstance(index, tuple):
        return None
    axes = [axis for axis, part in enumerate(index) if not (isinstance(part, slice) and part == slice(None))]
    return axes[0] if len(axes) == 1 and np.ndim(index[axes[0]]) == 1 and index[axes[0]].dtype.kind in "iu" else None


def _combine_slices(result: Any, axis: int, places: Any, values: Any, combine: Any) -> Any:
    """Combine the slices of ``values`` along ``axis`` into ``result`` at ``places``, one after another."""
    shape = (*result.shape[:axis], places.size, *result.shape[axis + 1 :])
    slices = np.moveaxis(result, axis, 0)
    for place, part in zip(places.tolist(), np.moveaxis(np.broadcast_to(values, shape), axis, 0), strict=True):
        combine(slices[place], part, out=slices[place])
    return result


def _within(bound: int, array: Any, axis: int) -> Any:
    """Shift each slice along ``axis`` by a constant if the exponentials might overflow or all underflow."""
    # One maximum for all slices is several times faster than one per slice, but a wide range would lose precision.
    most, least = array.max(), array.min()
    if -bound < least and most < bound:
        return array
    return array - (most if most - least < bound else array.max(axis=axis, keepdims=True))


NORMAL_CDF = tuple(
    np.float32(c)
    for c in (
        *(0.7978845834732056, 0.03633427992463112, -3.365811789990403e-05, -5.49211872566957e-05),
        *(3.901499894709559e-06, -1.276300167774025e-07, 1.6348548070865832e-09),
    )
)
"""A polynomial p with tanh(x * p(x ** 2)) = erf(x / sqrt(2)) to 8e-8, by Lawson's method for x ** 2 below 32."""


def _normal_cdf32(array: Any) -> Any:
    """Compute ``(1 + erf(x / sqrt(2))) / 2`` with tanh, which NumPy vectorizes.

    SciPy's erf, which computes element by element in float64, takes eight times as long.
    """
    lowest, *inner, highest = NORMAL_CDF
    squares = np.square(array, out=np.empty(array.shape, array.dtype))
    np.minimum(squares, np.float32(32), out=squares)  # above this, tanh is 1
    own = np.multiply(squares, highest, out=np.empty(array.shape, array.dtype))
    for coefficient in inner[::-1]:
        np.add(own, coefficient, out=own)
        np.multiply(own, squares, out=own)
    np.add(own, lowest, out=own)
    np.multiply(own, array, out=own)
    np.tanh(own, out=own)
    np.add(own, np.float32(1), out=own)
    return np.multiply(own, np.float32(0.5), out=own)


def _scipy(module: str) -> Any:
    """Import a module of SciPy, for kernels that NumPy lacks. Raises InvalidOperation if SciPy is not installed."""
    try:
        return import_module(f"scipy.{module}")
    except ImportError:
        raise InvalidOperation(
            "this op needs SciPy, which is not installed here: install telegrad[local], or connect to a server"
        ) from None


def _special(name: str, array: Any, *leading: Any) -> Any:
    """Apply a SciPy function and return the array's dtype; SciPy does not support bfloat16 and widens some dtypes."""
    wide = array if array.dtype.itemsize >= 4 else array.astype(np.float32)
    return getattr(_scipy("special"), name)(*leading, wide).astype(array.dtype, copy=False)


NUMPY = NumpyBackend()
