"""Pooling: the largest element of each window, and putting elements back where they came from."""

from __future__ import annotations

import itertools
import math
from typing import Any

from ..cancellation import check_cancelled
from ..dtypes import int64, is_floating, uint8
from ..errors import InvalidOperation, NotImplementedForDType, ShapeMismatch
from ..schema.op import composite, op
from ..schema.parameters import Array, Bool, IntOrInts, Ints
from ..shapes import Shape, Spec
from .pooling_windows import Windows, count, left_out, planes_of, pooled, read_windows, single

# The largest ---------------------------------------------------------------------------------------------
#
# Which element of its window is the largest is kept as a number that counts the window's elements: in a
# byte, where a place in the input would take eight.


def _taps_dtype(kernel: Shape) -> Any:
    return uint8.numpy if math.prod(kernel) <= 256 else int64.numpy


def _largest_rule(
    input: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> list[Spec]:
    windows = Windows(kernel_size, stride, padding, dilation, ceil_mode)
    result = pooled(f"max_pool{len(kernel_size)}d", input, windows)
    return [result, Spec(result.shape, _taps_dtype(kernel_size))]


def _first_inside(xp: Any, windows: Windows, counts: Shape) -> Any:
    """The number of the first element of each window that is no padding."""
    number = xp.zeros((), int)
    for axis, n in enumerate(counts):
        starts = xp.arange(n) * windows.stride[axis] - windows.padding[axis]
        skipped = -(xp.minimum(starts, 0) // windows.dilation[axis])
        number = number[..., None] * windows.kernel[axis] + skipped
    return number


def _largest_scratch(input: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> int:
    """The bytes of a padded input, and of what a comparison of all windows makes."""
    padded = zip(input.shape[-len(kernel_size) :], kernel_size, padding, dilation, strict=True)
    sizes = [n + 2 * p + d * k for n, k, p, d in padded]
    result, taps = _largest_rule(input, kernel_size, stride, padding, dilation, ceil_mode)
    planes = planes_of(input.shape, len(kernel_size))
    return int(planes * math.prod(sizes) * input.dtype.itemsize + 4 * result.nbytes + 4 * taps.nbytes)


@op(
    _largest_rule,
    scratch=_largest_scratch,
    internal=True,
    method=False,
    outputs=("result", "taps"),
    node=lambda node: f"MaxPool{len(node.attrs['kernel_size'])}DWithIndicesBackward0",
)
def largest(
    xp: Any, input: Array, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: Bool
) -> Any:
    """The largest element of each window, and its number in the window: the first of equals, or the last NaN."""
    windows = Windows(kernel_size, stride, padding, dilation, ceil_mode)
    counts = windows.counts(input.shape[-len(kernel_size) :])
    floating = is_floating(input.dtype)
    least = -xp.inf if floating else xp.iinfo(input.dtype).min
    views = xp.strided_windows(windows.reached(xp, input, least), kernel_size, stride, dilation)
    dtype = _taps_dtype(kernel_size)
    first = _first_inside(xp, windows, counts).astype(dtype) if any(padding) else xp.zeros(counts, dtype)
    result, taps = _compared(xp, views, kernel_size, first, False)
    if floating and xp.holds(xp.isnan(result).any(), False):
        return _compared(xp, views, kernel_size, first, True)
    return result, taps


def _compared(xp: Any, views: Any, kernel: Shape, first: Any, nans: bool) -> tuple[Any, Any]:
    """The largest element of each window and its number, never less than ``first``; NaN counts as larger, on demand."""
    result = xp.ascontiguousarray(views[(..., *(0,) * len(kernel))])
    taps = xp.broadcast_to(first, result.shape)
    for number, at in enumerate(itertools.product(*map(range, kernel))):
        if not number:
            continue
        check_cancelled()
        value = xp.ascontiguousarray(views[(..., *at)])
        better = value > result
        if nans:
            better = better | xp.isnan(value)
        # Numbers only grow, so that the last one that was better is the largest.
        taps = xp.maximum(taps, better.astype(taps.dtype) * xp.asarray(number, taps.dtype))
        result = xp.maximum(result, value)
    return result, taps


def _largest_grad(
    F: Any,
    grads: Any,
    taps: Any,
    input_shape: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
) -> Any:
    """Each gradient to the element that was the largest."""
    grad, ndim = grads[0], len(kernel_size)
    windows = Windows(kernel_size, stride, padding, dilation, ceil_mode)
    if F.xp is not None:
        return _spread_back(F.xp, grad, taps, input_shape, windows)
    places = F.window_places(taps, tuple(input_shape[-ndim:]), kernel_size, stride, padding, dilation)
    flat = F.new_zeros(grad, (planes_of(input_shape, ndim), math.prod(input_shape[-ndim:])))
    rows = (flat.shape[0], math.prod(grad.shape[-ndim:]))
    return F.reshape(F.scatter_add(flat, 1, F.reshape(places, rows), F.reshape(grad, rows)), tuple(input_shape))


def _spread_back(xp: Any, grad: Any, taps: Any, input_shape: Any, windows: Windows) -> Any:
    """The same by laying the windows, zero but for one element each, over the input."""
    ndim = len(windows.kernel)
    planes, sizes, counts = planes_of(input_shape, ndim), input_shape[-ndim:], grad.shape[-ndim:]
    each = zip(sizes, windows.padding, counts, windows.stride, windows.spans, strict=True)
    full = tuple(max(n + 2 * p, (c - 1) * s + span) for n, p, c, s, span in each)
    rows = (planes, 1, *counts)
    shares = xp.reshape(grad, rows), xp.reshape(taps, rows)
    whole = xp.unpool(*shares, windows.kernel, full, windows.stride, windows.dilation)
    inner = tuple(slice(p, p + n) for p, n in zip(windows.padding, sizes, strict=True))
    return xp.reshape(whole[(slice(None), slice(None), *inner)], input_shape)


largest.derivative(input=_largest_grad)


def _places_rule(taps: Any, sizes: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any) -> Spec:
    ndim = len(sizes)
    if len(taps.shape) < ndim or any(len(numbers) != ndim for numbers in (kernel_size, stride, padding, dilation)):
        raise ShapeMismatch("window_places(): there must be one number for each of the last dimensions")
    if min((*kernel_size, 1)) < 1 or taps.dtype.kind not in "iu":
        raise ShapeMismatch("window_places(): windows must have elements, and their numbers must be integers")
    return Spec(taps.shape, int64.numpy)


@op(_places_rule, internal=True, method=False, scratch=2.0)
def window_places(
    xp: Any, taps: Array, sizes: Ints, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints
) -> Any:
    """Where in its flattened plane of ``sizes`` each window's element of that number is."""
    ndim = len(sizes)
    rest = taps.astype(int64.numpy)
    places = xp.zeros((), int64.numpy)
    below = 1
    for axis in reversed(range(ndim)):
        within = rest % kernel_size[axis] * dilation[axis]
        rest = rest // kernel_size[axis]
        starts = xp.arange(taps.shape[axis - ndim]) * stride[axis] - padding[axis]
        places = places + (within + xp.reshape(starts, (-1, *(1,) * (ndim - 1 - axis)))) * below
        below *= sizes[axis]
    return places


def _max_pool(F: Any, input: Any, windows: Windows, return_indices: bool) -> Any:
    result, taps = F.largest(input, *windows)
    if not return_indices:
        return result
    ndim = len(windows.kernel)
    return result, F.window_places(taps, tuple(input.shape[-ndim:]), *windows[:-1])


@composite(
    functional=True,
    method=False,
)
def max_pool2d(
    F: Any,
    input: Array,
    kernel_size: IntOrInts,
    stride: IntOrInts = None,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    ceil_mode: Bool = False,
    return_indices: Bool = False,
) -> Any:
    """The largest element of each window of (N, C, H, W) or (C, H, W); the gradient goes to the first of equals.

    With ``return_indices`` a pair: also each one's place in its flattened image.
    """
    windows = read_windows("max_pool2d", 2, kernel_size, stride, padding, dilation, ceil_mode)
    return _max_pool(F, input, windows, return_indices)


@composite(
    functional=True,
    method=False,
)
def max_pool3d(
    F: Any,
    input: Array,
    kernel_size: IntOrInts,
    stride: IntOrInts = None,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    ceil_mode: Bool = False,
    return_indices: Bool = False,
) -> Any:
    """The largest element of each window of (N, C, D, H, W) or (C, D, H, W), as ``max_pool2d``."""
    windows = read_windows("max_pool3d", 3, kernel_size, stride, padding, dilation, ceil_mode)
    return _max_pool(F, input, windows, return_indices)


@composite(
    functional=True,
    method=False,
)
def max_pool1d(
    F: Any,
    input: Array,
    kernel_size: IntOrInts,
    stride: IntOrInts = None,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    ceil_mode: Bool = False,
    return_indices: Bool = False,
) -> Any:
    """The largest element of each window of (N, C, L) or (C, L); the gradient goes to the first of equals."""
    shape = list(input.shape)
    if len(shape) not in (2, 3) or 0 in shape[-2:]:
        raise ShapeMismatch(
            f"max_pool1d: Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for input, "
            f"but got:{shape}"
        )
    lists = "an int, list of ints or tuple of ints of size 1 but got size {}"
    size = single(kernel_size, f"max_pool1d() kernel_size must be {lists}")
    step = single(
        left_out(stride, size),
        f"max_pool1d() stride must be None, {lists.replace('ints or', 'ints, or')}",
    )
    pad = single(padding, f"max_pool1d() padding must be {lists}")
    gap = single(dilation, f"max_pool1d() dilation must be {lists}")
    for name, number in (("kernel_size", size), ("stride", step), ("dilation", gap)):
        if number <= 0:
            raise InvalidOperation(f"max_pool1d() {name} must be greater than zero, but got {number}")
    if pad < 0:
        raise InvalidOperation(f"max_pool1d() padding must be non-negative, but got {pad}")
    if pad > size // 2:
        raise InvalidOperation(
            f"max_pool1d() padding should be at most half of kernel size, but got padding={pad} and kernel_size={size}"
        )
    windows = count(shape[-1], gap * (size - 1) + 1, step, pad, ceil_mode)
    if windows < 1:
        raise ShapeMismatch(f"max_pool1d() Invalid computed output size: {windows}")
    if not input.is_floating_point():
        raise NotImplementedForDType(f"\"max_pool1d_impl\" not implemented for '{input.dtype.kernel_name}'")
    windows_of_rows = Windows((1, size), (1, step), (0, pad), (1, gap), ceil_mode)
    pooled_rows = _max_pool(F, F.unsqueeze(input, -2), windows_of_rows, return_indices)
    return tuple(F.squeeze(x, -2) for x in pooled_rows) if return_indices else F.squeeze(pooled_rows, -2)
