"""Images as columns, one a sliding window, and back: what torch.nn.functional calls unfold and fold."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..dtypes import from_numpy, is_floating
from ..errors import IndexOutOfRange, InvalidOperation, NotImplementedForDType, ShapeMismatch
from ..schema.op import op
from ..schema.parameters import Array, IntOrInts
from ..shapes import Shape, Spec


class Blocks(NamedTuple):
    """The sliding windows over (height, width); PyTorch's name for them is blocks."""

    kernel_size: Shape
    dilation: Shape
    padding: Shape
    stride: Shape

    def counts(self, sizes: Any) -> Shape:
        """How many there are over an image of these sizes, in each dimension."""
        each = zip(sizes, *self, strict=True)
        return tuple((n + 2 * pad - gap * (k - 1) - 1) // step + 1 for n, k, gap, pad, step in each)

    def padded(self, sizes: Any) -> Shape:
        """The sizes of the image with its padding."""
        return tuple(n + 2 * pad for n, pad in zip(sizes, self.padding, strict=True))

    def described(self, *names: str) -> str:
        """The named settings, as PyTorch's texts have them."""
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)


def _pair(name: str, value: Any) -> Shape:
    values = (value,) * 2 if isinstance(value, int) else tuple(value)
    if len(values) == 1:
        values *= 2
    if len(values) != 2:
        raise ShapeMismatch(f"It is expected {name} equals to 2, but got size {len(values)}")
    return values


def _read(kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Blocks:
    """The settings with one number a dimension, once checked."""
    given = zip(Blocks._fields, (kernel_size, dilation, padding, stride), strict=True)
    blocks = Blocks(*[_pair(name, value) for name, value in given])
    for what, word, pair, least in (
        ("kernel size should be greater than zero", "kernel", blocks.kernel_size, 1),
        ("dilation should be greater than zero", "dilation", blocks.dilation, 1),
        ("padding should be non-negative", "pad", blocks.padding, 0),
        ("stride should be greater than zero", "stride", blocks.stride, 1),
    ):
        if min(pair) < least:
            raise InvalidOperation(f"{what}, but got {word}_height: {pair[0]} {word}_width: {pair[1]}")
    return blocks


# To columns ----------------------------------------------------------------------------------------------


def _unfold_rule(input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Spec:
    blocks, shape = _read(kernel_size, dilation, padding, stride), list(input.shape)
    if len(shape) < 3:
        low, high = -max(len(shape), 1), max(len(shape), 1) - 1
        raise IndexOutOfRange(
            f"Dimension out of range (expected to be in range of [{low}, {high}], but got {high + 1})"
        )
    if len(shape) > 4 or 0 in shape[-3:]:
        raise ShapeMismatch(
            "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, "
            f"but got: {shape}"
        )
    counts = blocks.counts(shape[-2:])
    if min(counts) < 1:
        raise ShapeMismatch(
            f"Given input with spatial size ({shape[-2]}, {shape[-1]}), "
            f"{blocks.described('kernel_size', 'dilation', 'padding')}, calculated shape of the array of sliding "
            f"blocks as ({counts[0]}, {counts[1]}), but its components must be at least one."
        )
    if not is_floating(input.dtype) and input.dtype.kind != "b":
        raise NotImplementedForDType(f"\"im2col_out_cpu\" not implemented for '{from_numpy(input.dtype).kernel_name}'")
    columns = shape[-3] * math.prod(blocks.kernel_size)
    return Spec((*shape[:-3], columns, math.prod(counts)), input.dtype)


@op(
    _unfold_rule,
    namespace="torch.nn.functional",
    node="Im2ColBackward0",
)
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
    return xp.reshape(xp.transpose(windows, order), _unfold_rule(input, *blocks).shape)


functional_unfold.derivative(
    input=lambda F, grad, input_shape, kernel_size, dilation, padding, stride: F.fold(
        grad, tuple(input_shape[-2:]), kernel_size, dilation, padding, stride
    )
)


# And back ------------------------------------------------------------------------------------------------


def _fold_rule(
    input: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Spec:
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
            f"input.size(1)={shape[-2]} and {blocks.described('kernel_size')}."
        )
    high, wide = blocks.counts(sizes)
    if high * wide != shape[-1] or min(high, wide) < 1:
        settings = blocks.described("kernel_size", "dilation", "padding", "stride")
        raise ShapeMismatch(
            f"Given output_size={sizes}, {settings}, expected size of input's dimension 2 to match the calculated "
            f"number of sliding blocks {high} * {wide} = {high * wide}, but got input.size(2)={shape[-1]}."
        )
    if not is_floating(input.dtype) and input.dtype.kind != "b":
        raise NotImplementedForDType(f"\"col2im_out_cpu\" not implemented for '{from_numpy(input.dtype).kernel_name}'")
    return Spec((*shape[:-2], shape[-2] // window, *sizes), input.dtype)


@op(_fold_rule, namespace="torch.nn.functional", node="Col2ImBackward0", scratch=1.25)
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
    result = _fold_rule(input, sizes, *blocks)
    images = math.prod(result.shape[:-3])
    windows = xp.reshape(input, (images, result.shape[-3], *blocks.kernel_size, *blocks.counts(sizes)))
    whole = xp.fold(windows, blocks.padded(sizes), blocks.stride, blocks.dilation)
    inner = tuple(slice(p, p + n) for p, n in zip(blocks.padding, sizes, strict=True))
    return xp.reshape(whole[(slice(None), slice(None), *inner)], result.shape)


fold.derivative(
    input=lambda F, grad, kernel_size, dilation, padding, stride: F.functional_unfold(
        grad, kernel_size, dilation, padding, stride
    )
)
