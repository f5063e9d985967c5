"""Average pooling, of windows of one size and of as many windows as asked for."""

from __future__ import annotations

import math
from typing import Any

from ..cases import T, case
from ..dtypes import from_numpy, is_floating
from ..errors import InvalidOperation, InvalidValue, NotImplementedForDType, ShapeMismatch
from ..params import Array, Bool, IntOrInts, OptionalInt
from ..registry import composite, op
from ..specs import Spec
from .pooling import counts_of, padded, pairs_of, pooled, single

# Windows of one size -------------------------------------------------------------------------------------


def _avg_rule(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Spec:
    pairs = pairs_of("avg_pool2d", kernel_size, stride, padding, 1)
    if divisor_override == 0:
        raise InvalidOperation("divisor must be not zero")
    return pooled("avg_pool2d", input, *pairs, ceil_mode)


def _avg_hidden(input: Any, *args: Any, **attrs: Any) -> tuple[Spec]:
    return (Spec(_avg_rule(input, *args, **attrs).shape[-2:], input.dtype),)


def _members(xp: Any, n: int, count: int, size: int, stride: int, padding: int, include_pad: bool) -> Any:
    """How many elements each window along one dimension counts."""
    starts = xp.arange(count) * stride - padding
    ends = xp.minimum(starts + size, n + padding)
    return ends - starts if include_pad else xp.minimum(ends, n) - xp.maximum(starts, 0)


def _sums(xp: Any, input: Any, axis: int, count: int, size: int, stride: int) -> Any:
    rest = (slice(None),) * (-1 - axis)
    return sum(input[(..., slice(i, i + (count - 1) * stride + 1, stride), *rest)] for i in range(size))


@op(
    _avg_rule,
    namespace="torch.nn.functional",
    node="AvgPool2DBackward0",
    hidden=("divisors",),
    hidden_rule=_avg_hidden,
    cases=[
        case(T(2, 3, 6, 5), 2),
        case(T(3, 7, 6), (3, 2), (2, 1), (1, 0)),
        case(T(2, 1, 7, 6), 3, 2, 1, True),
        case(T(2, 1, 7, 6), 3, 2, 1, True, False),
        case(T(1, 2, 5, 5), 2, ceil_mode=True),
        case(T(1, 2, 5, 5), 2, 1, 1, divisor_override=3),
        case(T(1, 2, 8, 8), 2, 3, count_include_pad=False),
        case(T(1, 2, 4, 4), 2, divisor_override=-2),
        case(T(0, 3, 4, 4), 2),
        case(T(1, 3, 3), 2, divisor_override=0),
        case(T(1, 3, 3), 4),
        case(T(1, 3, 3), 2, padding=2),
        case(T(1, 1, 1, 3, 3), 2),
        case(T(1, 3, 3, dtype="bool"), 2),
    ],
)
def avg_pool2d(
    xp: Any,
    input: Array,
    kernel_size: IntOrInts,
    stride: IntOrInts = None,
    padding: IntOrInts = 0,
    ceil_mode: Bool = False,
    count_include_pad: Bool = True,
    divisor_override: OptionalInt = None,
) -> Any:
    """The average of each window of (N, C, H, W) or (C, H, W)."""
    kernel, steps, pads, gaps = pairs_of("avg_pool2d", kernel_size, stride, padding, 1)
    counts = counts_of(input.shape[-2:], kernel, steps, pads, gaps, ceil_mode)
    reached = padded(xp, input, counts, kernel, steps, pads, 0)
    sums = _sums(xp, _sums(xp, reached, -2, counts[0], kernel[0], steps[0]), -1, counts[1], kernel[1], steps[1])
    if divisor_override is None:
        each = zip(input.shape[-2:], counts, kernel, steps, pads, strict=True)
        rows, columns = (_members(xp, *numbers, count_include_pad) for numbers in each)
        divisors = (rows[:, None] * columns).astype(input.dtype)
    else:
        divisors = xp.full(counts, divisor_override, input.dtype)
    averages = sums / divisors if is_floating(input.dtype) else xp.trunc(sums / divisors).astype(input.dtype)
    return averages, divisors


def _avg_grad(F: Any, grad: Any, divisors: Any, input_shape: Any, kernel_size: Any, stride: Any, padding: Any) -> Any:
    """Each share spread over its window: a transposed convolution with ones, cut to the input's place."""
    kernel, steps, pads, _ = pairs_of("avg_pool2d", kernel_size, stride, padding, 1)
    planes = math.prod(input_shape[:-2])
    shares = F.reshape(grad / divisors, (planes, 1, *grad.shape[-2:]))
    ends = [p + n for p, n in zip(pads, input_shape[-2:], strict=True)]
    each = zip(ends, grad.shape[-2:], kernel, steps, strict=True)
    missed = tuple(max(end - ((n - 1) * s + k), 0) for end, n, k, s in each)
    ones = F.new_zeros(grad, (1, 1, *kernel)) + 1
    whole = F.convolution(shares, ones, None, steps, (0, 0), (1, 1), True, missed, 1)
    cut = [("slice", p, end, None) for p, end in zip(pads, ends, strict=True)]
    return F.reshape(F.getitem(whole, ("...", *cut)), tuple(input_shape))


avg_pool2d.derivative(input=_avg_grad)


def _two_or_three(name: str, input: Any) -> None:
    if len(input.shape) not in (2, 3):
        raise ShapeMismatch(
            f"Expected 2 to 3 dimensions, but got {len(input.shape)}-dimensional tensor for argument #1 'self' "
            f"(while checking arguments for {name})"
        )


@composite(
    functional=True,
    method=False,
    cases=[
        case(T(2, 3, 7), 2),
        case(T(3, 7), 3, 2, 1, True),
        case(T(2, 3, 7), 3, 2, 1, False, False),
        case(T(0, 1, 3), 2),
        case(T(3), 2),
        case(T(1, 3), 4),
        case(T(1, 3), (2, 2)),
    ],
)
def avg_pool1d(
    F: Any,
    input: Array,
    kernel_size: IntOrInts,
    stride: IntOrInts = None,
    padding: IntOrInts = 0,
    ceil_mode: Bool = False,
    count_include_pad: Bool = True,
) -> Any:
    """The average of each window of (N, C, L) or (C, L)."""
    _two_or_three("avg_pool1d", input)
    size, pad = (
        single(value, f"avg_pool1d() argument '{name}' should contain one int (got {{}})")
        for name, value in (("kernel_size", kernel_size), ("padding", padding))
    )
    step = single(
        size if stride in (None, ()) else stride, "avg_pool1d() argument 'stride' should contain one int (got {})"
    )
    rows = F.unsqueeze(input, -2)
    return F.squeeze(F.avg_pool2d(rows, (1, size), (1, step), (0, pad), ceil_mode, count_include_pad), -2)


# As many windows as asked for ----------------------------------------------------------------------------


def _adaptive_rule(input: Any, output_size: Any) -> Spec:
    shape = list(input.shape)
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


def _shares(xp: Any, n: int, count: int, dtype: Any) -> Any:
    """What each of ``n`` elements counts in each of ``count`` averages: windows from floor(on/c) to ceil((o+1)n/c)."""
    order, places = xp.arange(count)[:, None], xp.arange(n)
    starts, ends = order * n // max(count, 1), -((order + 1) * -n // max(count, 1))
    return ((places >= starts) & (places < ends)).astype(dtype) / (ends - starts).astype(dtype)


def _averages(xp: Any, input: Any, count: int) -> Any:
    """Averages along the last dimension."""
    n = input.shape[-1]
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
    cases=[case(T(2, 3, 5, 7), (2, 3)), case(T(2, 4, 6), (2, 3)), case(T(1, 2, 3, 3), (5, 4))],
)
def _adaptive_avg_pool2d(xp: Any, input: Array, output_size: IntOrInts) -> Any:
    """The averages of a grid of windows that cover an image."""
    rows, columns = (_shares(xp, n, count, input.dtype) for n, count in zip(input.shape[-2:], output_size, strict=True))
    across = xp.swapaxes(_averages(xp, input, output_size[1]), -1, -2)
    return xp.ascontiguousarray(xp.swapaxes(_averages(xp, across, output_size[0]), -1, -2)), rows, columns


_adaptive_avg_pool2d.derivative(
    input=lambda F, grad, rows, columns: F.matmul(F.matmul(F.transpose(rows, 0, 1), grad), columns)
)


@composite(
    namespace="torch.nn.functional",
    cases=[
        case(T(2, 3, 5, 7), (2, 3)),
        case(T(2, 3, 6, 6), 3),
        case(T(2, 3, 5), 1),
        case(T(2, 2, 3), (5, 4)),
        case(T(0, 3, 3, 3), 2),
        case(T(1, 3, 3, constant=True), 0),
        case(T(1, 3, 3), -1),
        case(T(1, 3, 3), (2,)),
        case(T(1, 3, 3), (2, 2, 2)),
        case(T(1, 3, 0), 2),
        case(T(3, 3), 2),
    ],
)
def adaptive_avg_pool2d(F: Any, input: Array, output_size: IntOrInts) -> Any:
    """The averages of a grid of ``output_size`` windows that cover each of (N, C, H, W) or (C, H, W)."""
    sizes = (output_size,) * 2 if isinstance(output_size, int) else tuple(output_size)
    if not isinstance(output_size, int) and len(input.shape) <= len(sizes):
        raise InvalidValue(f"Input dimension should be at least {len(sizes) + 1}")
    if len(sizes) != 2:
        raise ShapeMismatch("adaptive_avg_pool2d: output_size must be 2")
    return F.mean(input, (-1, -2), True) if sizes == (1, 1) else F._adaptive_avg_pool2d(input, sizes)


@composite(
    functional=True,
    method=False,
    cases=[
        case(T(2, 3, 7), 3),
        case(T(3, 4), 6),
        case(T(2, 3, 4), 1),
        case(T(1, 3, constant=True), 0),
        case(T(1, 3), (2, 2)),
        case(T(3), 2),
    ],
)
def adaptive_avg_pool1d(F: Any, input: Array, output_size: IntOrInts) -> Any:
    """The averages of ``output_size`` windows that cover each of (N, C, L) or (C, L)."""
    _two_or_three("adaptive_avg_pool1d", input)
    size = single(output_size, "adaptive_avg_pool1d() argument 'output_size' should contain one int (got {})")
    return F.squeeze(F.adaptive_avg_pool2d(F.unsqueeze(input, -2), (1, size)), -2)
