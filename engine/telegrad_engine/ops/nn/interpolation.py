"""Resizing of signals, images and volumes, and sampling them at the points of a grid."""

from __future__ import annotations

import itertools
import math
from typing import Any

from ...dtypes import float32, from_numpy, int64, is_floating
from ...errors import InvalidArgument, InvalidOperation, InvalidValue, NotImplementedForDType, ShapeMismatch
from ...schema.declaration import FUNCTION, NN_FUNCTION, hiding, scratch
from ...schema.op import composite, op
from ...schema.parameters import (
    Array,
    Bool,
    Int,
    IntOrInts,
    Ints,
    NumberKind,
    OptionalBool,
    OptionalItems,
    OptionalNumber,
    Str,
)
from ...schema.promotion import FLOAT32_ON_CUDA, Autocast, Policy
from ...shapes import Spec, size_at, torch_size
from ..batching import nn_rules
from ..guards import check_dtype, check_floats, no_kernel

SAMPLING_MODES = ("bilinear", "nearest", "bicubic")
PADDING_MODES = ("zeros", "border", "reflection")


def _check_grid(input: Any, grid: Any, mode: str, padding_mode: str) -> None:
    if mode not in SAMPLING_MODES:
        raise InvalidValue(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    if padding_mode not in PADDING_MODES:
        raise InvalidValue(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: "
            f"'{padding_mode}'"
        )
    shape, places = list(input.shape), list(grid.shape)
    both = f"input with sizes {shape} and grid with sizes {places}"
    if size_at(tuple(shape), 0) != size_at(tuple(places), 0):
        raise ShapeMismatch(f"grid_sampler(): expected grid and input to have same batch size, but got {both}")
    if not places or places[-1] != len(shape) - 2:
        expected = f"expected grid to have size {len(shape) - 2} in last dimension"
        raise ShapeMismatch(f"grid_sampler(): {expected}, but got grid with sizes {places}")
    if 0 in shape[2:]:
        raise ShapeMismatch(
            "grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes "
            f"{shape} with dimension {shape.index(0, 2)} being empty"
        )
    if len(shape) not in (4, 5) or len(places) != len(shape):
        raise ShapeMismatch(
            f"grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got {both}"
        )
    if len(shape) == 5 and mode == "bicubic":
        raise InvalidOperation("grid_sampler(): bicubic interpolation only supports 4D input")
    check_floats("grid_sampler_2d_cpu_kernel_impl" if len(shape) == 4 else "grid_sampler3d_cpu", input)
    check_dtype(grid, input.dtype)


def _brought_inside(F: Any, at: Any, n: int, padding_mode: str, align_corners: bool) -> Any:
    """Map indices beyond the image into it by ``padding_mode``; "zeros" leaves them unchanged."""
    if padding_mode == "reflection":
        at = _reflected(F, at, n, align_corners)
    if padding_mode == "zeros":
        return at
    # As in torch, there is no gradient on the border itself.
    return F.where(F.logical_and(at > 0, at < n - 1), at, F.clamp(at.detach(), 0, n - 1))


def _reflected(F: Any, at: Any, n: int, align_corners: bool) -> Any:
    """Reflect indices at the centres of the outermost elements, or at their outer edges."""
    low, span = (0.0, n - 1) if align_corners else (-0.5, n)
    if not span:
        return at * 0
    away = F.abs(at - low)
    turns = F.floor(away.detach() / span)
    rest = away - turns * span
    return F.where(F.remainder(turns, 2) == 0, rest, span - rest) + low


def cubic_weights(share: Any) -> list[Any]:
    """The weights of the four nearest elements, for a position ``share`` after the second.

    Keys 1981, with a = -0.75 as in torch.
    """
    a = -0.75

    def near(x: Any) -> Any:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Any) -> Any:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(share + 1), near(share), near(1 - share), far(2 - share)]


def _taps(F: Any, at: Any, n: int, mode: str, padding_mode: str, align_corners: bool) -> list[tuple[Any, Any]]:
    """The indices and weights of the elements that contribute to a sample at index ``at`` along one dimension."""
    if mode == "bicubic":
        low = F.floor(at.detach())
        # Each element's index is mapped into the image, not the sample's.
        near = [_brought_inside(F, low + step, n, padding_mode, align_corners) for step in (-1, 0, 1, 2)]
        return list(zip(near, cubic_weights(at - low), strict=True))
    at = _brought_inside(F, at, n, padding_mode, align_corners)
    if mode == "nearest":
        # A constant weight of 1, so that the grid has a gradient, of zeros, as in torch.
        return [(F.round(at.detach()), F.clamp(F.round(at), 1, 1))]
    low = F.floor(at.detach())
    share = at - low
    return [(low, 1 - share), (low + 1, share)]


def _weighted_sums(F: Any, input: Any, taps: list[list[tuple[Any, Any]]]) -> Any:
    """The weighted sums (N, C, …) of elements of images (N, C, …) that are 0 outside, with a single lookup.

    ``taps`` has indices (N, …) and weights for each dimension: each combination is an element, weighted by the product.
    """
    n, channels, *sizes = input.shape
    count = math.prod(sizes) + 1  # the last element is the 0 outside the image
    lines = [
        [
            (F.to(F.clamp(index, 0, size - 1), dtype=int64), F.logical_and(index >= 0, index < size), weight)
            for index, weight in pairs
        ]
        for pairs, size in zip(taps, sizes, strict=True)
    ]
    places, weights = [], []
    for (place, inside, weight), *others in itertools.product(*lines):
        for size, (index, within, factor) in zip(sizes[1:], others, strict=True):
            place, inside, weight = place * size + index, F.logical_and(inside, within), weight * factor
        places.append(F.where(inside, place, count - 1))
        weights.append(weight)
    shape = places[0].shape[1:]
    spots = (n, 1, len(places), math.prod(shape))
    starts = F.reshape(F.arange(n * channels) * count, (n, channels, 1, 1))
    every = F.reshape(F.stack(places, 1), spots) + starts
    padded = F.constant_pad_nd(F.reshape(input, (n * channels, count - 1)), (0, 1))
    found = F.index_select(F.reshape(padded, (n * channels * count,)), 0, F.reshape(every, (math.prod(every.shape),)))
    parts = F.reshape(found, tuple(every.shape)) * F.reshape(F.stack(weights, 1), spots)
    return F.reshape(F.sum(parts, (2,)), (n, channels, *shape))


@composite(variants=NN_FUNCTION, autocast=Autocast(cpu=Policy.FLOAT32, cuda=Policy.PROMOTE))
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
    taps, corners = [], bool(align_corners)
    for axis, n in enumerate(reversed(input.shape[2:])):  # a grid lists the last dimension first
        # From positions to indices: -1 and 1 are the outermost elements' centres or outer edges.
        place = F.select(grid, -1, axis)
        at = (place + 1) / 2 * (n - 1) if corners else ((place + 1) * n - 1) / 2
        taps.append(_taps(F, at, n, mode, padding_mode, corners))
    return _weighted_sums(F, input, taps[::-1])


def _mode_names(mode: int, padding: int) -> tuple[str, str]:
    """The names of the modes with these numbers. Raises for other numbers, with which torch reads out of bounds."""
    if mode not in range(len(SAMPLING_MODES)) or padding not in range(len(PADDING_MODES)):
        raise InvalidOperation(f"grid_sampler(): there is no interpolation mode {mode} with padding mode {padding}")
    return SAMPLING_MODES[mode], PADDING_MODES[padding]


@composite(aliases=("grid_sampler_2d",), variants=FUNCTION)
def grid_sampler(
    F: Any, input: Array, grid: Array, interpolation_mode: Int, padding_mode: Int, align_corners: Bool
) -> Any:
    """``nn.functional.grid_sample``, with its modes as numbers."""
    return F.grid_sample(input, grid, *_mode_names(interpolation_mode, padding_mode), align_corners)


@composite(variants=FUNCTION)
def grid_sampler_3d(
    F: Any, input: Array, grid: Array, interpolation_mode: Int, padding_mode: Int, align_corners: Bool
) -> Any:
    """``nn.functional.grid_sample`` of volumes, with its modes as numbers."""
    return F.grid_sample(input, grid, *_mode_names(interpolation_mode, padding_mode), align_corners)


# Affine grids --------------------------------------------------------------------------------------------


def _grid_rule(theta: Any, size: Any) -> Spec:
    if not is_floating(theta.dtype):
        raise InvalidValue(f"Expected theta to have floating point type, but got {from_numpy(theta.dtype)!r}")
    ndim, shape = len(size) - 2, list(theta.shape)
    if ndim not in (2, 3):
        raise NotImplementedForDType(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size "
            f"{tuple(size)}."
        )
    if len(shape) != 3 or shape[1:] != [ndim, ndim + 1]:
        raise InvalidValue(
            f"Expected a batch of {ndim}D affine matrices of shape Nx{ndim}x{ndim + 1} for size {tuple(size)}. Got "
            f"{torch_size(shape)}."
        )
    if min(size) <= 0:
        raise InvalidValue(f"Expected non-zero, positive output size. Got {tuple(size)}")
    if size[0] != shape[0]:
        raise ShapeMismatch(
            f"Expected size for first two dimensions of batch2 tensor to be: [{size[0]}, {ndim + 1}] but got: "
            f"[{shape[0]}, {ndim + 1}]."
        )
    return Spec((size[0], *size[2:], ndim), theta.dtype)


def _corners(xp: Any, n: int, aligned: bool, dtype: Any) -> Any:
    """``n`` element centres from -1 to 1; the extremes are the outer centres if ``aligned``, else the outer edges."""
    if n == 1:
        return xp.zeros((1,), dtype)
    places = xp.linspace(-1, 1, n)
    return (places if aligned else places * ((n - 1) / n)).astype(dtype)


def _base(xp: Any, sizes: Any, aligned: bool, dtype: Any) -> Any:
    """The grid before the affine map, as rows (x, y, …, 1)."""
    ndim = len(sizes)
    axes = [
        xp.reshape(_corners(xp, n, aligned, dtype), [-1 if d == axis else 1 for d in range(ndim)])
        for axis, n in enumerate(sizes)
    ]
    columns = [xp.broadcast_to(places, sizes) for places in (*axes[::-1], xp.ones((1,) * ndim, dtype))]
    return xp.reshape(xp.stack(columns, axis=-1), (math.prod(sizes), ndim + 1))


@op(
    _grid_rule,
    variants=NN_FUNCTION,
    node="AffineGridGeneratorBackward0",
    results=hiding("base", rule=lambda theta, size: (Spec((math.prod(size[2:]), len(size) - 1), theta.dtype),)),
    memory=scratch(2.0),
    batching=nn_rules.affine_grid,
)
def affine_grid(xp: Any, theta: Array, size: Ints, align_corners: OptionalBool = None) -> Any:
    """Where affine maps ``theta`` (N, 2, 3) send each element of images of ``size`` (N, C, H, W): (N, H, W, 2).

    Positions are (x, y) from -1 to 1. For volumes, ``theta`` is (N, 3, 4) and the result (N, D, H, W, 3).
    """
    base = _base(xp, tuple(size[2:]), bool(align_corners), theta.dtype)
    grid = xp.matmul(base, xp.swapaxes(theta, -1, -2))
    return xp.reshape(grid, (size[0], *size[2:], len(size) - 2)), base


affine_grid.derivative(
    theta=lambda F, grad, theta_shape, base: F.matmul(
        F.transpose(F.reshape(grad, (theta_shape[0], -1, theta_shape[1])), -1, -2), base
    )
)


# Resizing ------------------------------------------------------------------------------------------------

DIMENSIONS = {"linear": 3, "bilinear": 4, "bicubic": 4, "trilinear": 5}
ALIGNING = "linear | bilinear | bicubic | trilinear"
RESIZE_MODES = ("nearest", *DIMENSIONS, "area", "nearest-exact")
ALL_MODES = f"nearest | {ALIGNING} | lanczos | area | nearest-exact"


def _per_dim(sizes: list[int], scale_factor: Any) -> tuple[float, ...]:
    """Return one scale factor per spatial dimension."""
    if not isinstance(scale_factor, tuple):
        return (scale_factor,) * len(sizes)
    if len(scale_factor) != len(sizes):
        raise InvalidValue(
            "Input and scale_factor must have the same number of spatial dimensions, but got input with spatial "
            f"dimensions of {sizes} and scale_factor of shape {list(scale_factor)}. Please provide input tensor in "
            "(N, C, d1, d2, ...,dK) format and scale_factor in (s1, s2, ...,sK) format."
        )
    return scale_factor


def _scaled(n: int, factor: Any) -> int:
    try:
        factor = NumberKind().parse(factor)
    except TypeError:
        kind = type(factor).__name__
        raise InvalidArgument(f"interpolate(): argument 'scale_factor' must be Number, not {kind}") from None
    if not abs(n * factor) < 2**63:
        raise InvalidOperation("value cannot be converted to type int64_t without overflow")
    return int(n * factor)


def _output_sizes(sizes: list[int], size: Any, scale_factor: Any) -> tuple[int, ...]:
    if size is None and scale_factor is None:
        raise InvalidValue("either size or scale_factor should be defined")
    if size is not None and scale_factor is not None:
        raise InvalidValue("only one of size or scale_factor should be defined")
    if size is None:
        factors = _per_dim(sizes, scale_factor)
        return tuple(_scaled(n, factor) for n, factor in zip(sizes, factors, strict=True))
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
    if ndim not in (3, 4, 5) or mode not in RESIZE_MODES or (mode == "bicubic" and ndim != 4):
        raise NotImplementedForDType(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {ndim}D) for the modes: {ALL_MODES} "
            f"(got {mode})"
        )
    if ndim != DIMENSIONS.get(mode, ndim):
        raise NotImplementedForDType(f"Got {ndim}D input, but {mode} mode needs {DIMENSIONS[mode]}D input")
    if min(*shape[2:], *out) <= 0:
        names = "DHW"[5 - ndim :]
        before, after = (", ".join(map("{}: {}".format, names, sizes)) for sizes in (shape[2:], out))
        raise InvalidOperation(
            f"Input and output sizes should be greater than 0, but got input ({before}) output ({after})"
        )
    if not shape[1]:
        raise ShapeMismatch(f"Non-empty {ndim}D data tensor expected but got a tensor with sizes {shape}")
    if not input.is_floating_point() and not (mode.startswith("nearest") and input.dtype.name == "uint8"):
        kernel = "compute_indices_weights_cubic" if mode == "bicubic" else f"upsample_{mode}{ndim - 2}d"
        raise no_kernel(kernel, input)


def _resize_nearest(F: Any, input: Any, axis: int, count: int, scale: float, offset: float) -> Any:
    # float32 for every input dtype, as in torch, because the rounding decides ties.
    index = F.clamp(F.floor((F.arange(count, dtype=float32) + offset) * scale), max=input.shape[axis] - 1)
    return F.index_select(input, axis, F.to(index, dtype=int64))


def _resize_between(F: Any, input: Any, axis: int, count: int, scale: float, mode: str, align_corners: bool) -> Any:
    """Resize ``axis`` to ``count`` weighted sums of neighbours; edge elements are repeated beyond the edges."""
    last, trailing = input.shape[axis] - 1, (1,) * (len(input.shape) - 1 - axis)
    at = F.arange(count, dtype=input.dtype)
    at = at * (last / (count - 1) if count > 1 else 0.0) if align_corners else (at + 0.5) * scale - 0.5
    if mode == "bicubic":
        low = F.floor(at)
        first, weights = -1, cubic_weights(at - low)
    else:
        at = F.clamp(at, min=0)
        low = F.clamp(F.floor(at), max=last)
        first, weights = 0, [1 - (at - low), at - low]
    result = None
    for step, weight in enumerate(weights, first):
        index = F.to(F.clamp(low + step, 0, last), dtype=int64)
        part = F.index_select(input, axis, index) * F.reshape(weight, (-1, *trailing))
        result = part if result is None else result + part
    return result


@composite(variants=NN_FUNCTION, autocast=FLOAT32_ON_CUDA)
def interpolate(
    F: Any,
    input: Array,
    size: IntOrInts = None,
    scale_factor: OptionalNumber = None,
    mode: Str = "nearest",
    align_corners: OptionalBool = None,
    recompute_scale_factor: OptionalBool = None,
) -> Any:
    """Signals, images or volumes (N, C, …) resized to ``size`` or by ``scale_factor``.

    ``mode`` is "nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear" or "area".
    """
    if mode not in DIMENSIONS and align_corners is not None:
        raise InvalidValue(f"align_corners option can only be set with the interpolating modes: {ALIGNING}")
    sizes = list(input.shape[2:])
    out = _output_sizes(sizes, size, scale_factor)
    if recompute_scale_factor and size is not None:
        raise InvalidValue("recompute_scale_factor is not meaningful with an explicit size.")
    if mode == "area" and len(sizes) in (1, 2, 3):
        return getattr(F, f"adaptive_avg_pool{len(sizes)}d")(input, out)
    _check_resize(input, mode, out)
    for axis, count in enumerate(out, 2):
        given = scale_factor is not None and not recompute_scale_factor
        scale = 1 / _per_dim(sizes, scale_factor)[axis - 2] if given else input.shape[axis] / count
        if mode.startswith("nearest"):
            input = _resize_nearest(F, input, axis, count, scale, 0.5 if mode == "nearest-exact" else 0.0)
        else:
            input = _resize_between(F, input, axis, count, scale, mode, bool(align_corners))
    return input


@composite(key="interpolate.factors", variants=NN_FUNCTION)
def interpolate_factors(
    F: Any,
    input: Array,
    size: IntOrInts = None,
    scale_factor: OptionalItems = None,
    mode: Str = "nearest",
    align_corners: OptionalBool = None,
    recompute_scale_factor: OptionalBool = None,
) -> Any:
    """The same by a factor for each dimension."""
    return interpolate.raw(F, input, size, scale_factor, mode, align_corners, recompute_scale_factor)
