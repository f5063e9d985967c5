"""Max pooling, adaptive max pooling, and unpooling."""

from __future__ import annotations

import itertools
import math
from typing import Any

from ...cancellation import check_cancelled
from ...dtypes import int64, is_floating, uint8
from ...errors import DTypeMismatch, IndexOutOfBounds, IndexOutOfRange, InvalidOperation, InvalidValue, ShapeMismatch
from ...schema.declaration import FUNCTION, INTERNAL, NN_FUNCTION, named, scratch
from ...schema.op import Op, composite, op
from ...schema.parameters import Array, Bool, IntOrInts, Ints, OptionalInts, Sizes
from ...schema.promotion import FLOAT32_ON_CPU, UNCAST
from ...shapes import Shape, Spec
from ..batching import nn_rules
from ..guards import check_floats, kernel_name
from .pooling_windows import (
    INPUTS,
    Windows,
    adaptive_bounds,
    check_not_empty,
    check_signal,
    left_out,
    planes_of,
    pooled,
    read_windows,
    single,
    sizes_of,
)


def _taps_dtype(kernel: Shape) -> Any:
    return uint8.numpy if math.prod(kernel) <= 256 else int64.numpy


def _largest_rule(
    input: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> list[Spec]:
    windows = Windows(kernel_size, stride, padding, dilation, ceil_mode)
    result = pooled(f"max_pool{len(kernel_size)}d", input, windows)
    return [result, Spec(result.shape, _taps_dtype(kernel_size))]


def _first_inside(xp: Any, windows: Windows, counts: Shape) -> Any:
    """The number, in each window, of the first element that is not padding."""
    number = xp.zeros((), int)
    for axis, n in enumerate(counts):
        starts = xp.arange(n) * windows.stride[axis] - windows.padding[axis]
        skipped = -(xp.minimum(starts, 0) // windows.dilation[axis])
        number = number[..., None] * windows.kernel_size[axis] + skipped
    return number


def _largest_scratch(input: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> int:
    """The scratch bytes: a padded input, and a comparison over all windows."""
    padded = zip(input.shape[-len(kernel_size) :], kernel_size, padding, dilation, strict=True)
    sizes = [n + 2 * p + d * k for n, k, p, d in padded]
    result, taps = _largest_rule(input, kernel_size, stride, padding, dilation, ceil_mode)
    planes = planes_of(input.shape, len(kernel_size))
    return int(planes * math.prod(sizes) * input.dtype.itemsize + 4 * result.nbytes + 4 * taps.nbytes)


@op(
    _largest_rule,
    variants=INTERNAL,
    node=lambda node: f"MaxPool{len(node.attrs['kernel_size'])}DWithIndicesBackward0",
    results=named("result", "taps"),
    memory=scratch(_largest_scratch),
    batching=nn_rules.pooled,
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
    if floating and xp.needs_care(xp.isnan(result).any()):
        return _compared(xp, views, kernel_size, first, True)
    return result, taps


def _compared(xp: Any, views: Any, kernel: Shape, first: Any, nans: bool) -> tuple[Any, Any]:
    """The largest element of each window and its number, at least ``first``; with ``nans``, NaN is the largest."""
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
        # Numbers increase, so the last better element is the largest.
        taps = xp.maximum(taps, better.astype(taps.dtype) * xp.asarray(number, taps.dtype))
        result = xp.maximum(result, value)
    return result, taps


def _largest_grad(
    F: Any, grads: Any, taps: Any, input_shape: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any
) -> Any:
    """Route each gradient to the element that was the largest."""
    grad, ndim = grads[0], len(kernel_size)
    if F.xp is not None:
        return _spread_back(F.xp, grad, taps, input_shape, Windows(kernel_size, stride, padding, dilation))
    places = F.window_places(taps, tuple(input_shape[-ndim:]), kernel_size, stride, padding, dilation)
    return _add_at_places(F, grad, places, input_shape, ndim)


def _add_at_places(F: Any, grad: Any, places: Any, input_shape: Any, ndim: int) -> Any:
    """Return zeros of the input's shape with each gradient added at its place in the flattened plane."""
    planes = planes_of(input_shape, ndim)
    flat = F.new_zeros(grad, (planes, math.prod(input_shape[-ndim:])))
    rows = (planes, math.prod(grad.shape[-ndim:]))
    return F.reshape(F.scatter_add(flat, 1, F.reshape(places, rows), F.reshape(grad, rows)), tuple(input_shape))


def _spread_back(xp: Any, grad: Any, taps: Any, input_shape: Any, windows: Windows) -> Any:
    """``_largest_grad`` on arrays: unpool each gradient to its element, adding up where windows overlap."""
    ndim = len(windows.kernel_size)
    planes, sizes, counts = planes_of(input_shape, ndim), input_shape[-ndim:], grad.shape[-ndim:]
    each = zip(sizes, windows.padding, counts, windows.stride, windows.spans, strict=True)
    full = tuple(max(n + 2 * p, (c - 1) * s + span) for n, p, c, s, span in each)
    rows = (planes, 1, *counts)
    shares = xp.reshape(grad, rows), xp.reshape(taps, rows)
    whole = xp.unpool(*shares, windows.kernel_size, full, windows.stride, windows.dilation)
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


@op(_places_rule, variants=INTERNAL, memory=scratch(2.0))
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
    ndim = len(windows.kernel_size)
    return result, F.window_places(taps, tuple(input.shape[-ndim:]), *windows[:-1])


def _signal_windows(input: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Windows:
    """The windows of ``max_pool1d``, with signals as rows of images; raises where torch does."""
    shape = list(input.shape)
    if len(shape) not in (2, 3) or 0 in shape[-2:]:
        raise ShapeMismatch(
            f"max_pool1d: Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for input, "
            f"but got:{shape}"
        )
    lists = "an int, list of ints or tuple of ints of size 1 but got size {}"
    size = single(kernel_size, f"max_pool1d() kernel_size must be {lists}")
    step = single(left_out(stride, size), f"max_pool1d() stride must be None, {lists.replace('ints or', 'ints, or')}")
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
    windows = Windows((1, size), (1, step), (0, pad), (1, gap), ceil_mode)
    _, count = windows.counts((1, shape[-1]))
    if count < 1:
        raise ShapeMismatch(f"max_pool1d() Invalid computed output size: {count}")
    check_floats("max_pool1d_impl", input)
    return windows


def _declare_max_pool(ndim: int, doc: str) -> Op:
    def max_pool(
        F: Any,
        input: Array,
        kernel_size: IntOrInts,
        stride: IntOrInts = None,
        padding: IntOrInts = 0,
        dilation: IntOrInts = 1,
        ceil_mode: Bool = False,
        return_indices: Bool = False,
    ) -> Any:
        numbers = (kernel_size, stride, padding, dilation, ceil_mode)
        if ndim > 1:
            return _max_pool(F, input, read_windows(f"max_pool{ndim}d", ndim, *numbers), return_indices)
        windows = _signal_windows(input, *numbers)
        rows = _max_pool(F, F.unsqueeze(input, -2), windows, return_indices)
        return tuple(F.squeeze(x, -2) for x in rows) if return_indices else F.squeeze(rows, -2)

    max_pool.__doc__ = f"The largest element of each window of {INPUTS[ndim]}{doc}"
    return composite(
        key=f"max_pool{ndim}d", variants=FUNCTION | NN_FUNCTION, autocast=FLOAT32_ON_CPU if ndim == 3 else UNCAST
    )(max_pool)


_declare_max_pool(
    2,
    """; the gradient goes to the first of equals.

    With ``return_indices`` a pair: also each one's place in its flattened image.
    """,
)
_declare_max_pool(3, ", as ``max_pool2d``.")
_declare_max_pool(1, "; the gradient goes to the first of equals.")


# Adaptive max pooling ------------------------------------------------------------------------------------

KERNELS = {2: "adaptive_max_pool2d", 3: "adaptive_max_pool3d_cpu"}


def _adaptive_rule(input: Any, output_size: Any) -> list[Spec]:
    ndim, shape = len(output_size), list(input.shape)
    if ndim not in KERNELS:
        raise ShapeMismatch(f"adaptive_max_pool: output_size must be 1 to 3 numbers, but got {list(output_size)}")
    name = f"adaptive_max_pool{ndim}d"
    if len(shape) not in (ndim + 1, ndim + 2):
        raise ShapeMismatch(f"{name}(): Expected {ndim + 1}D or {ndim + 2}D tensor, but got: {shape}")
    check_not_empty(name, shape)
    result = (*shape[:-ndim], *output_size)
    negative = next((n for n in output_size if n < 0), None)
    if negative is not None:
        raise InvalidOperation(f"Trying to create tensor with negative dimension {negative}: {list(result)}")
    check_floats(KERNELS[ndim], input)
    return [Spec(result, input.dtype), Spec(result, int64.numpy)]


def _members(xp: Any, n: int, count: int) -> Any:
    """The elements of each of ``count`` windows; the last one is repeated so that all windows have the same length."""
    starts, ends = adaptive_bounds(xp, n, count)
    return xp.minimum(starts + xp.arange(-(-n // max(count, 1)) + 1), ends - 1)


@op(
    _adaptive_rule,
    variants=INTERNAL,
    node=lambda node: f"AdaptiveMaxPool{len(node.attrs['output_size'])}DBackward0",
    results=named("result", "indices"),
    memory=scratch(8.0),
    batching=nn_rules.pooled,
)
def adaptive_largest(xp: Any, input: Array, output_size: Ints) -> Any:
    """The largest element of each window, the first of equals or the last NaN, and its place in its flattened plane."""
    ndim = len(output_size)
    result, sizes = (*input.shape[:-ndim], *output_size), input.shape[-ndim:]
    if not math.prod(result):
        return xp.zeros(result, input.dtype), xp.zeros(result, int64.numpy)
    places: Any = 0
    for axis, (n, windows) in enumerate(zip(sizes, output_size, strict=True)):
        members = _members(xp, n, windows)
        beside = [1] * (2 * ndim)
        beside[axis], beside[ndim + axis] = members.shape
        places = places * n + xp.reshape(members, beside)
    places = xp.reshape(places, (*output_size, -1))
    windows = xp.reshape(input, (planes_of(input.shape, ndim), -1))[:, places]
    taps = xp.argmax(windows, axis=-1)
    nans = xp.isnan(windows)
    if xp.needs_care(nans.any()):
        last = nans.shape[-1] - 1 - xp.argmax(nans[..., ::-1], axis=-1)
        taps = xp.where(xp.any(nans, axis=-1), last, taps)
    taps = taps[..., None]
    found = xp.take_along_axis(windows, taps, axis=-1)
    indices = xp.take_along_axis(xp.broadcast_to(places, windows.shape), taps, axis=-1)
    return xp.reshape(found, result), xp.reshape(indices, result).astype(int64.numpy)


adaptive_largest.derivative(
    input=lambda F, grads, indices, input_shape, output_size: _add_at_places(
        F, grads[0], indices, input_shape, len(output_size)
    )
)


def _adaptive(F: Any, ndim: int, input: Any, output_size: Any, return_indices: bool) -> Any:
    sizes = sizes_of(input, output_size, ndim)
    if len(sizes) != ndim:
        raise ShapeMismatch(f"adaptive_max_pool{ndim}d(): internal error: output_size.size() must be {ndim}")
    pair = F.adaptive_largest(input, sizes)
    return tuple(pair) if return_indices else pair[0]


@composite(variants=NN_FUNCTION)
def adaptive_max_pool1d(F: Any, input: Array, output_size: IntOrInts, return_indices: Bool = False) -> Any:
    """The largest elements of ``output_size`` windows that cover each of (N, C, L) or (C, L)."""
    check_signal("adaptive_max_pool1d", input)
    size = single(output_size, "adaptive_max_pool1d() argument 'output_size' should contain one int (got {})")
    check_not_empty("adaptive_max_pool1d", tuple(input.shape))
    result, indices = (F.squeeze(x, -2) for x in F.adaptive_largest(F.unsqueeze(input, -2), (1, size)))
    return (result, indices) if return_indices else result


@composite(variants=NN_FUNCTION)
def adaptive_max_pool2d(F: Any, input: Array, output_size: Sizes, return_indices: Bool = False) -> Any:
    """The largest elements of a grid of ``output_size`` windows that cover each of (N, C, H, W) or (C, H, W).

    With ``return_indices``, a pair of the elements and their places in the flattened images.
    """
    return _adaptive(F, 2, input, output_size, return_indices)


@composite(variants=NN_FUNCTION, autocast=FLOAT32_ON_CPU)
def adaptive_max_pool3d(F: Any, input: Array, output_size: Sizes, return_indices: Bool = False) -> Any:
    """The largest elements of a grid of ``output_size`` windows that cover each of (N, C, D, H, W) or (C, D, H, W)."""
    return _adaptive(F, 3, input, output_size, return_indices)


# Max unpooling: each element goes where the pooling found it; the rest is zero ---------------------------

UNPOOLING_KERNELS = {2: "max_unpool2d", 3: "max_unpooling3d"}


def _unpooled_rule(input: Any, indices: Any, sizes: Any) -> Spec:
    ndim, shape = len(sizes), list(input.shape)
    if ndim not in UNPOOLING_KERNELS:
        raise ShapeMismatch(f"max_unpooling: output_size must be 2 or 3 numbers, but got {list(sizes)}")
    if len(shape) not in (ndim + 1, ndim + 2):
        raise ShapeMismatch(
            f"Input to max_unpooling{ndim}d should be a {ndim + 1}d or {ndim + 2}d Tensor, but got a tensor with "
            f"{len(shape)} dimensions."
        )
    if indices.dtype != int64.numpy:
        raise DTypeMismatch(f"elements in indices should be type int64 but got: {kernel_name(indices)}")
    if list(indices.shape) != shape:
        raise ShapeMismatch(
            f"Expected shape of indices to be same as that of the input tensor ({shape}) but got indices tensor with "
            f"shape: {list(indices.shape)}"
        )
    if 0 in shape[1:]:
        raise ShapeMismatch(
            f"max_unpooling{ndim}d_forward_out_cpu(): Expected input to have non-zero size for non-batch dimensions, "
            f"but got {shape} with dimension {shape.index(0, 1)} being empty."
        )
    if math.prod(shape):
        check_floats(UNPOOLING_KERNELS[ndim], input)
    return Spec((*shape[:-ndim], *sizes), input.dtype)


@op(
    _unpooled_rule,
    variants=INTERNAL,
    node=lambda node: f"MaxUnpool{len(node.attrs['sizes'])}DBackward0",
    memory=scratch(2.0),
    may_raise=True,
    batching=nn_rules.unpooled,
)
def unpooled(xp: Any, input: Array, indices: Array, sizes: Ints) -> Any:
    """Zeros of ``sizes`` with the elements of each plane where ``indices`` say."""
    ndim, room = len(sizes), math.prod(sizes)
    planes, count = planes_of(input.shape, ndim), math.prod(input.shape[-ndim:])
    if indices.size:
        least, largest = int(indices.min()), int(indices.max())
        if least < 0 or largest >= room:
            wrong, size = largest if largest >= room else least, "x".join(map(str, sizes))
            raise IndexOutOfBounds(f"Found an invalid max index: {wrong} (output volumes are of size {size})")
    rows, places = xp.reshape(input, (planes, count)), xp.reshape(indices, (planes, count))
    zeros = xp.zeros((planes, room), input.dtype)
    filled = xp.index_set(zeros, (xp.arange(planes)[:, None], places), rows)
    return xp.reshape(filled, (*input.shape[:-ndim], *sizes))


def _unpooled_grad(F: Any, grad: Any, input_shape: Any, indices: Any, sizes: Any) -> Any:
    planes = planes_of(input_shape, len(sizes))
    if not planes:
        return F.new_zeros(grad, tuple(input_shape))
    rows, places = F.reshape(grad, (planes, math.prod(sizes))), F.reshape(indices, (planes, -1))
    return F.reshape(F.gather(rows, 1, places), tuple(input_shape))


unpooled.derivative(input=_unpooled_grad)


def _pooled_sizes(ndim: int, shape: Any, kernel_size: Any, stride: Any, padding: Any, output_size: Any) -> Shape:
    """The sizes before pooling: those that the windows span, or ``output_size``, less than one stride from them."""
    kernel, step, pad = (
        (value,) * ndim if isinstance(value, int) else tuple(value)
        for value in (kernel_size, left_out(stride, kernel_size), padding)
    )
    if len(shape) < ndim or min(len(kernel), len(step), len(pad)) < ndim:
        raise IndexOutOfRange("tuple index out of range")
    each = zip(shape[-ndim:], kernel, step, pad, strict=False)
    spanned = tuple((n - 1) * s + k - 2 * p for n, k, s, p in each)
    if output_size is None:
        for d, n in enumerate(spanned):
            if n < 0:
                raise InvalidValue(
                    "max_unpooling: output_size must contain non-negative spatial dimensions, but got "
                    f"output_size[{d}]={n}"
                )
        return spanned
    if len(output_size) == ndim + 2:
        output_size = output_size[2:]
    if len(output_size) != ndim:
        raise InvalidValue(
            f"output_size should be a sequence containing {ndim} or {ndim + 2} elements, but it has a length of "
            f"'{len(output_size)}'"
        )
    for d, (size, usual, s) in enumerate(zip(output_size, spanned, step, strict=False)):
        if not usual - s < size < usual + s:
            raise InvalidValue(
                f'invalid output_size "{tuple(output_size)}" (dim {d} must be between {usual - s} and {usual + s})'
            )
    return tuple(output_size)


def _declare_max_unpool(ndim: int) -> Op:
    def max_unpool(
        F: Any,
        input: Array,
        indices: Array,
        kernel_size: IntOrInts,
        stride: IntOrInts = None,
        padding: IntOrInts = 0,
        output_size: OptionalInts = None,
    ) -> Any:
        sizes = _pooled_sizes(ndim, input.shape, kernel_size, stride, padding, output_size)
        if ndim > 1:
            return F.unpooled(input, indices, sizes)
        return F.squeeze(F.unpooled(F.unsqueeze(input, -1), F.unsqueeze(indices, -1), (*sizes, 1)), -1)

    max_unpool.__doc__ = (
        f"""What ``max_pool{ndim}d`` with ``return_indices`` gave, back in its places; the rest is zero."""
    )
    return composite(key=f"max_unpool{ndim}d", variants=NN_FUNCTION, autocast=FLOAT32_ON_CPU)(max_unpool)


for _ndim in (1, 2, 3):
    _declare_max_unpool(_ndim)
