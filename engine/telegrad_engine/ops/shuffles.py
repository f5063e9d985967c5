"""Exchanging channels and pixels."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidOperation, InvalidValue, ShapeMismatch
from ..schema.op import composite
from ..schema.parameters import Array, Int


def _check_image(name: str, input: Any, what: str, factor: int) -> None:
    if len(input.shape) < 3:
        raise ShapeMismatch(
            f"{name} expects input to have at least 3 dimensions, but got input with {len(input.shape)} dimension(s)"
        )
    if factor <= 0:
        raise InvalidOperation(f"{name} expects a positive {what}, but got {factor}")


@composite(
    functional=True,
    method=False,
)
def pixel_shuffle(F: Any, input: Array, upscale_factor: Int) -> Any:
    """Channels (…, C r², H, W) laid out as pixels (…, C, H r, W r) (Shi et al. 2016)."""
    r = upscale_factor
    _check_image("pixel_shuffle", input, "upscale_factor", r)
    *lead, channels, height, width = input.shape
    if r * r >= 2**63:
        raise InvalidValue(f"upscale factor is too large, (upscale_factor)^2 overflowed: upscale_factor={r}")
    if channels % (r * r):
        raise ShapeMismatch(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, "
            f"but input.size(-3)={channels} is not divisible by {r * r}"
        )
    n = len(lead)
    split = F.reshape(input, (*lead, channels // (r * r), r, r, height, width))
    mixed = F.permute(split, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return F.reshape(mixed, (*lead, channels // (r * r), height * r, width * r))


@composite(
    functional=True,
    method=False,
)
def pixel_unshuffle(F: Any, input: Array, downscale_factor: Int) -> Any:
    """Pixels (…, C, H r, W r) laid out as channels (…, C r², H, W): ``pixel_shuffle`` undone."""
    r = downscale_factor
    _check_image("pixel_unshuffle", input, "downscale_factor", r)
    *lead, channels, height, width = input.shape
    for name, axis, size in (("height", -2, height), ("width", -1, width)):
        if size % r:
            raise ShapeMismatch(
                f"pixel_unshuffle expects {name} to be divisible by downscale_factor, but input.size({axis})={size} "
                f"is not divisible by {r}"
            )
    n = len(lead)
    split = F.reshape(input, (*lead, channels, height // r, r, width // r, r))
    mixed = F.permute(split, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return F.reshape(mixed, (*lead, channels * r * r, height // r, width // r))


@composite(
    functional=True,
    method=False,
)
def channel_shuffle(F: Any, input: Array, groups: Int) -> Any:
    """Channels (N, C, …) with those of all groups taken in turn (Zhang et al. 2017)."""
    shape = tuple(input.shape)
    if len(shape) <= 2:
        raise ShapeMismatch(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(shape)}")
    if groups <= 0:
        raise InvalidOperation(f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
    if shape[1] % groups:
        raise ShapeMismatch(
            f"Number of channels must be divisible by groups. Got {shape[1]} channels and {groups} groups."
        )
    split = F.reshape(input, (shape[0], groups, shape[1] // groups, *shape[2:]))
    return F.reshape(F.transpose(split, 1, 2), shape)


@composite(method=False, functional=True)
def native_channel_shuffle(F: Any, input: Array, groups: Int) -> Any:
    """``channel_shuffle``."""
    return F.channel_shuffle(input, groups)
