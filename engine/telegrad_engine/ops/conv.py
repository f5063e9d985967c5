"""Convolutions as they are called: of one, two and three dimensions, and transposed ones."""

from __future__ import annotations

from typing import Any

from ..cases import T, case
from ..errors import InvalidOperation, ShapeMismatch
from ..params import Array, Int, IntOrInts, Str
from ..registry import composite
from ..specs import Shape
from .convolution import per_dim, spans


def _batched(F: Any, name: str, ndim: int, input: Any, weight: Any, bias: Any, attrs: tuple[Any, ...]) -> Any:
    """The convolution of an input with or without a batch dimension."""
    shape = list(input.shape)
    if len(shape) not in (ndim + 1, ndim + 2):
        raise ShapeMismatch(
            f"Expected {ndim + 1}D (unbatched) or {ndim + 2}D (batched) input to {name}, but got input of size: {shape}"
        )
    if len(shape) == ndim + 2:
        return F.convolution(input, weight, bias, *attrs)
    return F.squeeze(F.convolution(F.unsqueeze(input, 0), weight, bias, *attrs), 0)


def _convolve(
    F: Any, ndim: int, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    stride, dilation = per_dim("stride", stride, ndim), per_dim("dilation", dilation, ndim)
    if isinstance(padding, str):
        input, padding = _padding_named(F, padding, ndim, input, weight, stride, dilation)
    padding = per_dim("padding", padding, ndim)
    attrs = (stride, padding, dilation, False, (0,) * ndim, groups)
    return _batched(F, f"conv{ndim}d", ndim, input, weight, bias, attrs)


def _padding_named(
    F: Any, padding: str, ndim: int, input: Any, weight: Any, stride: Shape, dilation: Shape
) -> tuple[Any, Shape]:
    """The padding that "valid" or "same" means; an odd one is put at the end, into the input itself."""
    if padding == "valid":
        return input, (0,) * ndim
    if padding != "same":
        raise InvalidOperation(f"Invalid padding string: '{padding}'")
    if any(s != 1 for s in stride):
        raise InvalidOperation("padding='same' is not supported for strided convolutions")
    total = tuple(span - 1 for span in spans(weight.shape, dilation))
    if any(n % 2 for n in total):
        shape = tuple(input.shape)
        lead = len(shape) - ndim
        size = (*shape[:lead], *[n + t % 2 for n, t in zip(shape[lead:], total, strict=True)])
        input = F.getitem_scatter(input, size, tuple(("slice", 0, n, 1) for n in shape))
    return input, tuple(n // 2 for n in total)


def _transpose(
    F: Any,
    ndim: int,
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Any:
    numbers = {"stride": stride, "padding": padding, "dilation": dilation, "output_padding": output_padding}
    stride, padding, dilation, output_padding = (per_dim(name, value, ndim) for name, value in numbers.items())
    attrs = (stride, padding, dilation, True, output_padding, groups)
    return _batched(F, f"conv_transpose{ndim}d", ndim, input, weight, bias, attrs)


@composite(
    functional=True,
    method=False,
    cases=[
        case(T(2, 4, 5), T(6, 2, 3), T(6), (2,), 1, (1,), 2),
        case(T(3, 5), T(2, 3, 3)),
        case(T(0, 3, 5), T(2, 3, 3), T(2)),
        case(T(2, 3, 5), T(2, 2, 3)),
        case(T(1, 1, 1), T(2, 1, 3)),
    ],
)
def conv1d(
    F: Any,
    input: Array,
    weight: Array,
    bias: Array = None,
    stride: IntOrInts = 1,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    groups: Int = 1,
) -> Any:
    """The correlation of signals (N, C, L) or (C, L) with a weight (O, C / groups, …)."""
    return _convolve(F, 1, input, weight, bias, stride, padding, dilation, groups)


@composite(
    key="conv1d.padding",
    functional=True,
    method=False,
    cases=[
        case(T(2, 3, 5), T(2, 3, 3), None, 1, "same"),
        case(T(3, 5), T(2, 3, 3), T(2), padding="valid", stride=2),
        case(T(2, 3, 5), T(2, 3, 3), padding="same", dilation=2),
        case(T(2, 3, 5), T(2, 3, 3), padding="same", stride=2),
        case(T(2, 3, 5), T(2, 3, 3), padding="full"),
    ],
)
def conv1d_padding(
    F: Any,
    input: Array,
    weight: Array,
    bias: Array = None,
    stride: IntOrInts = 1,
    padding: Str = "valid",
    dilation: IntOrInts = 1,
    groups: Int = 1,
) -> Any:
    """The same with padding "valid", none, or "same", as much as keeps the size."""
    return _convolve(F, 1, input, weight, bias, stride, padding, dilation, groups)


@composite(
    functional=True,
    method=False,
    cases=[
        case(T(2, 4, 5, 6), T(6, 2, 3, 2), T(6), (2, 1), 1, (1, 2), 2),
        case(T(3, 5, 6), T(2, 3, 3, 2)),
        case(T(0, 3, 5, 6), T(2, 3, 3, 2), T(2)),
        case(T(2, 3, 5, 6), T(2, 2, 3, 2)),
        case(T(1, 1, 1, 1), T(2, 1, 3, 2)),
        case(T(2, 3, 5, 6), T(2, 3, 5, 6)),
        case(T(3, 5), T(2, 3, 3, 2)),
        case(T(2, 3, 5, 6), T(2, 3, 3, 2), T(3)),
        case(T(2, 3, 5, 6), T(2, 3, 3, 2), stride=(1, 1, 1)),
        case(T(2, 3, 5, 6), T(2, 3, 1, 1, dtype="bool")),
        case(T(4, 1, 7, 7), T(3, 1, 3, 3), T(3), stride=3),
        case(T(2, 4, 5, 6), T(3, 2, 3, 3), groups=2),
    ],
)
def conv2d(
    F: Any,
    input: Array,
    weight: Array,
    bias: Array = None,
    stride: IntOrInts = 1,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    groups: Int = 1,
) -> Any:
    """The correlation of images (N, C, H, W) or (C, H, W) with a weight (O, C / groups, …)."""
    return _convolve(F, 2, input, weight, bias, stride, padding, dilation, groups)


@composite(
    key="conv2d.padding",
    functional=True,
    method=False,
    cases=[
        case(T(2, 3, 5, 6), T(2, 3, 3, 2), None, 1, "same"),
        case(T(3, 5, 6), T(2, 3, 3, 2), T(2), padding="valid", stride=2),
        case(T(2, 3, 5, 6), T(2, 3, 3, 2), padding="same", dilation=2),
        case(T(2, 3, 5, 6), T(2, 3, 3, 2), padding="same", stride=2),
        case(T(2, 3, 5, 6), T(2, 3, 3, 2), padding="full"),
    ],
)
def conv2d_padding(
    F: Any,
    input: Array,
    weight: Array,
    bias: Array = None,
    stride: IntOrInts = 1,
    padding: Str = "valid",
    dilation: IntOrInts = 1,
    groups: Int = 1,
) -> Any:
    """The same with padding "valid", none, or "same", as much as keeps the size."""
    return _convolve(F, 2, input, weight, bias, stride, padding, dilation, groups)


@composite(
    functional=True,
    method=False,
    cases=[
        case(T(2, 4, 3, 4, 4), T(6, 2, 2, 3, 1), T(6), (2, 1, 1), 1, (1, 2, 1), 2),
        case(T(3, 3, 4, 4), T(2, 3, 2, 3, 1)),
        case(T(0, 3, 3, 4, 4), T(2, 3, 2, 3, 1), T(2)),
        case(T(2, 3, 3, 4, 4), T(2, 2, 2, 3, 1)),
        case(T(1, 1, 1, 1, 1), T(2, 1, 2, 3, 1)),
    ],
)
def conv3d(
    F: Any,
    input: Array,
    weight: Array,
    bias: Array = None,
    stride: IntOrInts = 1,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    groups: Int = 1,
) -> Any:
    """The correlation of volumes (N, C, D, H, W) or (C, D, H, W) with a weight (O, C / groups, …)."""
    return _convolve(F, 3, input, weight, bias, stride, padding, dilation, groups)


@composite(
    key="conv3d.padding",
    functional=True,
    method=False,
    cases=[
        case(T(2, 3, 3, 4, 4), T(2, 3, 2, 3, 1), None, 1, "same"),
        case(T(3, 3, 4, 4), T(2, 3, 2, 3, 1), T(2), padding="valid", stride=2),
        case(T(2, 3, 3, 4, 4), T(2, 3, 2, 3, 1), padding="same", dilation=2),
        case(T(2, 3, 3, 4, 4), T(2, 3, 2, 3, 1), padding="same", stride=2),
        case(T(2, 3, 3, 4, 4), T(2, 3, 2, 3, 1), padding="full"),
    ],
)
def conv3d_padding(
    F: Any,
    input: Array,
    weight: Array,
    bias: Array = None,
    stride: IntOrInts = 1,
    padding: Str = "valid",
    dilation: IntOrInts = 1,
    groups: Int = 1,
) -> Any:
    """The same with padding "valid", none, or "same", as much as keeps the size."""
    return _convolve(F, 3, input, weight, bias, stride, padding, dilation, groups)


@composite(
    functional=True,
    method=False,
    cases=[
        case(T(2, 4, 5), T(4, 3, 3), T(6), (2,), 1, (1,), 2, (1,)),
        case(T(3, 5), T(3, 2, 3)),
        case(T(0, 3, 5), T(3, 2, 3), T(2)),
        case(T(2, 3, 5), T(3, 2, 3), dilation=3, output_padding=2),
        case(T(2, 3, 5), T(3, 2, 3), output_padding=1),
        case(T(2, 4, 5), T(3, 2, 3)),
        case(T(1, 1, 1), T(1, 1, 1), padding=1),
    ],
)
def conv_transpose1d(
    F: Any,
    input: Array,
    weight: Array,
    bias: Array = None,
    stride: IntOrInts = 1,
    padding: IntOrInts = 0,
    output_padding: IntOrInts = 0,
    groups: Int = 1,
    dilation: IntOrInts = 1,
) -> Any:
    """The transpose of ``conv1d`` as a linear map, with a weight (C, O / groups, …)."""
    return _transpose(F, 1, input, weight, bias, stride, padding, output_padding, groups, dilation)


@composite(
    functional=True,
    method=False,
    cases=[
        case(T(2, 4, 5, 6), T(4, 3, 3, 2), T(6), (2, 3), 1, (1, 2), 2, (1, 2)),
        case(T(3, 5, 6), T(3, 2, 3, 2)),
        case(T(0, 3, 5, 6), T(3, 2, 3, 2), T(2)),
        case(T(2, 3, 5, 6), T(3, 2, 3, 2), dilation=3, output_padding=2),
        case(T(2, 3, 5, 6), T(3, 2, 3, 2), output_padding=1),
        case(T(2, 4, 5, 6), T(3, 2, 3, 2)),
        case(T(1, 1, 1, 1), T(1, 1, 1, 1), padding=1),
    ],
)
def conv_transpose2d(
    F: Any,
    input: Array,
    weight: Array,
    bias: Array = None,
    stride: IntOrInts = 1,
    padding: IntOrInts = 0,
    output_padding: IntOrInts = 0,
    groups: Int = 1,
    dilation: IntOrInts = 1,
) -> Any:
    """The transpose of ``conv2d`` as a linear map, with a weight (C, O / groups, …)."""
    return _transpose(F, 2, input, weight, bias, stride, padding, output_padding, groups, dilation)
