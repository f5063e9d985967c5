"""Images and volumes sampled at the places that a grid names."""

from __future__ import annotations

import itertools
import math
from typing import Any

from ..dtypes import int64
from ..errors import DTypeMismatch, InvalidOperation, InvalidValue, NotImplementedForDType, ShapeMismatch
from ..schema.op import composite
from ..schema.parameters import Array, Bool, Int, OptionalBool, Str
from ..shapes import size_at


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
    if size_at(tuple(shape), 0) != size_at(tuple(places), 0):
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
    """The elements of each plane of a batch (N, C, …) one after the other, and a zero for what lies beyond."""

    def __init__(self, F: Any, input: Any) -> None:
        self.F = F
        self.planes, self.sizes = tuple(input.shape[:2]), tuple(input.shape[2:])
        self.count = math.prod(self.sizes) + 1
        flat = F.constant_pad_nd(F.reshape(input, (*self.planes, self.count - 1)), (0, 1))
        self.flat = F.reshape(flat, (math.prod(flat.shape),))

    def weighed(self, taps: list[list[tuple[Any, Any]]]) -> Any:
        """The sums (N, C, …) of elements at whole-numbered indices (N, …) times weights.

        ``taps`` has these pairs for each dimension; each combination of them is an element, its weight their product.
        All elements are looked up at once.
        """
        F = self.F
        lines = [[self._line(index, n) for index, _ in taps[d]] for d, n in enumerate(self.sizes)]
        places, weights = [], []
        for corner in itertools.product(*(range(len(each)) for each in taps)):
            flat, inside = lines[0][corner[0]]
            for d, tap in enumerate(corner[1:], 1):
                place, within = lines[d][tap]
                flat, inside = flat * self.sizes[d] + place, F.logical_and(inside, within)
            places.append(F.where(inside, flat, self.count - 1))
            weights.append(math.prod(taps[d][tap][1] for d, tap in enumerate(corner)))
        return self._sums(F.stack(places, 1), F.stack(weights, 1))

    def _line(self, index: Any, n: int) -> tuple[Any, Any]:
        """An index along one dimension, brought inside, and where it was inside."""
        F = self.F
        return F.to(F.clamp(index, 0, n - 1), dtype=int64), F.logical_and(index >= 0, index < n)

    def _sums(self, places: Any, weights: Any) -> Any:
        F, (n, channels) = self.F, self.planes
        _, taps, *shape = places.shape
        spots = (n, 1, taps, math.prod(shape))
        starts = F.reshape(F.arange(n * channels) * self.count, (n, channels, 1, 1))
        every = F.reshape(places, spots) + starts
        found = F.index_select(self.flat, 0, F.reshape(every, (math.prod(every.shape),)))
        parts = F.reshape(found, tuple(every.shape)) * F.reshape(weights, spots)
        return F.reshape(F.sum(parts, (2,)), (n, channels, *shape))


# Between elements ----------------------------------------------------------------------------------------


def _nearest(F: Any, elements: _Elements, at: list[Any]) -> Any:
    # A weight that is always 1: so the grid has a gradient, of zeros, as in torch.
    ones = [F.clamp(F.round(place), 1, 1) for place in at]
    return elements.weighed([[(F.round(place.detach()), one)] for place, one in zip(at, ones, strict=True)])


def _linear(F: Any, elements: _Elements, at: list[Any]) -> Any:
    taps = []
    for place in at:
        low = F.floor(place.detach())
        share = place - low
        taps.append([(low, 1 - share), (low + 1, share)])
    return elements.weighed(taps)


def cubic_weights(share: Any) -> list[Any]:
    """The weights of the four nearest elements, ``share`` past the second (Keys 1981, with a = -0.75 as in torch)."""
    a = -0.75

    def near(x: Any) -> Any:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Any) -> Any:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(share + 1), near(share), near(1 - share), far(2 - share)]


def _cubic(F: Any, elements: _Elements, at: list[Any], padding_mode: str, align_corners: bool) -> Any:
    taps = []
    for place, n in zip(at, elements.sizes, strict=True):
        low = F.floor(place.detach())
        # Not the place between but each of the sixteen elements is brought inside.
        near = [_brought_inside(F, low + step, n, padding_mode, align_corners) for step in (-1, 0, 1, 2)]
        taps.append(list(zip(near, cubic_weights(place - low), strict=True)))
    return elements.weighed(taps)


@composite(namespace="torch.nn.functional")
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
        return _cubic(F, elements, at, padding_mode, corners)
    at = [_brought_inside(F, place, n, padding_mode, corners) for place, n in zip(at, sizes, strict=True)]
    return _nearest(F, elements, at) if mode == "nearest" else _linear(F, elements, at)


MODES = ("bilinear", "nearest", "bicubic")
PADDINGS = ("zeros", "border", "reflection")


def _words(mode: int, padding: int) -> tuple[str, str]:
    """The words for the numbers of modes. Raises RuntimeError for other numbers, for which torch reads anywhere."""
    if mode not in range(len(MODES)) or padding not in range(len(PADDINGS)):
        raise InvalidOperation(f"grid_sampler(): there is no interpolation mode {mode} with padding mode {padding}")
    return MODES[mode], PADDINGS[padding]


@composite(method=False, aliases=("grid_sampler_2d",))
def grid_sampler(
    F: Any, input: Array, grid: Array, interpolation_mode: Int, padding_mode: Int, align_corners: Bool
) -> Any:
    """``nn.functional.grid_sample``, with its modes as numbers."""
    return F.grid_sample(input, grid, *_words(interpolation_mode, padding_mode), align_corners)


@composite(method=False)
def grid_sampler_3d(
    F: Any, input: Array, grid: Array, interpolation_mode: Int, padding_mode: Int, align_corners: Bool
) -> Any:
    """``nn.functional.grid_sample`` of volumes, with its modes as numbers."""
    return F.grid_sample(input, grid, *_words(interpolation_mode, padding_mode), align_corners)
