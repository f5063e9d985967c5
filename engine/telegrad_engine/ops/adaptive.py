"""Average pooling of as many windows as asked for."""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import from_numpy, is_floating
from ..errors import InvalidOperation, InvalidValue, NotImplementedForDType, ShapeMismatch
from ..schema.memory_admission import elements
from ..schema.op import composite, op
from ..schema.parameters import Array, IntOrInts, Ints, Sizes
from ..shapes import Spec, wrap_dims
from .pooling_windows import check_signal, single


def _adaptive_rule(input: Any, output_size: Any) -> Spec:
    shape = list(input.shape)
    if len(output_size) != 2:
        raise ShapeMismatch(f"adaptive_avg_pool2d: output_size must be 2 numbers, but got {list(output_size)}")
    if min(output_size) < 0:
        received = ", ".join(map(str, output_size))
        raise InvalidOperation(
            "adaptive_avg_pool2d: elements of output_size must be greater than or equal to 0 but received "
            f"{{{received}}}"
        )
    if len(shape) not in (3, 4):
        raise ShapeMismatch(f"adaptive_avg_pool2d(): Expected 3D or 4D tensor, but got {shape}")
    for axis in (len(shape) - 2, len(shape) - 1):
        if not shape[axis]:
            raise ShapeMismatch(
                "adaptive_avg_pool2d(): Expected input to have non-zero size for non-batch dimensions, but input "
                f"has sizes {shape} with dimension {axis} being empty"
            )
    if not is_floating(input.dtype) and math.prod((*shape[:-2], *output_size)):
        kind = from_numpy(input.dtype).kernel_name
        raise NotImplementedForDType(f"\"adaptive_avg_pool2d\" not implemented for '{kind}'")
    return Spec((*shape[:-2], *output_size), input.dtype)


def _adaptive_hidden(input: Any, output_size: Any) -> list[Spec]:
    return [Spec((o, n), input.dtype) for o, n in zip(output_size, input.shape[-2:], strict=True)]


def _adaptive_scratch(input: Any, output_size: Any) -> int:
    """The bytes of a mask and its shares for each dimension, of a mean for each window, and of copies."""
    masks = sum(o * (24 * n + 400) for o, n in zip(output_size, input.shape[-2:], strict=True))
    between = math.prod(input.shape[:-1]) * output_size[1]
    return int(masks + 12 * between + 12 * elements(input) + 12 * math.prod(input.shape[:-2]) * math.prod(output_size))


def _shares(xp: Any, n: int, count: int, dtype: Any) -> Any:
    """What each of ``n`` elements counts in each of ``count`` averages: windows from floor(on/c) to ceil((o+1)n/c)."""
    order, places = xp.arange(count)[:, None], xp.arange(n)
    starts, ends = order * n // max(count, 1), -((order + 1) * -n // max(count, 1))
    return ((places >= starts) & (places < ends)).astype(dtype) / (ends - starts).astype(dtype)


def _averages(xp: Any, input: Any, count: int) -> Any:
    """Averages along the last dimension."""
    n = input.shape[-1]
    if count and n in (count * 2, count * 3, count * 4):  # small windows of one size: added up all at once
        size = n // count
        return sum(input[..., i::size] for i in range(size)) / size
    windows = [input[..., o * n // count : -((o + 1) * -n // count)] for o in range(count)]
    if not windows:
        return xp.zeros((*input.shape[:-1], 0), input.dtype)
    return xp.stack([xp.mean(window, axis=-1) for window in windows], axis=-1)


@op(
    _adaptive_rule,
    internal=True,
    method=False,
    node="AdaptiveAvgPool2DBackward0",
    hidden=("rows", "columns"),
    hidden_rule=_adaptive_hidden,
    scratch=_adaptive_scratch,
)
def _adaptive_avg_pool2d(xp: Any, input: Array, output_size: Ints) -> Any:
    """The averages of a grid of windows that cover an image."""
    rows, columns = (_shares(xp, n, count, input.dtype) for n, count in zip(input.shape[-2:], output_size, strict=True))
    across = xp.swapaxes(_averages(xp, input, output_size[1]), -1, -2)
    return xp.ascontiguousarray(xp.swapaxes(_averages(xp, across, output_size[0]), -1, -2)), rows, columns


_adaptive_avg_pool2d.derivative(
    input=lambda F, grad, rows, columns: F.matmul(F.matmul(F.transpose(rows, 0, 1), grad), columns)
)


def sizes_of(input: Any, output_size: Any, ndim: int) -> tuple[int, ...]:
    """The size of each dimension of the result, the input's for None, or one number for all. Raises as torch does."""
    if isinstance(output_size, int):
        return (output_size,) * ndim
    if len(input.shape) <= len(output_size):
        raise InvalidValue(f"Input dimension should be at least {len(output_size) + 1}")
    own = input.shape[len(input.shape) - len(output_size) :]
    return tuple(n if size is None else size for size, n in zip(output_size, own, strict=True))


@composite(
    namespace="torch.nn.functional",
)
def adaptive_avg_pool2d(F: Any, input: Array, output_size: Sizes) -> Any:
    """The averages of a grid of ``output_size`` windows that cover each of (N, C, H, W) or (C, H, W)."""
    sizes = sizes_of(input, output_size, 2)
    if len(sizes) != 2:
        raise ShapeMismatch("adaptive_avg_pool2d: output_size must be 2")
    return F.mean(input, (-1, -2), True) if sizes == (1, 1) else F._adaptive_avg_pool2d(input, sizes)


@composite(
    functional=True,
    method=False,
)
def adaptive_avg_pool1d(F: Any, input: Array, output_size: IntOrInts) -> Any:
    """The averages of ``output_size`` windows that cover each of (N, C, L) or (C, L)."""
    check_signal("adaptive_avg_pool1d", input)
    size = single(output_size, "adaptive_avg_pool1d() argument 'output_size' should contain one int (got {})")
    return F.squeeze(F.adaptive_avg_pool2d(F.unsqueeze(input, -2), (1, size)), -2)


@composite(
    namespace="torch.nn.functional",
)
def adaptive_avg_pool3d(F: Any, input: Array, output_size: Sizes) -> Any:
    """The averages of a grid of ``output_size`` windows that cover each of (N, C, D, H, W) or (C, D, H, W)."""
    sizes = sizes_of(input, output_size, 3)
    shape = tuple(input.shape)
    if output_size == 1:  # the mean of all that there is
        wrap_dims((-1, -2, -3), len(shape))
    _check_volumes(input, shape, sizes)
    if sizes == (1, 1, 1):
        return F.mean(input, (-1, -2, -3), True)
    # Depth after height and width: a window's average is that of its slices' averages.
    images = F.reshape(input, (math.prod(shape[:-3]), *shape[-3:]))
    flat = F._adaptive_avg_pool2d(images, sizes[1:])
    columns = F.reshape(flat, (*flat.shape[:2], sizes[1] * sizes[2]))
    deep = F._adaptive_avg_pool2d(columns, (sizes[0], columns.shape[-1])) if columns.shape[-1] else columns
    return F.reshape(deep, (*shape[:-3], *sizes))


def _check_volumes(input: Any, shape: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    if len(sizes) != 3:
        raise ShapeMismatch("adaptive_avg_pool3d: output_size must be 3")
    if min(sizes) < 0:
        raise InvalidOperation(
            "adaptive_avg_pool3d: elements of output_size must be greater than or equal to 0 but received "
            f"{{{sizes[0]}, {sizes[1]},{sizes[2]}}}"
        )
    if len(shape) not in (4, 5) and not (sizes == (1, 1, 1) and len(shape) == 3):
        raise ShapeMismatch(f"adaptive_avg_pool3d(): Expected 4D or 5D tensor, but got {list(shape)}")
    for axis in range(1, len(shape)):
        if not shape[axis]:
            raise ShapeMismatch(
                "adaptive_avg_pool3d(): Expected input to have non-zero size for non-batch dimensions, but input has "
                f"sizes {list(shape)} with dimension {axis} being empty"
            )
    if not input.is_floating_point() and sizes != (1, 1, 1):
        raise NotImplementedForDType(f"\"adaptive_avg_pool3d_cpu\" not implemented for '{input.dtype.kernel_name}'")
