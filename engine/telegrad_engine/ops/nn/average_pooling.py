"""Average pooling, adaptive average pooling, norm pooling and local response normalization."""

from __future__ import annotations

import math
from typing import Any

from ...dtypes import int64, is_floating
from ...errors import DivisionByZero, DTypeMismatch, InvalidOperation, InvalidValue, ShapeMismatch
from ...schema.declaration import FUNCTION, INTERNAL, MAY_ALIAS, NN_FUNCTION, hiding, scratch
from ...schema.memory_admission import elements
from ...schema.op import Op, composite, op
from ...schema.parameters import Array, Bool, Int, IntOrInts, Ints, Number, OptionalInt, Sizes
from ...schema.promotion import FLOAT32_ON_CPU, PROMOTE_ON_CUDA, UNCAST
from ...shapes import Spec, size_at, wrap_dims
from ..batching import nn_rules
from ..guards import check_floats, no_kernel
from .pooling_windows import (
    INPUTS,
    Windows,
    check_not_empty,
    check_signal,
    left_out,
    planes_of,
    pooled,
    read_windows,
    single,
    sizes_of,
)


def _average_rule(
    input: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, divisor_override: Any
) -> Spec:
    ndim = len(kernel_size)
    if divisor_override == 0:
        raise InvalidOperation("divisor must be not zero")
    if input.dtype.kind in "iu" and input.dtype != int64.numpy:
        raise no_kernel(f"avg_pool{ndim}d{'_out_frame' if ndim == 3 else ''}", input)
    return pooled(f"avg_pool{ndim}d", input, Windows(kernel_size, stride, padding, (1,) * ndim, ceil_mode))


def _divisors_rule(input: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool) -> tuple[Spec]:
    ndim = len(kernel_size)
    counts = Windows(kernel_size, stride, padding, (1,) * ndim, ceil_mode).counts(input.shape[-ndim:])
    return (Spec(counts, input.dtype),)


def _members(xp: Any, n: int, count: int, size: int, stride: int, padding: int, include_pad: bool) -> Any:
    """The number of elements that each window along one dimension counts."""
    starts = xp.arange(count) * stride - padding
    ends = xp.minimum(starts + size, n + padding)
    return ends - starts if include_pad else xp.minimum(ends, n) - xp.maximum(starts, 0)


def _sums(input: Any, axis: int, count: int, size: int, stride: int) -> Any:
    """The sums of the windows along one dimension."""
    rest = (slice(None),) * (-1 - axis)
    return sum(input[(..., slice(i, i + (count - 1) * stride + 1, stride), *rest)] for i in range(size))


@op(
    _average_rule,
    variants=INTERNAL,
    node=lambda node: f"AvgPool{len(node.attrs['kernel_size'])}DBackward0",
    results=hiding("divisors", rule=_divisors_rule),
    memory=scratch(2.0),
    batching=nn_rules.pooled,
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
    """Spread each share over its window, by a transposed convolution with ones that is cropped to the input."""
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


def _declare_avg_pool(ndim: int) -> Op:
    def avg_pool(
        F: Any,
        input: Array,
        kernel_size: IntOrInts,
        stride: IntOrInts = None,
        padding: IntOrInts = 0,
        ceil_mode: Bool = False,
        count_include_pad: Bool = True,
        divisor_override: OptionalInt = None,
    ) -> Any:
        windows = read_windows(f"avg_pool{ndim}d", ndim, kernel_size, stride, padding)
        return F.average(input, *windows[:3], ceil_mode, count_include_pad, divisor_override)

    avg_pool.__doc__ = f"""The average of each window of {INPUTS[ndim]}."""
    return composite(key=f"avg_pool{ndim}d", variants=NN_FUNCTION, autocast=FLOAT32_ON_CPU if ndim == 3 else UNCAST)(
        avg_pool
    )


for _ndim in (2, 3):
    _declare_avg_pool(_ndim)


@composite(variants=FUNCTION | NN_FUNCTION)
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
    step = single(left_out(stride, size), "avg_pool1d() argument 'stride' should contain one int (got {})")
    rows = F.unsqueeze(input, -2)
    return F.squeeze(F.avg_pool2d(rows, (1, size), (1, step), (0, pad), ceil_mode, count_include_pad), -2)


# Adaptive average pooling --------------------------------------------------------------------------------


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
    check_not_empty("adaptive_avg_pool2d", shape, len(shape) - 2)
    if math.prod((*shape[:-2], *output_size)):
        check_floats("adaptive_avg_pool2d", input)
    return Spec((*shape[:-2], *output_size), input.dtype)


def _adaptive_scratch(input: Any, output_size: Any) -> int:
    """The scratch bytes: the averages of one dimension, copies, and an array's object for each window."""
    between = math.prod(input.shape[:-1]) * output_size[1]
    averages = between + elements(input) + math.prod(input.shape[:-2]) * math.prod(output_size)
    return int(12 * averages + 400 * sum(output_size))


def _averages(xp: Any, input: Any, count: int) -> Any:
    """The averages of ``count`` adaptive windows along the last dimension."""
    n = input.shape[-1]
    if count and n in (count * 2, count * 3, count * 4):  # small windows of one size are summed at once
        size = n // count
        return sum(input[..., i::size] for i in range(size)) / size
    windows = [input[..., o * n // count : -((o + 1) * -n // count)] for o in range(count)]
    if not windows:
        return xp.zeros((*input.shape[:-1], 0), input.dtype)
    return xp.stack([xp.mean(window, axis=-1) for window in windows], axis=-1)


@op(
    _adaptive_rule,
    variants=INTERNAL,
    node="AdaptiveAvgPool2DBackward0",
    memory=scratch(_adaptive_scratch),
    batching=nn_rules.pooled,
)
def _adaptive_avg_pool2d(xp: Any, input: Array, output_size: Ints) -> Any:
    """The averages of a grid of windows that cover an image."""
    across = xp.swapaxes(_averages(xp, input, output_size[1]), -1, -2)
    return xp.ascontiguousarray(xp.swapaxes(_averages(xp, across, output_size[0]), -1, -2))


def _shared_back(F: Any, grad: Any, n: int) -> Any:
    """The gradient of ``_averages``: each of ``n`` elements gets the shares of the windows that it is in."""
    count, axis = grad.shape[-1], len(grad.shape) - 1
    if not count:
        return F.new_zeros(grad, (*grad.shape[:-1], n))
    windows, places = F.arange(count), F.arange(n)
    shares = grad / (-((windows + 1) * -n // count) - windows * n // count)
    first, last = places * count // n, ((places + 1) * count - 1) // n
    most = max(((i + 1) * count - 1) // n - i * count // n for i in range(n)) + 1
    total = F.index_select(shares, axis, first)
    for i in range(1, most):
        part = F.index_select(shares, axis, F.clamp(first + i, max=count - 1))
        total = total + F.where(first + i <= last, part, 0.0)
    return total


def _adaptive_grad(F: Any, grad: Any, input_shape: Any) -> Any:
    down = F.transpose(_shared_back(F, F.transpose(grad, -1, -2), input_shape[-2]), -1, -2)
    return _shared_back(F, down, input_shape[-1])


_adaptive_avg_pool2d.derivative(input=_adaptive_grad)


@composite(variants=NN_FUNCTION)
def adaptive_avg_pool2d(F: Any, input: Array, output_size: Sizes) -> Any:
    """The averages of a grid of ``output_size`` windows that cover each of (N, C, H, W) or (C, H, W)."""
    sizes = sizes_of(input, output_size, 2)
    if len(sizes) != 2:
        raise ShapeMismatch("adaptive_avg_pool2d: output_size must be 2")
    return F.mean(input, (-1, -2), True) if sizes == (1, 1) else F._adaptive_avg_pool2d(input, sizes)


@composite(variants=FUNCTION | NN_FUNCTION)
def adaptive_avg_pool1d(F: Any, input: Array, output_size: IntOrInts) -> Any:
    """The averages of ``output_size`` windows that cover each of (N, C, L) or (C, L)."""
    check_signal("adaptive_avg_pool1d", input)
    size = single(output_size, "adaptive_avg_pool1d() argument 'output_size' should contain one int (got {})")
    return F.squeeze(F.adaptive_avg_pool2d(F.unsqueeze(input, -2), (1, size)), -2)


@composite(variants=NN_FUNCTION, autocast=FLOAT32_ON_CPU)
def adaptive_avg_pool3d(F: Any, input: Array, output_size: Sizes) -> Any:
    """The averages of a grid of ``output_size`` windows that cover each of (N, C, D, H, W) or (C, D, H, W)."""
    sizes = sizes_of(input, output_size, 3)
    shape = tuple(input.shape)
    if output_size == 1:  # torch computes the mean here, which checks dimensions first
        wrap_dims((-1, -2, -3), len(shape))
    _check_volumes(input, shape, sizes)
    if sizes == (1, 1, 1):
        return F.mean(input, (-1, -2, -3), True)
    # Depth is pooled after height and width: a window's average is the average of its slices' averages.
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
    check_not_empty("adaptive_avg_pool3d", shape)
    if sizes != (1, 1, 1):
        check_floats("adaptive_avg_pool3d_cpu", input)


# Norm pooling, local response normalization and bilinear products ----------------------------------------


def _norm_of_means(F: Any, means: Any, norm_type: float, size: int) -> Any:
    """Turn the means of powers over windows of ``size`` elements into norms; the means keep their sign."""
    if not norm_type:
        raise DivisionByZero("float division by zero")
    return F.pow(F.sign(means) * F.relu(F.abs(means)) * size, 1.0 / norm_type)


@composite(variants=NN_FUNCTION)
def lp_pool1d(
    F: Any, input: Array, norm_type: Number, kernel_size: Int, stride: IntOrInts = None, ceil_mode: Bool = False
) -> Any:
    """The ``norm_type``-th root of the sums of that power over windows of (N, C, L) or (C, L)."""
    means = F.avg_pool1d(F.pow(input, norm_type), kernel_size, stride, 0, ceil_mode)
    return _norm_of_means(F, means, norm_type, kernel_size)


def _declare_lp_pool(ndim: int) -> Op:
    def lp_pool(
        F: Any,
        input: Array,
        norm_type: Number,
        kernel_size: IntOrInts,
        stride: IntOrInts = None,
        ceil_mode: Bool = False,
    ) -> Any:
        sizes = (kernel_size,) * ndim if isinstance(kernel_size, int) else kernel_size
        if len(sizes) != ndim:
            few = len(sizes) < ndim
            raise InvalidValue(
                f"{'not enough' if few else 'too many'} values to unpack (expected {ndim}{f', got {len(sizes)}' * few})"
            )
        pool = F.avg_pool2d if ndim == 2 else F.avg_pool3d
        means = pool(F.pow(input, norm_type), kernel_size, stride, 0, ceil_mode)
        return _norm_of_means(F, means, norm_type, math.prod(sizes))

    lp_pool.__doc__ = f"""The ``norm_type``-th root of the sums of that power over windows of {INPUTS[ndim]}."""
    return composite(key=f"lp_pool{ndim}d", variants=NN_FUNCTION)(lp_pool)


for _ndim in (2, 3):
    _declare_lp_pool(_ndim)


@composite(variants=NN_FUNCTION, memory=MAY_ALIAS)
def local_response_norm(
    F: Any, input: Array, size: Int, alpha: Number = 1e-4, beta: Number = 0.75, k: Number = 1.0
) -> Any:
    """``input`` over ``(k + alpha * mean of squares) ** beta``, the mean over ``size`` neighbouring channels."""
    if input.ndim < 3:
        gap = " " * 26  # as in torch's error text
        raise InvalidValue(f"Expected 3D or higher dimensionality{gap}input (got {input.ndim} dimensions)")
    if not input.numel():
        return input
    whole = not input.is_floating_point()
    if whole and input.dtype is not int64:
        raise no_kernel("avg_pool2d" if input.ndim == 3 else "avg_pool3d_out_frame", input)
    channels = input.shape[1]
    before, after = size // 2, (size - 1) // 2
    beside = (0, 0) * (input.ndim - 2)
    squares = F.pad(input * input, (*beside, before, after))
    total = F.narrow(squares, 1, 0, channels)
    for i in range(1, size):
        total = total + F.narrow(squares, 1, i, channels)
    mean = F.div(total, size, rounding_mode="trunc") if whole else total / size  # integers average to integers
    return input / F.pow(mean * alpha + k, beta)


@composite(variants=FUNCTION | NN_FUNCTION, autocast=PROMOTE_ON_CUDA)
def bilinear(F: Any, input1: Array, input2: Array, weight: Array, bias: Array = None) -> Any:
    """``input1 @ weight[k] @ input2 + bias[k]`` for each feature k of the result: (…, features)."""
    if input1.ndim != input2.ndim:
        raise ShapeMismatch(f"bilinear(): input dimensions do not match: got {input1.ndim} and {input2.ndim}")
    for dim, (n, m) in enumerate(zip(input1.shape[:-1], input2.shape[:-1], strict=True)):
        if n != m:
            raise ShapeMismatch(f"bilinear(): input batch dimensions do not match at dim {dim}: got {n} and {m}")
    for i, x in enumerate((input1, input2), 1):
        width, expected = size_at(x.shape, -1), size_at(weight.shape, i)
        if width != expected:
            raise ShapeMismatch(
                f"bilinear(): input{i} size does not match weight size: got {width} but expected {expected}"
            )
    if bias is not None and size_at(bias.shape, 0) != weight.shape[0]:
        raise ShapeMismatch(
            f"bilinear(): bias size does not match weight size: got {bias.shape[0]} but expected {weight.shape[0]}"
        )
    given = {"input1": input1, "input2": input2, "weight": weight, "bias": bias}
    kinds = {name: x.dtype.c_name for name, x in given.items() if x is not None}
    if len(set(kinds.values())) > 1:
        named = ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
        raise DTypeMismatch(f"All tensors must have the same dtype, got {named}")
    result = F.einsum("...i,kij,...j->...k", [input1, weight, input2])
    return result if bias is None else result + bias
