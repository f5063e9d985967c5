"""Pooling: the average of each window."""

from __future__ import annotations

from typing import Any

from ..dtypes import from_numpy, int64, is_floating
from ..errors import InvalidOperation, NotImplementedForDType
from ..schema.op import composite, op
from ..schema.parameters import Array, Bool, IntOrInts, Ints, OptionalInt
from ..shapes import Spec
from .pooling_windows import Windows, check_signal, planes_of, pooled, read_windows, single


def _average_rule(
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: Any = None,
) -> Spec:
    ndim = len(kernel_size)
    if divisor_override == 0:
        raise InvalidOperation("divisor must be not zero")
    kind = from_numpy(input.dtype)
    if input.dtype.kind in "iu" and kind is not int64:
        name = f"avg_pool{ndim}d{'_out_frame' if ndim == 3 else ''}"
        raise NotImplementedForDType(f"\"{name}\" not implemented for '{kind.kernel_name}'")
    return pooled(f"avg_pool{ndim}d", input, Windows(kernel_size, stride, padding, (1,) * ndim, ceil_mode))


def _divisors_rule(input: Any, *args: Any, **attrs: Any) -> tuple[Spec]:
    rule = _average_rule(input, *args, **attrs)
    kernel_size = args[0] if args else attrs["kernel_size"]
    return (Spec(rule.shape[-len(kernel_size) :], input.dtype),)


def _members(xp: Any, n: int, count: int, size: int, stride: int, padding: int, include_pad: bool) -> Any:
    """How many elements each window along one dimension counts."""
    starts = xp.arange(count) * stride - padding
    ends = xp.minimum(starts + size, n + padding)
    return ends - starts if include_pad else xp.minimum(ends, n) - xp.maximum(starts, 0)


def _sums(input: Any, axis: int, count: int, size: int, stride: int) -> Any:
    """The sums of the windows along one dimension."""
    rest = (slice(None),) * (-1 - axis)
    return sum(input[(..., slice(i, i + (count - 1) * stride + 1, stride), *rest)] for i in range(size))


@op(
    _average_rule,
    internal=True,
    method=False,
    node=lambda node: f"AvgPool{len(node.attrs['kernel_size'])}DBackward0",
    hidden=("divisors",),
    hidden_rule=_divisors_rule,
    scratch=2.0,
)
def average(
    xp: Any,
    input: Array,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: Bool,
    count_include_pad: Bool,
    divisor_override: OptionalInt = None,
) -> Any:
    """The average of each window over the last dimensions, and what each sum was divided by."""
    ndim = len(kernel_size)
    windows = Windows(kernel_size, stride, padding, (1,) * ndim, ceil_mode)
    sizes = input.shape[-ndim:]
    counts = windows.counts(sizes)
    sums = windows.reached(xp, input, 0)
    divisors = xp.ones((), int)
    for d, (n, count, size, step, pad) in enumerate(zip(sizes, counts, kernel_size, stride, padding, strict=True)):
        sums = _sums(sums, d - ndim, count, size, step)
        divisors = divisors[..., None] * _members(xp, n, count, size, step, pad, count_include_pad)
    if divisor_override is not None:
        divisors = xp.full(counts, divisor_override)
    divisors = divisors.astype(input.dtype)
    averages = sums / divisors if is_floating(input.dtype) else xp.trunc(sums / divisors).astype(input.dtype)
    return averages, divisors


def _average_grad(
    F: Any, grad: Any, divisors: Any, input_shape: Any, kernel_size: Any, stride: Any, padding: Any
) -> Any:
    """Each share spread over its window: a transposed convolution with ones, cut to the input's place."""
    ndim = len(kernel_size)
    shares = F.reshape(grad / divisors, (planes_of(input_shape, ndim), 1, *grad.shape[-ndim:]))
    ends = [p + n for p, n in zip(padding, input_shape[-ndim:], strict=True)]
    each = zip(ends, grad.shape[-ndim:], kernel_size, stride, strict=True)
    missed = tuple(max(end - ((n - 1) * s + k), 0) for end, n, k, s in each)
    ones = F.new_zeros(grad, (1, 1, *kernel_size)) + 1
    whole = F.convolution(shares, ones, None, stride, (0,) * ndim, (1,) * ndim, True, missed, 1)
    cut = [("slice", p, end, None) for p, end in zip(padding, ends, strict=True)]
    return F.reshape(F.getitem(whole, ("...", *cut)), tuple(input_shape))


average.derivative(input=_average_grad)


@composite(
    namespace="torch.nn.functional",
)
def avg_pool2d(
    F: Any,
    input: Array,
    kernel_size: IntOrInts,
    stride: IntOrInts = None,
    padding: IntOrInts = 0,
    ceil_mode: Bool = False,
    count_include_pad: Bool = True,
    divisor_override: OptionalInt = None,
) -> Any:
    """The average of each window of (N, C, H, W) or (C, H, W)."""
    windows = read_windows("avg_pool2d", 2, kernel_size, stride, padding)
    return F.average(input, *windows[:3], ceil_mode, count_include_pad, divisor_override)


@composite(
    namespace="torch.nn.functional",
)
def avg_pool3d(
    F: Any,
    input: Array,
    kernel_size: IntOrInts,
    stride: IntOrInts = None,
    padding: IntOrInts = 0,
    ceil_mode: Bool = False,
    count_include_pad: Bool = True,
    divisor_override: OptionalInt = None,
) -> Any:
    """The average of each window of (N, C, D, H, W) or (C, D, H, W)."""
    windows = read_windows("avg_pool3d", 3, kernel_size, stride, padding)
    return F.average(input, *windows[:3], ceil_mode, count_include_pad, divisor_override)


@composite(
    functional=True,
    method=False,
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
    check_signal("avg_pool1d", input)
    size, pad = (
        single(value, f"avg_pool1d() argument '{name}' should contain one int (got {{}})")
        for name, value in (("kernel_size", kernel_size), ("padding", padding))
    )
    step = single(
        size if stride in (None, ()) else stride, "avg_pool1d() argument 'stride' should contain one int (got {})"
    )
    rows = F.unsqueeze(input, -2)
    return F.squeeze(F.avg_pool2d(rows, (1, size), (1, step), (0, pad), ceil_mode, count_include_pad), -2)
