"""Powers summed over neighbours, in space (norm pooling) or among channels; and products of two features."""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import int64
from ..errors import DivisionByZero, DTypeMismatch, InvalidValue, NotImplementedForDType, ShapeMismatch
from ..schema.op import composite
from ..schema.parameters import Array, Bool, Int, IntOrInts, Number
from ..shapes import size_at


def _power_mean(F: Any, means: Any, norm_type: float, size: int) -> Any:
    """The norm from the mean of powers over ``size`` elements, with the sign that odd powers may leave."""
    if not norm_type:
        raise DivisionByZero("float division by zero")
    return F.pow(F.sign(means) * F.relu(F.abs(means)) * size, 1.0 / norm_type)


@composite(namespace="torch.nn.functional")
def lp_pool1d(
    F: Any, input: Array, norm_type: Number, kernel_size: Int, stride: IntOrInts = None, ceil_mode: Bool = False
) -> Any:
    """The ``norm_type``-th root of the sums of that power over windows of (N, C, L) or (C, L)."""
    means = F.avg_pool1d(F.pow(input, norm_type), kernel_size, stride, 0, ceil_mode)
    return _power_mean(F, means, norm_type, kernel_size)


@composite(
    namespace="torch.nn.functional",
)
def lp_pool2d(
    F: Any, input: Array, norm_type: Number, kernel_size: IntOrInts, stride: IntOrInts = None, ceil_mode: Bool = False
) -> Any:
    """The ``norm_type``-th root of the sums of that power over windows of (N, C, H, W) or (C, H, W)."""
    sizes = (kernel_size,) * 2 if isinstance(kernel_size, int) else kernel_size
    if len(sizes) != 2:
        few = len(sizes) < 2
        raise InvalidValue(
            f"{'not enough' if few else 'too many'} values to unpack (expected 2{f', got {len(sizes)}' * few})"
        )
    means = F.avg_pool2d(F.pow(input, norm_type), kernel_size, stride, 0, ceil_mode)
    return _power_mean(F, means, norm_type, sizes[0] * sizes[1])


@composite(
    namespace="torch.nn.functional",
)
def lp_pool3d(
    F: Any, input: Array, norm_type: Number, kernel_size: IntOrInts, stride: IntOrInts = None, ceil_mode: Bool = False
) -> Any:
    """The ``norm_type``-th root of the sums of that power over windows of (N, C, D, H, W) or (C, D, H, W)."""
    sizes = (kernel_size,) * 3 if isinstance(kernel_size, int) else kernel_size
    means = F.avg_pool3d(F.pow(input, norm_type), kernel_size, stride, 0, ceil_mode)
    return _power_mean(F, means, norm_type, math.prod(sizes))


@composite(
    may_alias=True,
    namespace="torch.nn.functional",
)
def local_response_norm(
    F: Any, input: Array, size: Int, alpha: Number = 1e-4, beta: Number = 0.75, k: Number = 1.0
) -> Any:
    """``input`` over ``(k + alpha * mean of squares) ** beta``, the mean over ``size`` neighbouring channels."""
    if input.ndim < 3:
        gap = " " * 26  # torch's
        raise InvalidValue(f"Expected 3D or higher dimensionality{gap}input (got {input.ndim} dimensions)")
    if not input.numel():
        return input
    whole = not input.is_floating_point()
    if whole and input.dtype is not int64:
        kernel = "avg_pool2d" if input.ndim == 3 else "avg_pool3d_out_frame"
        raise NotImplementedForDType(f"\"{kernel}\" not implemented for '{input.dtype.kernel_name}'")
    channels = input.shape[1]
    before, after = size // 2, (size - 1) // 2
    beside = (0, 0) * (input.ndim - 2)
    squares = F.pad(input * input, (*beside, before, after))
    total = F.narrow(squares, 1, 0, channels)
    for i in range(1, size):
        total = total + F.narrow(squares, 1, i, channels)
    mean = F.div(total, size, rounding_mode="trunc") if whole else total / size  # whole numbers average to whole ones
    return input / F.pow(mean * alpha + k, beta)


@composite(
    functional=True,
    method=False,
)
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
