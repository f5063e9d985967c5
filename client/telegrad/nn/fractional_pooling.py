"""Fractional max pooling (Graham 2014): ``fractional_max_pool2d`` and ``fractional_max_pool3d``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from telegrad_engine.dtypes import int64
from telegrad_engine.errors import InvalidOperation, InvalidValue

from ..tensor.handle import Tensor, functions
from .modules.module import expanded


def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Return the maxima of pseudorandom windows of ``input`` (N, C, H, W) or (C, H, W).

    The result has ``output_size``, or ``output_ratio`` times the input's size; with ``return_indices`` it is a pair of
    values and int64 indices. ``_random_samples`` (N, C, 2), in [0, 1), determine the windows. Raises ValueError
    without a size, RuntimeError if the windows do not fit.
    """
    result = _fractional_max_pool(2, input, kernel_size, output_size, output_ratio, _random_samples)
    return result if return_indices else result[0]


def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """``fractional_max_pool2d`` for volumes (N, C, D, H, W) or (C, D, H, W), with ``_random_samples`` (N, C, 3)."""
    result = _fractional_max_pool(3, input, kernel_size, output_size, output_ratio, _random_samples)
    return result if return_indices else result[0]


def _fractional_max_pool(
    dims: int, input: Tensor, kernel_size: Any, output_size: Any, ratio: Any, samples: Tensor | None
) -> tuple[Tensor, Tensor]:
    name = f"fractional_max_pool{dims}d"
    if output_size is None and ratio is None:
        raise InvalidValue(f"{name} requires specifying either an output_size or an output_ratio")
    if input.dim() not in (dims + 1, dims + 2):
        kind = f"{dims + 1}D or {dims + 2}D"
        raise InvalidOperation(f"{name}(): Expected {kind} tensor, but got: {_sizes(input)}")
    if input.dim() == dims + 1:
        values, indices = _fractional_max_pool(dims, input.unsqueeze(0), kernel_size, output_size, ratio, samples)
        return values.squeeze(0), indices.squeeze(0)
    space, kernel = tuple(input.shape[2:]), expanded(kernel_size, dims)
    if output_size is None:
        output_size = tuple(int(size * part) for size, part in zip(space, expanded(ratio, dims), strict=True))
    output = expanded(output_size, dims)
    if samples is None:
        samples = functions.rand(input.shape[0], input.shape[1], dims, dtype=input.dtype)
    _check_windows(name, space, kernel, output)
    return _pooled_at(input, samples[: input.shape[0]], space, kernel, output)


def _check_windows(name: str, space: Sequence[int], kernel: Sequence[int], output: Sequence[int]) -> None:
    """Raise RuntimeError for the first axis that is too short, with torch's order and bounds."""
    of_volume = len(space) == 3
    axes = ("time", "height", "width") if of_volume else ("height", "width")
    for axis in (0, 2, 1) if of_volume else (0, 1):
        if output[axis] + kernel[axis] - 1 > space[axis] - of_volume:
            raise InvalidOperation(
                f"{name}{'_out' * of_volume}(): pool {axes[axis]} {kernel[axis]} too large relative to input "
                f"{axes[axis]} {space[axis]}"
            )


def _sizes(tensor: Tensor) -> str:
    """Format the sizes as torch's pooling errors do."""
    return str(list(tensor.shape))


def _pooled_at(
    input: Tensor, samples: Tensor, space: tuple[int, ...], kernel: Sequence[int], output: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Return the maxima of the windows that the samples determine, and their indices in the flattened space."""
    dims = len(space)
    indices_in: Any = None
    for axis in range(dims):
        # torch orders the samples of an image as (width, height), those of a volume as (depth, height, width).
        own = samples[:, :, dims - 1 - axis if dims == 2 else axis]
        starts = _starts(own, space[axis], kernel[axis], output[axis])
        inside = functions.arange(kernel[axis])
        along = starts.unsqueeze(-1) + inside  # (N, C, out, kernel)
        shape = [along.shape[0], along.shape[1], *[1] * (2 * dims)]
        shape[2 + axis], shape[2 + dims + axis] = output[axis], kernel[axis]
        part = along.reshape(shape) * math.prod(space[axis + 1 :])
        indices_in = part if indices_in is None else indices_in + part
    n, c = input.shape[:2]
    flat = indices_in.reshape(n, c, -1)
    found = input.reshape(n, c, -1).gather(2, flat).reshape(n, c, *output, -1)
    values, best = found.max(-1)
    indices = flat.reshape(n, c, *output, -1).gather(-1, best.unsqueeze(-1)).squeeze(-1)
    return values, indices


def _starts(samples: Tensor, size: int, window: int, out: int) -> Tensor:
    """Return the windows' first indices (N, C, out), a pseudorandom sequence; the last window ends at the border."""
    last: Tensor = functions.full((*samples.shape, 1), size - window, dtype="int64")
    if out == 1:
        return last
    step = (size - window) / (out - 1)
    own = samples.unsqueeze(-1)
    counted = functions.arange(out - 1).to(samples.dtype)
    starts = ((counted + own) * step).trunc() - (own * step).trunc()
    return functions.cat([starts.to(int64), last], -1)
