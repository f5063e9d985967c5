"""Images sampled at other places: resized, or along a grid."""

from __future__ import annotations

import math
from typing import Any

from ..cases import T, case
from ..dtypes import float32, int64
from ..errors import DTypeMismatch, InvalidOperation, InvalidValue, NotImplementedForDType, ShapeMismatch
from ..params import Array, IntOrInts, OptionalBool, OptionalNumber, Str
from ..registry import composite

# Along a grid --------------------------------------------------------------------------------------------


def _check_grid(input: Any, grid: Any, mode: str, padding_mode: str) -> None:
    if mode not in ("bilinear", "nearest"):
        raise InvalidValue(
            "nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: "
            f"'{mode}'" + " (bicubic is not supported here)" * (mode == "bicubic")
        )
    if padding_mode not in ("zeros", "border"):
        raise InvalidValue(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: "
            f"'{padding_mode}'" + " (reflection is not supported here)" * (padding_mode == "reflection")
        )
    shape, places = list(input.shape), list(grid.shape)
    both = f"input with sizes {shape} and grid with sizes {places}"
    if shape[:1] != places[:1]:
        raise ShapeMismatch(f"grid_sampler(): expected grid and input to have same batch size, but got {both}")
    if not places or places[-1] != len(shape) - 2:
        raise ShapeMismatch(
            f"grid_sampler(): expected grid to have size {len(shape) - 2} in last dimension, but got grid with "
            f"sizes {places}"
        )
    for axis, n in enumerate(shape[2:], 2):
        if not n:
            raise ShapeMismatch(
                "grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes "
                f"{shape} with dimension {axis} being empty"
            )
    if len(shape) != 4 or len(places) != 4:
        raise ShapeMismatch(
            f"grid_sampler(): expected 4D input and grid with same number of dimensions, but got {both}"
        )
    if not input.is_floating_point():
        raise NotImplementedForDType(
            f"\"grid_sampler_2d_cpu_kernel_impl\" not implemented for '{input.dtype.kernel_name}'"
        )
    if grid.dtype != input.dtype:
        raise DTypeMismatch(f"expected scalar type {input.dtype.kernel_name} but found {grid.dtype.kernel_name}")


def _coordinates(F: Any, grid: Any, axis: int, n: int, padding_mode: str, align_corners: bool) -> Any:
    """Places from -1 to 1 as indices of the elements, whose corners or centres are the extremes."""
    place = F.select(grid, -1, axis)
    at = (place + 1) / 2 * (n - 1) if align_corners else ((place + 1) * n - 1) / 2
    # torch passes no gradient on the border itself.
    return F.where((at > 0) & (at < n - 1), at, F.clamp(at.detach(), 0, n - 1)) if padding_mode == "border" else at


def _at(F: Any, input: Any, row: Any, column: Any) -> Any:
    """The elements (N, C, …) at whole-numbered rows and columns (N, …); beyond the image they are 0."""
    n, channels, height, width = input.shape
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    index = F.clamp(row, 0, height - 1) * width + F.clamp(column, 0, width - 1)
    index = F.to(F.where(inside, index, 0.0), dtype=int64)
    flat = F.reshape(input, (n, channels, height * width))
    spread = F.expand(F.reshape(index, (n, 1, index.shape[1] * index.shape[2])), (n, channels, -1))
    values = F.reshape(F.gather(flat, 2, spread), (n, channels, *index.shape[1:]))
    return F.where(F.unsqueeze(inside, 1), values, 0.0)


GRIDS = [
    case(T(2, 3, 4, 5), T(2, 3, 2, 2, low=-1.4, high=1.4)),
    case(T(2, 3, 4, 5), T(2, 3, 2, 2, low=-1.4, high=1.4), padding_mode="border"),
    case(T(2, 3, 4, 5), T(2, 3, 2, 2, low=-1.4, high=1.4), align_corners=True),
    case(T(2, 3, 4, 5), T(2, 3, 2, 2, low=-1.4, high=1.4), "nearest"),
    case(T(1, 1, 3, 3), T(1, 3, 2, 2, low=-1.4, high=1.4), "nearest", "border", True),
    case(T(0, 1, 3, 3, dtype="float32"), T(0, 2, 2, 2, dtype="float32")),
    case(T(1, 1, 3, 3), T(1, 2, 2, 3)),
    case(T(1, 1, 3, 3), T(2, 2, 2, 2)),
    case(T(1, 1, 3, 3), T(1, 2, 2, 2), "foo"),
]


@composite(namespace="torch.nn.functional", cases=GRIDS)
def grid_sample(
    F: Any,
    input: Array,
    grid: Array,
    mode: Str = "bilinear",
    padding_mode: Str = "zeros",
    align_corners: OptionalBool = None,
) -> Any:
    """Images (N, C, H, W) at the places (x, y), from -1 to 1, of a grid (N, H', W', 2)."""
    _check_grid(input, grid, mode, padding_mode)
    height, width = input.shape[2:]
    x = _coordinates(F, grid, 0, width, padding_mode, bool(align_corners))
    y = _coordinates(F, grid, 1, height, padding_mode, bool(align_corners))
    if mode == "nearest":
        # A weight that is always 1: so the grid has a gradient, of zeros, as in torch.
        one = F.clamp(F.round(x + y), 1, 1)
        return _at(F, input, F.round(y.detach()), F.round(x.detach())) * F.unsqueeze(one, 1)
    left, top = F.floor(x.detach()), F.floor(y.detach())
    right, down = x - left, y - top
    corners = (
        (top, left, (1 - down) * (1 - right)),
        (top, left + 1, (1 - down) * right),
        (top + 1, left, down * (1 - right)),
        (top + 1, left + 1, down * right),
    )
    parts = [_at(F, input, row, column) * F.unsqueeze(weight, 1) for row, column, weight in corners]
    return parts[0] + parts[1] + parts[2] + parts[3]


# Resized -------------------------------------------------------------------------------------------------

DIMENSIONS = {"linear": 3, "bilinear": 4, "trilinear": 5}
MODES = ("nearest", *DIMENSIONS)


def _output_sizes(sizes: list[int], size: Any, scale_factor: Any) -> tuple[int, ...]:
    if size is None and scale_factor is None:
        raise InvalidValue("either size or scale_factor should be defined")
    if size is not None and scale_factor is not None:
        raise InvalidValue("only one of size or scale_factor should be defined")
    if size is None:
        return tuple(math.floor(n * scale_factor) for n in sizes)
    if isinstance(size, int):
        return (size,) * len(sizes)
    if len(size) != len(sizes):
        raise InvalidValue(
            "Input and output must have the same number of spatial dimensions, but got input with spatial dimensions "
            f"of {sizes} and output size of {size}. Please provide input tensor in (N, C, d1, d2, ...,dK) format and "
            "output size in (o1, o2, ...,oK) format."
        )
    return tuple(size)


def _check_resize(input: Any, mode: str, out: tuple[int, ...]) -> None:
    shape = list(input.shape)
    ndim = len(shape)
    if ndim not in (3, 4, 5) or mode not in MODES:
        raise NotImplementedForDType(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {ndim}D) for the modes: "
            f"{' | '.join(MODES)} (got {mode})"
        )
    if ndim != DIMENSIONS.get(mode, ndim):
        raise NotImplementedForDType(f"Got {ndim}D input, but {mode} mode needs {DIMENSIONS[mode]}D input")
    if min(*shape[2:], *out) <= 0:
        names = {3: ("W",), 4: ("H", "W"), 5: ("D", "H", "W")}[ndim]
        before, after = (
            ", ".join(f"{name}: {n}" for name, n in zip(names, sizes, strict=True)) for sizes in (shape[2:], out)
        )
        raise InvalidOperation(
            f"Input and output sizes should be greater than 0, but got input ({before}) output ({after})"
        )
    if not shape[1]:
        raise ShapeMismatch(f"Non-empty {ndim}D data tensor expected but got a tensor with sizes {shape}")
    if not input.is_floating_point():
        kernel = f"upsample_{mode}{ndim - 2}d"
        raise NotImplementedForDType(f"\"{kernel}\" not implemented for '{input.dtype.kernel_name}'")


def _nearest(F: Any, input: Any, axis: int, count: int, scale: float) -> Any:
    # float32 whatever the input's dtype, as in torch: it decides ties.
    index = F.clamp(F.floor(F.arange(count, dtype=float32) * scale), max=input.shape[axis] - 1)
    return F.index_select(input, axis, F.to(index, dtype=int64))


def _linear(F: Any, input: Any, axis: int, count: int, scale: float, align_corners: bool) -> Any:
    n = input.shape[axis]
    order = F.arange(count, dtype=input.dtype)
    if align_corners:
        at = order * ((n - 1) / (count - 1) if count > 1 else 0.0)
    else:
        at = F.clamp((order + 0.5) * scale - 0.5, min=0)
    low = F.clamp(F.floor(at), max=n - 1)
    share = F.reshape(at - low, (-1,) + (1,) * (len(input.shape) - 1 - axis))
    first, second = (
        F.index_select(input, axis, F.to(place, dtype=int64)) for place in (low, F.clamp(low + 1, max=n - 1))
    )
    return first * (1 - share) + second * share


@composite(
    namespace="torch.nn.functional",
    cases=[
        case(T(2, 3, 4, 5), (7, 3)),
        case(T(2, 3, 4, 5), scale_factor=2),
        case(T(2, 3, 5), scale_factor=1.7),
        case(T(1, 2, 2, 3, 3), 4),
        case(T(2, 3, 4, 5), (7, 3), mode="bilinear"),
        case(T(2, 3, 4, 5), (7, 3), mode="bilinear", align_corners=True),
        case(T(2, 3, 4, 5), scale_factor=1.7, mode="bilinear", align_corners=False),
        case(T(2, 3, 4, 5), (1, 4), mode="bilinear", align_corners=True),
        case(T(2, 3, 5), 8, mode="linear"),
        case(T(1, 1, 2, 3, 3), 4, mode="trilinear"),
        case(T(0, 3, 4, 5), 2),
        case(T(1, 1, 3, 3)),
        case(T(1, 1, 3, 3), 2, 2.0),
        case(T(1, 1, 3, 3), (2,)),
        case(T(1, 1, 3), 2, mode="bilinear"),
        case(T(1, 1, 3, 3), 2, align_corners=False),
        case(T(1, 1, 3, 3), 0),
        case(T(1, 3), 2),
    ],
)
def interpolate(
    F: Any,
    input: Array,
    size: IntOrInts = None,
    scale_factor: OptionalNumber = None,
    mode: Str = "nearest",
    align_corners: OptionalBool = None,
) -> Any:
    """Signals, images or volumes (N, C, …) resized to ``size`` or by ``scale_factor``: nearest or linear."""
    if mode not in DIMENSIONS and align_corners is not None:
        raise InvalidValue(
            "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
        )
    out = _output_sizes(list(input.shape[2:]), size, scale_factor)
    _check_resize(input, mode, out)
    for axis, count in enumerate(out, 2):
        scale = 1 / scale_factor if scale_factor is not None else input.shape[axis] / count
        if mode == "nearest":
            input = _nearest(F, input, axis, count, scale)
        else:
            input = _linear(F, input, axis, count, scale, bool(align_corners))
    return input
