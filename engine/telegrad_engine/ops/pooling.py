"""Pooling: the largest element or the average of each window."""

from __future__ import annotations

import itertools
import math
from typing import Any

from ..cases import T, case
from ..dtypes import bool_, int64, is_floating
from ..errors import InvalidOperation, NotImplementedForDType, ShapeMismatch
from ..params import Array, Bool, IntOrInts
from ..registry import composite, op
from ..specs import Shape, Spec

Pairs = tuple[Shape, Shape, Shape, Shape]

# Checks --------------------------------------------------------------------------------------------------


def _pair(value: Any, otherwise: str) -> Shape:
    """Two numbers; a single one stands for both."""
    values = (value,) if isinstance(value, int) else tuple(value)
    if len(values) not in (1, 2):
        raise ShapeMismatch(otherwise)
    return values * 2 if len(values) == 1 else values


def left_out(stride: Any, kernel_size: Any) -> Any:
    """The stride, or the kernel's size where none is given."""
    return kernel_size if stride in (None, ()) else stride


def pairs_of(name: str, kernel_size: Any, stride: Any, padding: Any, dilation: Any) -> Pairs:
    """Kernel, stride, padding and dilation as pairs; a stride left out is the kernel's size."""
    kernel = _pair(kernel_size, f"{name}: kernel_size must either be a single int, or a tuple of two ints")
    steps = _pair(
        left_out(stride, kernel),
        f"{name}: stride must either be omitted, a single int, or a tuple of two ints",
    )
    pads = _pair(padding, f"{name}: padding must either be a single int, or a tuple of two ints")
    gaps = _pair(dilation, f"{name}: dilation must be either a single int, or a tuple of two ints")
    return kernel, steps, pads, gaps


def _count(n: int, span: int, stride: int, padding: int, ceil_mode: bool) -> int:
    """How many windows there are; the last must start inside the input or the padding before it."""
    count = (n + 2 * padding - span + (stride - 1 if ceil_mode else 0)) // stride + 1
    return count - 1 if ceil_mode and (count - 1) * stride >= n + padding else count


def _spans(kernel: Shape, dilation: Shape) -> Shape:
    return tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))


def counts_of(sizes: Any, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, ceil_mode: bool) -> Shape:
    """How many windows there are in both dimensions."""
    steps = zip(sizes, _spans(kernel, dilation), stride, padding, strict=True)
    return tuple(_count(n, span, s, p, ceil_mode) for n, span, s, p in steps)


def pooled(
    name: str, input: Any, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, ceil_mode: bool
) -> Spec:
    """The spec of pooled images, once all is checked; the texts are PyTorch\'s."""
    shape = list(input.shape)
    if 0 in stride:
        raise InvalidOperation("stride should not be zero")
    for pad, size, gap in zip(padding, kernel, dilation, strict=True):
        if pad < 0:
            raise InvalidOperation(f"pad must be non-negative, but got pad: {pad}")
        if pad > (gap * (size - 1) + 1) // 2 and gap > 0:
            raise InvalidOperation(
                f"pad should be at most half of effective kernel size, but got pad={pad}, kernel_size={size} and "
                f"dilation={gap}"
            )
    if min(kernel) <= 0:
        raise InvalidOperation(f"kernel size should be greater than zero, but got kH: {kernel[0]} kW: {kernel[1]}")
    if min(stride) < 0:
        raise InvalidOperation(f"stride should be greater than zero, but got dH: {stride[0]} dW: {stride[1]}")
    if min(dilation) <= 0:
        raise InvalidOperation(
            f"dilation should be greater than zero, but got dilationH: {dilation[0]} dilationW: {dilation[1]}"
        )
    if len(shape) not in (3, 4) or 0 in shape[len(shape) - 3 :]:
        raise ShapeMismatch(
            f"Expected 3D or 4D (batch mode) tensor with optional 0 dim batch size for input, but got:{shape}"
        )
    counts = counts_of(shape[-2:], kernel, stride, padding, dilation, ceil_mode)
    if min(counts) < 1:
        sizes = "x".join(map(str, shape[-3:]))
        out = f"{shape[-3]}x{counts[0]}x{counts[1]}"
        raise ShapeMismatch(f"Given input size: ({sizes}). Calculated output size: ({out}). Output size is too small")
    if input.dtype == bool_.numpy:
        raise NotImplementedForDType(f"\"{name}\" not implemented for 'Bool'")
    return Spec((*shape[:-2], *counts), input.dtype)


def padded(xp: Any, input: Any, counts: Shape, spans: Shape, stride: Shape, padding: Shape, value: Any) -> Any:
    """The part of the input that windows reach, with ``value`` where they reach beyond it."""
    ends = [(c - 1) * s + span for c, s, span in zip(counts, stride, spans, strict=True)]
    sides = [(p, max(e - p - n, 0)) for p, e, n in zip(padding, ends, input.shape[-2:], strict=True)]
    if any(map(any, sides)):
        input = xp.pad(input, [(0, 0)] * (input.ndim - 2) + sides, constant_values=value)
    return input[..., : ends[0], : ends[1]]


# The largest ---------------------------------------------------------------------------------------------


def _max_rule(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Spec:
    pairs = pairs_of("max_pool2d", kernel_size, stride, padding, dilation)
    if len(input.shape) not in (3, 4):
        raise ShapeMismatch("non-empty 3D or 4D (batch mode) tensor expected for input")
    return pooled("max_pool2d", input, *pairs, ceil_mode)


def _max_hidden(input: Any, *args: Any, **attrs: Any) -> tuple[Spec]:
    return (Spec(_max_rule(input, *args, **attrs).shape, int64.numpy),)


@op(
    _max_rule,
    functional=True,
    method=False,
    node="MaxPool2DWithIndicesBackward0",
    hidden=("indices",),
    hidden_rule=_max_hidden,
    cases=[
        case(T(2, 3, 6, 5), 2),
        case(T(3, 7, 6), (3, 2), (2, 1), (1, 0)),
        case(T(2, 1, 7, 7), 3, 2, 1, 1, True),
        case(T(1, 1, 5, 5), 2, 2, ceil_mode=True),
        case(T(1, 2, 7, 7), 2, 1, dilation=(2, 3)),
        case(T(1, 1, 4, 4, values=[[[[1, 1, 0, 0], [1, 1, 0, 2], [3, 0, 5, 5], [3, 3, 5, 4]]]]), 2),
        case(T(1, 3, 3, values=[[[1.0, math.nan, 2.0], [0.0, 3.0, 1.0], [5.0, math.nan, 1.0]]]), 2, 1),
        case(T(1, 2, 2, values=[[[-math.inf, -math.inf], [-math.inf, -math.inf]]]), 2, 1, 1),
        case(T(0, 3, 4, 4), 2),
        case(T(1, 0, 3, 3), 2),
        case(T(3, 3), 2),
        case(T(1, 3, 3), 4),
        case(T(1, 3, 3), 2, padding=2),
        case(T(1, 3, 3), 2, 0),
        case(T(1, 3, 3), 2, dilation=0),
        case(T(1, 3, 3), (2, 2, 2)),
        case(T(1, 3, 3, dtype="bool"), 2),
    ],
)
def max_pool2d(
    xp: Any,
    input: Array,
    kernel_size: IntOrInts,
    stride: IntOrInts = None,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    ceil_mode: Bool = False,
) -> Any:
    """The largest element of each window of (N, C, H, W) or (C, H, W); the gradient goes to the first of equals."""
    kernel, steps, pads, gaps = pairs_of("max_pool2d", kernel_size, stride, padding, dilation)
    sizes, spans = input.shape[-2:], _spans(kernel, gaps)
    counts = counts_of(sizes, kernel, steps, pads, gaps, ceil_mode)
    # Padding is told by its place, -1, and not by its value: the input may hold the lowest value too.
    places = xp.reshape(xp.arange(math.prod(sizes)), sizes)
    values, spots = (
        xp.strided_windows(padded(xp, a, counts, spans, steps, pads, fill), kernel, steps, gaps)
        for a, fill in ((input, 0), (places, -1))
    )
    within = not any(pads) and not ceil_mode
    largest, where = values[..., 0, 0], xp.broadcast_to(spots[..., 0, 0], (*input.shape[:-2], *counts))
    for i, j in list(itertools.product(*map(range, kernel)))[1:]:
        value, spot = xp.ascontiguousarray(values[..., i, j]), spots[..., i, j]
        better = value > largest
        if is_floating(input.dtype):
            better = better | xp.isnan(value)
        if not within:
            better = (better | (where < 0)) & (spot >= 0)
        largest = xp.maximum(largest, value) if within else xp.where(better, value, largest)
        where = xp.where(better, spot, where)
    planes = xp.reshape(xp.arange(math.prod(input.shape[:-2])), (*input.shape[:-2], 1, 1))
    return xp.array(largest), where + planes * math.prod(sizes)


def _max_grad(F: Any, grad: Any, indices: Any, input_shape: Any, kernel_size: Any, stride: Any, dilation: Any) -> Any:
    kernel, steps, _, gaps = pairs_of("max_pool2d", kernel_size, stride, 0, dilation)
    apart = all(s >= span for s, span in zip(steps, _spans(kernel, gaps), strict=True))
    write = F.scatter if apart else F.scatter_add
    flat = F.new_zeros(grad, (math.prod(input_shape),))
    return F.reshape(write(flat, 0, F.reshape(indices, (-1,)), F.reshape(grad, (-1,))), tuple(input_shape))


max_pool2d.derivative(input=_max_grad)


def single(value: Any, otherwise: str) -> int:
    """The one number of a one-dimensional window."""
    values = (value,) if isinstance(value, int) else tuple(value)
    if len(values) != 1:
        raise ShapeMismatch(otherwise.format(len(values)))
    return int(values[0])


@composite(
    functional=True,
    method=False,
    cases=[
        case(T(2, 3, 7), 2),
        case(T(3, 7), 3, 2, 1, 1, True),
        case(T(1, 1, 6, values=[[[1, 1, 0, 2, 2, 2]]]), 3, 1, dilation=2),
        case(T(0, 3, 4), 2),
        case(T(3), 2),
        case(T(1, 3), 4),
        case(T(1, 3), 2, padding=2),
        case(T(1, 3), 2, 0),
        case(T(1, 3), (2, 2)),
    ],
)
def max_pool1d(
    F: Any,
    input: Array,
    kernel_size: IntOrInts,
    stride: IntOrInts = None,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    ceil_mode: Bool = False,
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
    count = _count(shape[-1], gap * (size - 1) + 1, step, pad, ceil_mode)
    if count < 1:
        raise ShapeMismatch(f"max_pool1d() Invalid computed output size: {count}")
    if not input.is_floating_point():
        raise NotImplementedForDType(f"\"max_pool1d_impl\" not implemented for '{input.dtype.kernel_name}'")
    return F.squeeze(F.max_pool2d(F.unsqueeze(input, -2), (1, size), (1, step), (0, pad), (1, gap), ceil_mode), -2)
