"""Adaptive pooling: the largest element of each of as many windows as asked for."""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import from_numpy, int64, is_floating
from ..errors import InvalidOperation, NotImplementedForDType, ShapeMismatch
from ..schema.op import composite, op
from ..schema.parameters import Array, Bool, IntOrInts, Ints, Sizes
from ..shapes import Shape, Spec
from .adaptive import sizes_of
from .pooling_windows import check_signal, planes_of, single

KERNELS = {2: "adaptive_max_pool2d", 3: "adaptive_max_pool3d_cpu"}


def _largest_rule(input: Any, output_size: Any) -> list[Spec]:
    ndim, shape = len(output_size), list(input.shape)
    if ndim not in KERNELS:
        raise ShapeMismatch(f"adaptive_max_pool: output_size must be 1 to 3 numbers, but got {list(output_size)}")
    name = f"adaptive_max_pool{ndim}d()"
    if len(shape) not in (ndim + 1, ndim + 2):
        raise ShapeMismatch(f"{name}: Expected {ndim + 1}D or {ndim + 2}D tensor, but got: {shape}")
    for axis in range(1, len(shape)):
        if not shape[axis]:
            raise ShapeMismatch(
                f"{name}: Expected input to have non-zero size for non-batch dimensions, but input has sizes {shape} "
                f"with dimension {axis} being empty"
            )
    result = (*shape[:-ndim], *output_size)
    negative = next((n for n in output_size if n < 0), None)
    if negative is not None:
        raise InvalidOperation(f"Trying to create tensor with negative dimension {negative}: {list(result)}")
    if not is_floating(input.dtype):
        kind = from_numpy(input.dtype).kernel_name
        raise NotImplementedForDType(f"\"{KERNELS[ndim]}\" not implemented for '{kind}'")
    return [Spec(result, input.dtype), Spec(result, int64.numpy)]


def _members(xp: Any, n: int, count: int) -> Any:
    """The elements of each of ``count`` windows, from floor(o * n / c) to ceil((o + 1) * n / c), the last repeated."""
    order = xp.arange(count)[:, None]
    starts, ends = order * n // max(count, 1), -((order + 1) * -n // max(count, 1))
    return xp.minimum(starts + xp.arange(-(-n // max(count, 1)) + 1), ends - 1)


@op(
    _largest_rule,
    internal=True,
    method=False,
    outputs=("result", "indices"),
    node=lambda node: f"AdaptiveMaxPool{len(node.attrs['output_size'])}DBackward0",
    scratch=8.0,
)
def adaptive_largest(xp: Any, input: Array, output_size: Ints) -> Any:
    """The largest element of each window, the first of equals or the last NaN, and its place in its flattened plane."""
    ndim, result = len(output_size), _largest_rule(input, output_size)[0].shape
    sizes = input.shape[-ndim:]
    if not math.prod(result):
        return xp.zeros(result, input.dtype), xp.zeros(result, int64.numpy)
    places: Any = 0
    for axis, (n, count) in enumerate(zip(sizes, output_size, strict=True)):
        members = _members(xp, n, count)
        beside = [1] * (2 * ndim)
        beside[axis], beside[ndim + axis] = members.shape
        places = places * n + xp.reshape(members, beside)
    places = xp.reshape(places, (*output_size, -1))
    windows = xp.reshape(input, (planes_of(input.shape, ndim), -1))[:, places]
    taps = xp.argmax(windows, axis=-1)
    nans = xp.isnan(windows)
    if xp.holds(nans.any(), False):
        last = nans.shape[-1] - 1 - xp.argmax(nans[..., ::-1], axis=-1)
        taps = xp.where(xp.any(nans, axis=-1), last, taps)
    taps = taps[..., None]
    found = xp.take_along_axis(windows, taps, axis=-1)
    indices = xp.take_along_axis(xp.broadcast_to(places, windows.shape), taps, axis=-1)
    return xp.reshape(found, result), xp.reshape(indices, result).astype(int64.numpy)


def _largest_grad(F: Any, grads: Any, indices: Any, input_shape: Any, output_size: Any) -> Any:
    """Each gradient to the element that was the largest."""
    ndim, grad = len(output_size), grads[0]
    planes = planes_of(input_shape, ndim)
    flat = F.new_zeros(grad, (planes, math.prod(input_shape[-ndim:])))
    rows = (planes, math.prod(output_size))
    return F.reshape(F.scatter_add(flat, 1, F.reshape(indices, rows), F.reshape(grad, rows)), tuple(input_shape))


adaptive_largest.derivative(input=_largest_grad)


def _counts(name: str, ndim: int, input: Any, output_size: Any) -> Shape:
    sizes = sizes_of(input, output_size, ndim)
    if len(sizes) != ndim:
        raise ShapeMismatch(f"{name}(): internal error: output_size.size() must be {ndim}")
    return sizes


@composite(
    namespace="torch.nn.functional",
)
def adaptive_max_pool1d(F: Any, input: Array, output_size: IntOrInts, return_indices: Bool = False) -> Any:
    """The largest elements of ``output_size`` windows that cover each of (N, C, L) or (C, L)."""
    check_signal("adaptive_max_pool1d", input)
    size = single(output_size, "adaptive_max_pool1d() argument 'output_size' should contain one int (got {})")
    shape = list(input.shape)
    if 0 in shape[1:]:
        raise ShapeMismatch(
            "adaptive_max_pool1d(): Expected input to have non-zero size for non-batch dimensions, but input has sizes "
            f"{shape} with dimension {shape.index(0, 1)} being empty"
        )
    result, indices = (F.squeeze(x, -2) for x in F.adaptive_largest(F.unsqueeze(input, -2), (1, size)))
    return (result, indices) if return_indices else result


@composite(
    namespace="torch.nn.functional",
)
def adaptive_max_pool2d(F: Any, input: Array, output_size: Sizes, return_indices: Bool = False) -> Any:
    """The largest elements of a grid of ``output_size`` windows that cover each of (N, C, H, W) or (C, H, W).

    With ``return_indices`` a pair: also each one's place in its flattened image.
    """
    pair = F.adaptive_largest(input, _counts("adaptive_max_pool2d", 2, input, output_size))
    return tuple(pair) if return_indices else pair[0]


@composite(
    namespace="torch.nn.functional",
)
def adaptive_max_pool3d(F: Any, input: Array, output_size: Sizes, return_indices: Bool = False) -> Any:
    """The largest elements of a grid of ``output_size`` windows that cover each of (N, C, D, H, W) or (C, D, H, W)."""
    pair = F.adaptive_largest(input, _counts("adaptive_max_pool3d", 3, input, output_size))
    return tuple(pair) if return_indices else pair[0]
