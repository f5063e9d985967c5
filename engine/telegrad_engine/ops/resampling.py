"""Signals, images and volumes resized."""

from __future__ import annotations

from typing import Any

from ..dtypes import float32, int64
from ..errors import InvalidArgument, InvalidOperation, InvalidValue, NotImplementedForDType, ShapeMismatch
from ..schema.op import composite
from ..schema.parameters import Array, IntOrInts, NumberKind, OptionalBool, OptionalItems, OptionalNumber, Str
from .grid import cubic_weights

DIMENSIONS = {"linear": 3, "bilinear": 4, "bicubic": 4, "trilinear": 5}
ALIGNING = "linear | bilinear | bicubic | trilinear"
MODES = ("nearest", *DIMENSIONS, "area", "nearest-exact")
ALL_MODES = f"nearest | {ALIGNING} | lanczos | area | nearest-exact"


def _per_dim(sizes: list[int], scale_factor: Any) -> tuple[float, ...]:
    """A scale factor for each spatial dimension."""
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
    if ndim not in (3, 4, 5) or mode not in MODES:
        raise NotImplementedForDType(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {ndim}D) for the modes: "
            f"{ALL_MODES} (got {mode})"
        )
    if mode == "bicubic" and ndim != 4:
        raise NotImplementedForDType(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {ndim}D) for the modes: {ALL_MODES} "
            f"(got {mode})"
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
    if not input.is_floating_point() and not (mode.startswith("nearest") and input.dtype.name == "uint8"):
        kernel = "compute_indices_weights_cubic" if mode == "bicubic" else f"upsample_{mode}{ndim - 2}d"
        raise NotImplementedForDType(f"\"{kernel}\" not implemented for '{input.dtype.kernel_name}'")


def _nearest(F: Any, input: Any, axis: int, count: int, scale: float, offset: float) -> Any:
    # float32 whatever the input's dtype, as in torch: it decides ties.
    index = F.clamp(F.floor((F.arange(count, dtype=float32) + offset) * scale), max=input.shape[axis] - 1)
    return F.index_select(input, axis, F.to(index, dtype=int64))


def _places(F: Any, input: Any, axis: int, count: int, scale: float, align_corners: bool) -> Any:
    """Where in the input each element of the output lies along ``axis``."""
    order = F.arange(count, dtype=input.dtype)
    if align_corners:
        return order * ((input.shape[axis] - 1) / (count - 1) if count > 1 else 0.0)
    return (order + 0.5) * scale - 0.5


def _weighed(F: Any, input: Any, axis: int, low: Any, weights: list[Any], first: int) -> Any:
    """The sums of neighbours along ``axis``, from ``first`` past ``low`` on; the outermost elements are repeated."""
    last, trailing = input.shape[axis] - 1, (1,) * (len(input.shape) - 1 - axis)
    result = None
    for step, weight in enumerate(weights, first):
        index = F.to(F.clamp(low + step, 0, last), dtype=int64)
        part = F.index_select(input, axis, index) * F.reshape(weight, (-1, *trailing))
        result = part if result is None else result + part
    return result


def _linear(F: Any, input: Any, axis: int, count: int, scale: float, align_corners: bool) -> Any:
    at = F.clamp(_places(F, input, axis, count, scale, align_corners), min=0)
    low = F.clamp(F.floor(at), max=input.shape[axis] - 1)
    return _weighed(F, input, axis, low, [1 - (at - low), at - low], 0)


def _cubic(F: Any, input: Any, axis: int, count: int, scale: float, align_corners: bool) -> Any:
    at = _places(F, input, axis, count, scale, align_corners)
    low = F.floor(at)
    return _weighed(F, input, axis, low, cubic_weights(at - low), -1)


def _resized(
    F: Any, input: Any, size: Any, scale_factor: Any, mode: str, align_corners: bool | None, recompute: bool | None
) -> Any:
    if mode not in DIMENSIONS and align_corners is not None:
        raise InvalidValue(f"align_corners option can only be set with the interpolating modes: {ALIGNING}")
    sizes = list(input.shape[2:])
    out = _output_sizes(sizes, size, scale_factor)
    if recompute and size is not None:
        raise InvalidValue("recompute_scale_factor is not meaningful with an explicit size.")
    if mode == "area" and len(sizes) in (1, 2):
        return F.adaptive_avg_pool1d(input, out) if len(sizes) == 1 else F.adaptive_avg_pool2d(input, out)
    _check_resize(input, mode, out)
    for axis, count in enumerate(out, 2):
        given = scale_factor is not None and not recompute
        scale = 1 / _per_dim(sizes, scale_factor)[axis - 2] if given else input.shape[axis] / count
        if mode.startswith("nearest"):
            input = _nearest(F, input, axis, count, scale, 0.5 if mode == "nearest-exact" else 0.0)
        else:
            along = _cubic if mode == "bicubic" else _linear
            input = along(F, input, axis, count, scale, bool(align_corners))
    return input


@composite(
    namespace="torch.nn.functional",
)
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
    return _resized(F, input, size, scale_factor, mode, align_corners, recompute_scale_factor)


@composite(
    key="interpolate.factors",
    namespace="torch.nn.functional",
)
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
    return _resized(F, input, size, scale_factor, mode, align_corners, recompute_scale_factor)
