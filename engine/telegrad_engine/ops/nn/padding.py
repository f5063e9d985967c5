"""Padding and sliding windows, images as columns (unfold) and back (fold)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...dtypes import bool_
from ...errors import InvalidOperation, NotImplementedForDType, ShapeMismatch
from ...schema.declaration import FUNCTION, METHOD_OF_TORCH, NN_FUNCTION, NO_SCRATCH, VIEW, scratch
from ...schema.op import composite, op
from ...schema.parameters import Array, Int, IntOrInts, Ints, Number, OptionalNumber, Str
from ...shapes import Shape, Spec, wrap_dim
from ..batching import nn_rules
from ..batching.rules import LEADING
from ..guards import check_floats, no_kernel
from .pooling_windows import Windows


def _by_dim(shape: Any, pad: Any) -> list[tuple[int, int]]:
    """The padding before and after each dimension; torch lists the last dimension first."""
    pairs = list(zip(pad[::2], pad[1::2], strict=True))
    return [(0, 0)] * (len(shape) - len(pairs)) + pairs[::-1]


def _pad_rule(input: Any, pad: Any) -> Spec:
    ndim = len(input.shape)
    if len(pad) % 2:
        raise InvalidOperation("Length of pad must be even but instead it equals " + str(len(pad)))
    if len(pad) > 2 * ndim:
        raise InvalidOperation(
            "Length of pad should be no more than twice the number of dimensions of the input. "
            f"Pad length is {len(pad)}while the input has {ndim} dimensions."
        )
    shape = []
    for n, (before, after) in zip(input.shape, _by_dim(input.shape, pad), strict=True):
        kept = n + min(before, 0)
        if kept < 0 or kept + min(after, 0) + max(before, 0) < max(before, 0):
            raise InvalidOperation("narrow(): length must be non-negative.")
        shape.append(n + before + after)
    return Spec(tuple(shape), input.dtype)


@op(_pad_rule, variants=FUNCTION, memory=NO_SCRATCH, batching=LEADING)
def constant_pad_nd(xp: Any, input: Array, pad: Ints, value: Number = 0) -> Any:
    """With ``value`` added before and after the last dimensions, or elements taken away where ``pad`` is negative."""
    widths = _by_dim(input.shape, pad)
    kept = input[tuple(slice(max(-b, 0), n - max(-a, 0)) for n, (b, a) in zip(input.shape, widths, strict=True))]
    added = [(max(b, 0), max(a, 0)) for b, a in widths]
    # A NumPy scalar, as CuPy requires, cast like a tensor, since integers wrap around.
    number = np.asarray(value).astype(input.dtype)[()]
    return xp.pad(kept, added, constant_values=number) if added else kept.copy()


constant_pad_nd.derivative(input=lambda F, grad, pad: F.constant_pad_nd(grad, tuple(-n for n in pad)))


def _check_edges(mode: str, shape: Any, pad: Any) -> None:
    """Raise where torch does for padding with the tensor's own elements."""
    ndim, dims = len(shape), len(pad) // 2
    if dims not in (1, 2, 3) or ndim - dims not in (1, 2):
        raise NotImplementedForDType(
            f"Padding size {len(pad)} is not supported for {ndim}D input tensor.\n"
            "Supported combinations for non-constant padding:\n"
            "  - 2D or 3D input: padding size = 2 (pads last dimension)\n"
            "  - 3D or 4D input: padding size = 4 (pads last 2 dimensions)\n"
            "  - 4D or 5D input: padding size = 6 (pads last 3 dimensions)"
        )
    if mode != "circular" and 0 in shape[ndim - dims - 1 :]:
        raise ShapeMismatch(
            f"Expected {dims + 1}D or {dims + 2}D (batch mode) tensor with possibly 0 batch size and other "
            f"non-zero dimensions for input, but got: {list(shape)}"
        )
    for d, (before, after) in list(enumerate(_by_dim(shape, pad)))[ndim - dims :]:
        n = shape[d]
        if mode == "reflect" and max(before, after) >= n:
            raise InvalidOperation(
                "Argument #4: Padding size should be less than the corresponding input dimension, but got: "
                f"padding ({before}, {after}) at dimension {d} of input {list(shape)}"
            )
        if mode == "circular" and max(before, after) > n:
            raise InvalidOperation("Padding value causes wrapping around more than once.")
        if mode == "circular" and n + before + after < 0:
            raise InvalidOperation("Negative padding value is resulting in an empty dimension.")
        if mode != "circular" and n + before + after < 1:
            name = "WHD"[ndim - 1 - d]
            raise InvalidOperation(f"input ({name}: {n}) is too small. Calculated output {name}: {n + before + after}")


def _edges(F: Any, x: Any, mode: str, dim: int, before: int, after: int) -> Any:
    """Pad ``dim`` of ``x`` with its own elements, as ``mode`` says."""
    n = x.shape[dim]
    left, right = max(before, 0), max(after, 0)
    kept = F.narrow(x, dim, max(-before, 0), n + min(before, 0) + min(after, 0))
    if mode == "circular":
        parts = [F.narrow(kept, dim, kept.shape[dim] - left, left), F.narrow(kept, dim, 0, right)]
    elif mode == "reflect":
        parts = [F.flip(F.narrow(x, dim, *span), (dim,)) for span in ((1, left), (n - 1 - right, right))]
    else:
        sizes = [tuple(size if d == dim else m for d, m in enumerate(x.shape)) for size in (left, right)]
        parts = [F.expand(F.narrow(x, dim, 0, 1), sizes[0]), F.expand(F.narrow(x, dim, n - 1, 1), sizes[1])]
    return F.cat([parts[0], kept, parts[1]], dim)


@composite(variants=NN_FUNCTION)
def pad(F: Any, input: Array, pad: Ints, mode: Str = "constant", value: OptionalNumber = None) -> Any:
    """Elements added around the last dimensions: a value, or with ``mode`` the tensor's own."""
    shape = tuple(input.shape)
    if len(pad) % 2:
        raise InvalidOperation("Padding length must be divisible by 2")
    if len(pad) > 2 * len(shape):
        raise InvalidOperation(
            "Padding length should be less than or equal to two times the input dimension but got padding "
            f"length {len(pad)} and input of dimension {len(shape)}"
        )
    if mode == "constant":
        return F.constant_pad_nd(input, pad, 0 if value is None else value)
    if value:
        raise InvalidOperation(f'Padding mode "{mode}" doesn\'t take in value argument')
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedForDType(f"Unrecognised padding mode {mode}")
    _check_edges(mode, shape, pad)
    if mode != "circular" and input.dtype is bool_:
        kernel = {"reflect": "reflection", "replicate": "replication"}[mode]
        raise no_kernel(f"{kernel}_pad{len(pad) // 2}d", input)
    for d, (before, after) in enumerate(_by_dim(shape, pad)):
        if before or after:
            input = _edges(F, input, mode, d, before, after)
    return input


def _unfold_rule(input: Any, dimension: int, size: int, step: int) -> Spec:
    axis = wrap_dim(dimension, len(input.shape))
    shape = tuple(input.shape) or (1,)
    if size < 0:
        raise InvalidOperation(f"size is {size} but must be >= 0")
    if size > shape[axis]:
        raise InvalidOperation(f"maximum size for tensor at dimension {axis} is {shape[axis]} but size is {size}")
    if step <= 0:
        raise InvalidOperation(f"step is {step} but must be > 0")
    n = (shape[axis] - size) // step + 1
    return Spec((*shape[:axis], n, *shape[axis + 1 :], size) if input.shape else (size,), input.dtype)


@op(_unfold_rule, variants=METHOD_OF_TORCH, memory=VIEW)
def unfold(xp: Any, input: Array, dimension: Int, size: Int, step: Int) -> Any:
    """The windows of ``size`` elements along ``dimension``, ``step`` apart, in a new last dimension."""
    if not input.ndim:
        return xp.reshape(input, (1,))[:size]
    axis = dimension % input.ndim
    return xp.windows(input, size, axis)[(slice(None),) * axis + (slice(None, None, step),)]


def _unfold_grad(F: Any, grad: Any, input_shape: Any, dimension: int, size: int, step: int) -> Any:
    """Sum the gradient of each element over the windows that contain it."""
    zeros = F.new_zeros(grad, input_shape)
    if not input_shape:
        return zeros + F.sum(grad)
    axis = dimension % len(input_shape)
    n = grad.shape[axis]
    places = F.reshape(F.arange(n), (n, 1)) * step + F.arange(size)
    return F.index_put(zeros, [None] * axis + [places], F.movedim(grad, -1, axis + 1), True)


unfold.derivative(input=_unfold_grad)


# Unfold: images as columns, one for each sliding window; fold: the reverse -------------------------------


def _described(windows: Windows, *names: str) -> str:
    """The named settings, formatted as in PyTorch's error texts."""
    return ", ".join(f"{name}={getattr(windows, name)}" for name in names)


def _pair(name: str, value: Any) -> Shape:
    values = (value,) if isinstance(value, int) else tuple(value)
    if len(values) == 1:
        values *= 2
    if len(values) != 2:
        raise ShapeMismatch(f"It is expected {name} equals to 2, but got size {len(values)}")
    return values


def _read(kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Windows:
    """Check the settings and return them with one number per dimension."""
    windows = Windows(
        kernel_size=_pair("kernel_size", kernel_size),
        dilation=_pair("dilation", dilation),
        padding=_pair("padding", padding),
        stride=_pair("stride", stride),
    )
    for what, word, pair, least in (
        ("kernel size should be greater than zero", "kernel", windows.kernel_size, 1),
        ("dilation should be greater than zero", "dilation", windows.dilation, 1),
        ("padding should be non-negative", "pad", windows.padding, 0),
        ("stride should be greater than zero", "stride", windows.stride, 1),
    ):
        if min(pair) < least:
            raise InvalidOperation(f"{what}, but got {word}_height: {pair[0]} {word}_width: {pair[1]}")
    return windows


def _columns_rule(input: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Spec:
    blocks, shape = _read(kernel_size, dilation, padding, stride), list(input.shape)
    if len(shape) < 3:
        wrap_dim(max(len(shape), 1), len(shape))  # raises: torch expects one more dimension
    if len(shape) > 4 or 0 in shape[-3:]:
        raise ShapeMismatch(
            "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, "
            f"but got: {shape}"
        )
    counts = blocks.counts(shape[-2:])
    if min(counts) < 1:
        raise ShapeMismatch(
            f"Given input with spatial size ({shape[-2]}, {shape[-1]}), "
            f"{_described(blocks, 'kernel_size', 'dilation', 'padding')}, calculated shape of the array of sliding "
            f"blocks as ({counts[0]}, {counts[1]}), but its components must be at least one."
        )
    if input.dtype.kind != "b":
        check_floats("im2col_out_cpu", input)
    columns = shape[-3] * math.prod(blocks.kernel_size)
    return Spec((*shape[:-3], columns, math.prod(counts)), input.dtype)


@op(_columns_rule, variants=NN_FUNCTION, node="Im2ColBackward0", batching=nn_rules.columns)
def functional_unfold(
    xp: Any,
    input: Array,
    kernel_size: IntOrInts,
    dilation: IntOrInts = 1,
    padding: IntOrInts = 0,
    stride: IntOrInts = 1,
) -> Any:
    """The windows of images (N, C, H, W) or (C, H, W) as columns (N, C * window, windows)."""
    blocks = _read(kernel_size, dilation, padding, stride)
    whole = xp.padded(input, blocks.padding)
    windows = xp.strided_windows(whole, blocks.kernel_size, blocks.stride, blocks.dilation)
    lead = tuple(range(windows.ndim - 4))
    order = (*lead, *(len(lead) + i for i in (2, 3, 0, 1)))
    return xp.reshape(xp.transpose(windows, order), _columns_rule(input, kernel_size, dilation, padding, stride).shape)


functional_unfold.derivative(
    input=lambda F, grad, input_shape, kernel_size, dilation, padding, stride: F.fold(
        grad, tuple(input_shape[-2:]), kernel_size, dilation, padding, stride
    )
)


def _fold_rule(input: Any, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Spec:
    sizes, shape = _pair("output_size", output_size), list(input.shape)
    blocks = _read(kernel_size, dilation, padding, stride)
    if len(shape) not in (2, 3) or 0 in shape[-2:]:
        raise ShapeMismatch(
            "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero dimensions for "
            f"input, but got: {shape}"
        )
    window = math.prod(blocks.kernel_size)
    if shape[-2] % window:
        raise ShapeMismatch(
            "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got "
            f"input.size(1)={shape[-2]} and {_described(blocks, 'kernel_size')}."
        )
    high, wide = blocks.counts(sizes)
    if high * wide != shape[-1] or min(high, wide) < 1:
        settings = _described(blocks, "kernel_size", "dilation", "padding", "stride")
        raise ShapeMismatch(
            f"Given output_size={sizes}, {settings}, expected size of input's dimension 2 to match the calculated "
            f"number of sliding blocks {high} * {wide} = {high * wide}, but got input.size(2)={shape[-1]}."
        )
    if input.dtype.kind != "b":
        check_floats("col2im_out_cpu", input)
    return Spec((*shape[:-2], shape[-2] // window, *sizes), input.dtype)


@op(_fold_rule, variants=NN_FUNCTION, node="Col2ImBackward0", memory=scratch(1.25), batching=nn_rules.columns)
def fold(
    xp: Any,
    input: Array,
    output_size: IntOrInts,
    kernel_size: IntOrInts,
    dilation: IntOrInts = 1,
    padding: IntOrInts = 0,
    stride: IntOrInts = 1,
) -> Any:
    """Columns (N, C * window, windows) laid over images (N, C, *output_size); where windows overlap they add up."""
    sizes, blocks = _pair("output_size", output_size), _read(kernel_size, dilation, padding, stride)
    result = _fold_rule(input, sizes, kernel_size, dilation, padding, stride)
    images = math.prod(result.shape[:-3])
    windows = xp.reshape(input, (images, result.shape[-3], *blocks.kernel_size, *blocks.counts(sizes)))
    padded = tuple(n + 2 * p for n, p in zip(sizes, blocks.padding, strict=True))
    whole = xp.fold(windows, padded, blocks.stride, blocks.dilation)
    inner = tuple(slice(p, p + n) for p, n in zip(blocks.padding, sizes, strict=True))
    return xp.reshape(whole[(slice(None), slice(None), *inner)], result.shape)


fold.derivative(
    input=lambda F, grad, kernel_size, dilation, padding, stride: F.functional_unfold(
        grad, kernel_size, dilation, padding, stride
    )
)
