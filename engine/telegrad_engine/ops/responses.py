"""Powers summed over neighbours, in space (norm pooling) or among channels; and products of two features."""

from __future__ import annotations

from typing import Any

from ..cases import T, case
from ..errors import InvalidValue, ShapeMismatch
from ..params import Array, Bool, Int, IntOrInts, Number
from ..registry import composite

POOLS = [case(T(2, 3, 7), 2, 3), case(T(3, 6), 3, 2, 1), case(T(1, 2, 7), 1.5, 2, stride=3, ceil_mode=True)]


def _power_mean(F: Any, means: Any, norm_type: float, size: int) -> Any:
    """The norm from the mean of powers over ``size`` elements, with the sign that odd powers may leave."""
    return F.pow(F.sign(means) * F.relu(F.abs(means)) * size, 1.0 / norm_type)


@composite(namespace="torch.nn.functional", cases=POOLS)
def lp_pool1d(
    F: Any, input: Array, norm_type: Number, kernel_size: Int, stride: IntOrInts = None, ceil_mode: Bool = False
) -> Any:
    """The ``norm_type``-th root of the sums of that power over windows of (N, C, L) or (C, L)."""
    means = F.avg_pool1d(F.pow(input, norm_type), kernel_size, stride, 0, ceil_mode)
    return _power_mean(F, means, norm_type, kernel_size)


@composite(
    namespace="torch.nn.functional",
    cases=[case(T(2, 3, 6, 4), 2, 2), case(T(1, 5, 6), 3, (2, 3), 1), case(T(1, 1, 5, 5), 2, 2, ceil_mode=True)],
)
def lp_pool2d(
    F: Any, input: Array, norm_type: Number, kernel_size: IntOrInts, stride: IntOrInts = None, ceil_mode: Bool = False
) -> Any:
    """The ``norm_type``-th root of the sums of that power over windows of (N, C, H, W) or (C, H, W)."""
    rows, columns = (kernel_size,) * 2 if isinstance(kernel_size, int) else kernel_size
    means = F.avg_pool2d(F.pow(input, norm_type), kernel_size, stride, 0, ceil_mode)
    return _power_mean(F, means, norm_type, rows * columns)


@composite(
    namespace="torch.nn.functional",
    cases=[
        case(T(2, 5, 3, dtype="float32"), 3),
        case(T(2, 4, 3, 2, dtype="float64"), 2, 0.1, 0.5, 2.0),
        case(T(1, 6, 2, 2, 2, dtype="float64"), 4, k=0.5),
        case(T(0, 3, 2), 2),
        case(T(2, 3), 2),
    ],
)
def local_response_norm(
    F: Any, input: Array, size: Int, alpha: Number = 1e-4, beta: Number = 0.75, k: Number = 1.0
) -> Any:
    """``input`` over ``(k + alpha * mean of squares) ** beta``, the mean over ``size`` neighbouring channels."""
    if input.ndim < 3:
        raise InvalidValue(f"Expected 3D or higher dimensionality input (got {input.ndim} dimensions)")
    if not input.numel():
        return input
    channels = input.shape[1]
    before, after = size // 2, (size - 1) // 2
    beside = (0, 0) * (input.ndim - 2)
    squares = F.pad(input * input, (*beside, before, after))
    total = F.narrow(squares, 1, 0, channels)
    for i in range(1, size):
        total = total + F.narrow(squares, 1, i, channels)
    return input / F.pow(total * (alpha / size) + k, beta)


@composite(
    functional=True,
    method=False,
    cases=[
        case(T(4, 2), T(4, 3), T(5, 2, 3), T(5)),
        case(T(2, 4, 2), T(2, 4, 3), T(1, 2, 3)),
        case(T(2), T(3), T(5, 2, 3)),
        case(T(4, 2), T(3, 3), T(5, 2, 3)),
        case(T(4, 2), T(4, 3), T(5, 3, 3)),
    ],
)
def bilinear(F: Any, input1: Array, input2: Array, weight: Array, bias: Array = None) -> Any:
    """``input1 @ weight[k] @ input2 + bias[k]`` for each feature k of the result: (…, features)."""
    if input1.ndim != input2.ndim:
        raise ShapeMismatch(f"bilinear(): input dimensions do not match: got {input1.ndim} and {input2.ndim}")
    for i, (x, size) in enumerate(((input1, weight.shape[1]), (input2, weight.shape[2])), 1):
        if tuple(x.shape[:-1]) != tuple(input1.shape[:-1]) or x.shape[-1] != size:
            raise ShapeMismatch(
                f"bilinear(): input{i} of shape {list(x.shape)} does not match input1 of shape {list(input1.shape)} "
                f"and weight of shape {list(weight.shape)}"
            )
    result = F.einsum("...i,kij,...j->...k", [input1, weight, input2])
    return result if bias is None else result + bias
