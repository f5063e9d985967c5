"""Images and volumes sampled at the places that a grid names."""

from __future__ import annotations

import itertools
import math
from typing import Any

from ..cases import T, case
from ..dtypes import int64
from ..errors import DTypeMismatch, InvalidOperation, InvalidValue, NotImplementedForDType, ShapeMismatch
from ..params import Array, OptionalBool, Str
from ..registry import composite


def _check_grid(input: Any, grid: Any, mode: str, padding_mode: str) -> None:
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise InvalidValue(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise InvalidValue(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: "
            f"'{padding_mode}'"
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
    if len(shape) not in (4, 5) or len(places) != len(shape):
        raise ShapeMismatch(
            f"grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got {both}"
        )
    if len(shape) == 5 and mode == "bicubic":
        raise InvalidOperation("grid_sampler(): bicubic interpolation only supports 4D input")
    if not input.is_floating_point():
        kernel = "grid_sampler_2d_cpu_kernel_impl" if len(shape) == 4 else "grid_sampler3d_cpu"
        raise NotImplementedForDType(f"\"{kernel}\" not implemented for '{input.dtype.kernel_name}'")
    if grid.dtype != input.dtype:
        raise DTypeMismatch(f"expected scalar type {input.dtype.kernel_name} but found {grid.dtype.kernel_name}")


# Places --------------------------------------------------------------------------------------------------


def _indices(place: Any, n: int, align_corners: bool) -> Any:
    """Places from -1 to 1 as indices of elements, whose centres or outer edges are the extremes."""
    return (place + 1) / 2 * (n - 1) if align_corners else ((place + 1) * n - 1) / 2


def _brought_inside(F: Any, at: Any, n: int, padding_mode: str, align_corners: bool) -> Any:
    """Indices beyond the image as those that they stand for."""
    if padding_mode == "reflection":
        at = _reflected(F, at, n, align_corners)
    if padding_mode == "zeros":
        return at
    # torch passes no gradient on the border itself.
    return F.where(F.logical_and(at > 0, at < n - 1), at, F.clamp(at.detach(), 0, n - 1))


def _reflected(F: Any, at: Any, n: int, align_corners: bool) -> Any:
    """Indices mirrored at the centres of the outermost elements, or at their outer edges."""
    low, span = (0.0, n - 1) if align_corners else (-0.5, n)
    if not span:
        return at * 0
    away = F.abs(at - low)
    turns = F.floor(away.detach() / span)
    rest = away - turns * span
    return F.where(F.remainder(turns, 2) == 0, rest, span - rest) + low


class _Elements:
    """The elements of a batch (N, C, …) as rows, to be looked up by index."""

    def __init__(self, F: Any, input: Any) -> None:
        n, channels, *self.sizes = input.shape
        self.F = F
        self.rows = F.reshape(F.movedim(input, 1, -1), (n * math.prod(self.sizes), channels))

    def at(self, index: Any) -> Any:
        """Those at whole-numbered indices, a list of (N, …) for each dimension; beyond the image they are 0."""
        F = self.F
        inside = None
        flat: Any = 0
        for place, n in zip(index, self.sizes, strict=True):
            within = F.logical_and(place >= 0, place < n)
            inside = within if inside is None else F.logical_and(inside, within)
            flat = flat * n + F.clamp(place, 0, n - 1)
        flat = F.to(F.where(inside, flat, 0.0), dtype=int64)
        batch = F.reshape(F.arange(flat.shape[0]), (-1, *(1,) * (flat.dim() - 1))) * math.prod(self.sizes)
        found = F.index_select(self.rows, 0, F.reshape(flat + batch, (-1,)))
        found = F.reshape(found, (*flat.shape, self.rows.shape[1]))
        return F.where(F.unsqueeze(inside, -1), found, 0.0)


# Between elements ----------------------------------------------------------------------------------------


def _nearest(F: Any, elements: _Elements, at: list[Any]) -> Any:
    # A weight that is always 1: so the grid has a gradient, of zeros, as in torch.
    one = F.clamp(F.round(sum(at[1:], at[0])), 1, 1)
    return elements.at([F.round(place.detach()) for place in at]) * F.unsqueeze(one, -1)


def _linear(F: Any, elements: _Elements, at: list[Any]) -> Any:
    lows = [F.floor(place.detach()) for place in at]
    shares = [place - low for place, low in zip(at, lows, strict=True)]
    result = None
    for corner in itertools.product((0, 1), repeat=len(at)):
        weight = None
        for share, upper in zip(shares, corner, strict=True):
            factor = share if upper else 1 - share
            weight = factor if weight is None else weight * factor
        index = [low + upper for low, upper in zip(lows, corner, strict=True)]
        part = elements.at(index) * F.unsqueeze(weight, -1)
        result = part if result is None else result + part
    return result


def cubic_weights(share: Any) -> list[Any]:
    """The weights of the four nearest elements, ``share`` past the second (Keys 1981, with a = -0.75 as in torch)."""
    a = -0.75

    def near(x: Any) -> Any:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Any) -> Any:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(share + 1), near(share), near(1 - share), far(2 - share)]


def _cubic(F: Any, elements: _Elements, at: list[Any], padding_mode: str, align_corners: bool) -> Any:
    lows = [F.floor(place.detach()) for place in at]
    weights = [cubic_weights(place - low) for place, low in zip(at, lows, strict=True)]
    # Not the place between but each of the sixteen elements is brought inside.
    taps = [
        [_brought_inside(F, low + step, n, padding_mode, align_corners) for step in (-1, 0, 1, 2)]
        for low, n in zip(lows, elements.sizes, strict=True)
    ]
    result = None
    for i, j in itertools.product(range(4), repeat=2):
        part = elements.at([taps[0][i], taps[1][j]]) * F.unsqueeze(weights[0][i] * weights[1][j], -1)
        result = part if result is None else result + part
    return result


PLACES = T(2, 3, 2, 2, low=-1.4, high=1.4)
GRIDS = [
    *[
        case(T(2, 3, 4, 5), PLACES, mode, padding_mode, align_corners)
        for mode in ("bilinear", "nearest", "bicubic")
        for padding_mode in ("zeros", "border", "reflection")
        for align_corners in (False, True)
    ],
    case(T(2, 3, 4, 5), T(2, 3, 2, 2, low=-5.0, high=5.0), padding_mode="reflection"),
    case(T(2, 1, 3, 4, 5), T(2, 2, 1, 2, 3, low=-1.4, high=1.4)),
    case(T(2, 1, 3, 4, 5), T(2, 2, 1, 2, 3, low=-1.4, high=1.4), "nearest", "border"),
    case(T(0, 1, 3, 3, dtype="float32"), T(0, 2, 2, 2, dtype="float32")),
    case(T(1, 1, 3, 3), T(1, 2, 2, 3)),
    case(T(1, 1, 3, 3), T(2, 2, 2, 2)),
    case(T(1, 1, 3, 3), T(1, 2, 2, 2), "foo"),
    case(T(1, 1, 3, 3, 3), T(1, 2, 2, 2, 3), "bicubic"),
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
    """Images (N, C, H, W) at the places (x, y), from -1 to 1, of a grid (N, H', W', 2); or volumes at (x, y, z)."""
    _check_grid(input, grid, mode, padding_mode)
    corners = bool(align_corners)
    elements = _Elements(F, input)
    sizes = elements.sizes
    at = [_indices(F.select(grid, -1, len(sizes) - 1 - d), n, corners) for d, n in enumerate(sizes)]
    if mode == "bicubic":
        result = _cubic(F, elements, at, padding_mode, corners)
    else:
        at = [_brought_inside(F, place, n, padding_mode, corners) for place, n in zip(at, sizes, strict=True)]
        result = _nearest(F, elements, at) if mode == "nearest" else _linear(F, elements, at)
    return F.movedim(result, -1, 1)
