"""The windows of pooling over one, two and three dimensions: their arguments, counts and checks."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ...errors import InvalidOperation, InvalidValue, ShapeMismatch
from ...shapes import Shape, Spec, size_at
from ..guards import check_no_bools

NUMBERS = {2: "two", 3: "three"}
AXES = {2: "HW", 3: "THW"}
INPUTS = {1: "(N, C, L) or (C, L)", 2: "(N, C, H, W) or (C, H, W)", 3: "(N, C, D, H, W) or (C, D, H, W)"}
"""The input shapes of pooling, by number of spatial dimensions, for docstrings."""


class Windows(NamedTuple):
    """Kernel, stride, padding and dilation, one number per dimension, and whether the last window may be cut off."""

    kernel_size: Shape
    stride: Shape
    padding: Shape
    dilation: Shape
    ceil_mode: bool = False

    @property
    def spans(self) -> Shape:
        """The number of elements that a window spans, per dimension."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel_size, self.dilation, strict=True))

    def counts(self, sizes: Any) -> Shape:
        """The number of windows in each dimension."""
        steps = zip(sizes, self.spans, self.stride, self.padding, strict=True)
        return tuple(_count(n, span, s, p, self.ceil_mode) for n, span, s, p in steps)

    def reached(self, xp: Any, input: Any, value: Any) -> Any:
        """The part of ``input`` that windows cover, padded with ``value`` where they extend beyond it."""
        ndim = len(self.kernel_size)
        sizes = input.shape[-ndim:]
        ends = [(n - 1) * s + k for n, s, k in zip(self.counts(sizes), self.stride, self.spans, strict=True)]
        sides = [(p, max(e - p - n, 0)) for p, e, n in zip(self.padding, ends, sizes, strict=True)]
        if any(map(any, sides)):
            input = xp.pad(input, [(0, 0)] * (input.ndim - ndim) + sides, constant_values=value)
        return input[(..., *[slice(e) for e in ends])]


def _count(n: int, span: int, stride: int, padding: int, ceil_mode: bool) -> int:
    """The number of windows; the last one must start inside the input or the padding before it."""
    windows = (n + 2 * padding - span + (stride - 1 if ceil_mode else 0)) // stride + 1
    return windows - 1 if ceil_mode and (windows - 1) * stride >= n + padding else windows


def left_out(stride: Any, kernel_size: Any) -> Any:
    """The stride, or the kernel size if no stride is given."""
    return kernel_size if stride in (None, ()) else stride


def check_signal(name: str, input: Any) -> None:
    """Raise unless ``input`` is a signal (N, C, L) or (C, L)."""
    if len(input.shape) not in (2, 3):
        raise ShapeMismatch(
            f"Expected 2 to 3 dimensions, but got {len(input.shape)}-dimensional tensor for argument #1 'self' "
            f"(while checking arguments for {name})"
        )


def check_not_empty(name: str, shape: Any, first: int = 1) -> None:
    """Raise if a dimension from ``first`` on is empty."""
    if 0 in shape[first:]:
        raise ShapeMismatch(
            f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input has sizes "
            f"{list(shape)} with dimension {shape.index(0, first)} being empty"
        )


def _int_values(value: Any) -> Shape:
    """Return one or several numbers as a tuple; raises for numbers that do not fit 32 bits, as torch does."""
    values = (value,) if isinstance(value, int) else tuple(value)
    if any(abs(n) >= 2**31 for n in values):
        raise InvalidOperation("value cannot be converted to type int without overflow")
    return values


def single(value: Any, otherwise: str) -> int:
    """Return the number of a one-dimensional window; ``otherwise`` is the error text, with ``{}`` for the count."""
    values = _int_values(value)
    if len(values) != 1:
        raise ShapeMismatch(otherwise.format(len(values)))
    return int(values[0])


def read_windows(
    name: str, ndim: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any = 1, ceil_mode: bool = False
) -> Windows:
    """Return a pooling's arguments with one number per dimension; the stride defaults to the kernel size."""
    either = "" if name == "avg_pool3d" else "either "

    def numbers(what: str, value: Any, form: str) -> Shape:
        values = _int_values(value)
        if len(values) not in (1, ndim):
            raise ShapeMismatch(f"{name}: {what} must {form}a single int, or a tuple of {NUMBERS[ndim]} ints")
        return values * ndim if len(values) == 1 else values

    return Windows(
        numbers("kernel_size", kernel_size, f"{either}be "),
        numbers("stride", left_out(stride, kernel_size), f"{either}be omitted, "),
        numbers("padding", padding, f"{either}be "),
        numbers("dilation", dilation, "be either "),
        ceil_mode,
    )


def _named(numbers: Any, prefix: str) -> str:
    return " ".join(f"{prefix}{axis}: {n}" for axis, n in zip(AXES[len(numbers)], numbers, strict=True))


def _check_windows(windows: Windows) -> None:
    if 0 in windows.stride:
        raise InvalidOperation("stride should not be zero")
    for pad, size, gap in zip(windows.padding, windows.kernel_size, windows.dilation, strict=True):
        if pad < 0:
            raise InvalidOperation(f"pad must be non-negative, but got pad: {pad}")
        if pad > math.trunc((gap * (size - 1) + 1) / 2):
            raise InvalidOperation(
                f"pad should be at most half of effective kernel size, but got pad={pad}, kernel_size={size} and "
                f"dilation={gap}"
            )
    for what, prefix, numbers in (
        ("kernel size", "k", windows.kernel_size),
        ("stride", "d", windows.stride),
        ("dilation", "dilation", windows.dilation),
    ):
        if min(numbers) <= 0:
            raise InvalidOperation(f"{what} should be greater than zero, but got {_named(numbers, prefix)}")


def pooled(name: str, input: Any, windows: Windows) -> Spec:
    """The spec of a pooling's result; raises for invalid windows or inputs, as torch does."""
    shape, ndim = list(input.shape), len(windows.kernel_size)
    if ndim not in NUMBERS or any(len(numbers) != ndim for numbers in windows[:4]):
        raise ShapeMismatch(f"{name}: windows must have as many sizes, strides, paddings and dilations: 1 to 3")
    _check_windows(windows)
    _check_shape(name, shape, ndim)
    counts = windows.counts(shape[-ndim:])
    if min(counts) < 1:
        if name == "avg_pool3d":
            sizes, kernel = _named(shape[-3:], ""), _named(windows.kernel_size, "k")
            raise ShapeMismatch(f"input image ({sizes}) smaller than kernel size ({kernel})")
        before, after = ("x".join(map(str, n)) for n in (shape[-ndim - 1 :], (shape[-ndim - 1], *counts)))
        raise ShapeMismatch(
            f"Given input size: ({before}). Calculated output size: ({after}). Output size is too small"
        )
    check_no_bools("avg_pool3d_out_frame" if name == "avg_pool3d" else name, input)
    return Spec((*shape[:-ndim], *counts), input.dtype)


def _check_shape(name: str, shape: list[int], ndim: int) -> None:
    if len(shape) not in (ndim + 1, ndim + 2):
        if name == "avg_pool2d":
            size_at(tuple(shape), -3)
        if ndim == 3 or name == "max_pool2d":
            raise ShapeMismatch(f"non-empty {ndim + 1}D or {ndim + 2}D (batch mode) tensor expected for input")
    elif 0 not in shape[-ndim - 1 :]:
        return
    if ndim == 2:
        raise ShapeMismatch(
            f"Expected 3D or 4D (batch mode) tensor with optional 0 dim batch size for input, but got:{shape}"
        )
    kernel = "max_pool3d_with_indices_out_cpu_template" if name == "max_pool3d" else name
    raise ShapeMismatch(
        f"{kernel}(): Expected input's non-batch dimensions to have positive length, but input has a shape of {shape} "
        "and non-batch dimension 0 has length zero!"
    )


def planes_of(shape: Any, ndim: int) -> int:
    """The number of signals, images or volumes."""
    return math.prod(shape[: len(shape) - ndim])


def adaptive_bounds(xp: Any, n: int, count: int) -> tuple[Any, Any]:
    """The starts and ends of adaptive pooling's windows, as columns: floor(o·n/count) and ceil((o+1)·n/count)."""
    order = xp.arange(count)[:, None]
    return order * n // max(count, 1), -((order + 1) * -n // max(count, 1))


def sizes_of(input: Any, output_size: Any, ndim: int) -> tuple[int, ...]:
    """The result's size in each dimension: None keeps the input's, one number is for all. Raises as torch does."""
    if isinstance(output_size, int):
        return (output_size,) * ndim
    if len(input.shape) <= len(output_size):
        raise InvalidValue(f"Input dimension should be at least {len(output_size) + 1}")
    own = input.shape[len(input.shape) - len(output_size) :]
    return tuple(n if size is None else size for size, n in zip(output_size, own, strict=True))
