"""Max pooling undone: each element where the pooling found it, zeros elsewhere."""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import from_numpy, int64, is_floating
from ..errors import (
    DTypeMismatch,
    IndexOutOfBounds,
    IndexOutOfRange,
    InvalidValue,
    NotImplementedForDType,
    ShapeMismatch,
)
from ..schema.op import composite, op
from ..schema.parameters import Array, IntOrInts, Ints, OptionalInts
from ..shapes import Shape, Spec
from .pooling_windows import left_out, planes_of

KERNELS = {2: "max_unpool2d", 3: "max_unpooling3d"}


def _unpooled_rule(input: Any, indices: Any, sizes: Any) -> Spec:
    ndim, shape = len(sizes), list(input.shape)
    if ndim not in KERNELS:
        raise ShapeMismatch(f"max_unpooling: output_size must be 2 or 3 numbers, but got {list(sizes)}")
    if len(shape) not in (ndim + 1, ndim + 2):
        raise ShapeMismatch(
            f"Input to max_unpooling{ndim}d should be a {ndim + 1}d or {ndim + 2}d Tensor, but got a tensor with "
            f"{len(shape)} dimensions."
        )
    if indices.dtype != int64.numpy:
        raise DTypeMismatch(
            f"elements in indices should be type int64 but got: {from_numpy(indices.dtype).kernel_name}"
        )
    if list(indices.shape) != shape:
        raise ShapeMismatch(
            f"Expected shape of indices to be same as that of the input tensor ({shape}) but got indices tensor with "
            f"shape: {list(indices.shape)}"
        )
    for axis, n in enumerate(shape[1:], 1):
        if not n:
            raise ShapeMismatch(
                f"max_unpooling{ndim}d_forward_out_cpu(): Expected input to have non-zero size for non-batch "
                f"dimensions, but got {shape} with dimension {axis} being empty."
            )
    if not is_floating(input.dtype) and math.prod(shape):
        kind = from_numpy(input.dtype).kernel_name
        raise NotImplementedForDType(f"\"{KERNELS[ndim]}\" not implemented for '{kind}'")
    return Spec((*shape[:-ndim], *sizes), input.dtype)


@op(
    _unpooled_rule,
    internal=True,
    method=False,
    node=lambda node: f"MaxUnpool{len(node.attrs['sizes'])}DBackward0",
    scratch=2.0,
)
def unpooled(xp: Any, input: Array, indices: Array, sizes: Ints) -> Any:
    """Zeros of ``sizes`` with the elements of each plane where ``indices`` say."""
    ndim, room = len(sizes), math.prod(sizes)
    planes, count = planes_of(input.shape, ndim), math.prod(input.shape[-ndim:])
    if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < room:
        wrong = int(indices.max()) if int(indices.max()) >= room else int(indices.min())
        raise IndexOutOfBounds(
            f"Found an invalid max index: {wrong} (output volumes are of size {'x'.join(map(str, sizes))})"
        )
    rows, places = xp.reshape(input, (planes, count)), xp.reshape(indices, (planes, count))
    zeros = xp.zeros((planes, room), input.dtype)
    filled = xp.index_set(zeros, (xp.arange(planes)[:, None], places), rows)
    return xp.reshape(filled, (*input.shape[:-ndim], *sizes))


def _unpooled_grad(F: Any, grad: Any, input_shape: Any, indices: Any, sizes: Any) -> Any:
    planes = planes_of(input_shape, len(sizes))
    rows, places = F.reshape(grad, (planes, math.prod(sizes))), F.reshape(indices, (planes, -1)) if planes else indices
    if not planes:
        return F.new_zeros(grad, tuple(input_shape))
    return F.reshape(F.gather(rows, 1, places), tuple(input_shape))


unpooled.derivative(input=_unpooled_grad)


def _sizes(name: str, ndim: int, shape: Any, kernel_size: Any, stride: Any, padding: Any, output_size: Any) -> Shape:
    """The sizes that were pooled: what the windows span, unless others, not a stride apart, are given."""
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


@composite(
    namespace="torch.nn.functional",
)
def max_unpool1d(
    F: Any,
    input: Array,
    indices: Array,
    kernel_size: IntOrInts,
    stride: IntOrInts = None,
    padding: IntOrInts = 0,
    output_size: OptionalInts = None,
) -> Any:
    """What ``max_pool1d`` with ``return_indices`` gave, back in its places; the rest is zero."""
    (size,) = _sizes("max_unpool1d", 1, input.shape, kernel_size, stride, padding, output_size)
    return F.squeeze(F.unpooled(F.unsqueeze(input, -1), F.unsqueeze(indices, -1), (size, 1)), -1)


@composite(
    namespace="torch.nn.functional",
)
def max_unpool2d(
    F: Any,
    input: Array,
    indices: Array,
    kernel_size: IntOrInts,
    stride: IntOrInts = None,
    padding: IntOrInts = 0,
    output_size: OptionalInts = None,
) -> Any:
    """What ``max_pool2d`` with ``return_indices`` gave, back in its places; the rest is zero."""
    return F.unpooled(input, indices, _sizes("max_unpool2d", 2, input.shape, kernel_size, stride, padding, output_size))


@composite(
    namespace="torch.nn.functional",
)
def max_unpool3d(
    F: Any,
    input: Array,
    indices: Array,
    kernel_size: IntOrInts,
    stride: IntOrInts = None,
    padding: IntOrInts = 0,
    output_size: OptionalInts = None,
) -> Any:
    """What ``max_pool3d`` with ``return_indices`` gave, back in its places; the rest is zero."""
    return F.unpooled(input, indices, _sizes("max_unpool3d", 3, input.shape, kernel_size, stride, padding, output_size))
