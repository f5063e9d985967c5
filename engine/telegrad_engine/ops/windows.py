"""Padding and sliding windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import bool_
from ..errors import InvalidOperation, NotImplementedForDType, ShapeMismatch
from ..schema.op import composite, op
from ..schema.parameters import Array, Int, Ints, Number, OptionalNumber, Str
from ..shapes import Spec, wrap_dim

# Padding -------------------------------------------------------------------------------------------------


def _by_dim(shape: Any, pad: Any) -> list[tuple[int, int]]:
    """How much to add before and after each dimension; torch lists the last dimension first."""
    pairs = list(zip(pad[::2], pad[1::2], strict=True))
    return [(0, 0)] * (len(shape) - len(pairs)) + pairs[::-1]


def _pad_rule(input: Any, pad: Any, value: float = 0) -> Spec:
    ndim = len(input.shape)
    if len(pad) % 2:
        raise InvalidOperation("Length of pad must be even but instead it equals " + str(len(pad)))
    if len(pad) > 2 * ndim:
        raise InvalidOperation(
            "Length of pad should be no more than twice the number of dimensions of the input. "
            f"Pad length is {len(pad)}while the input has {ndim} dimensions."
        )
    shape = []
    for n, (before, after) in zip(input.shape, _by_dim(input.shape, pad), strict=True):
        kept = n + min(before, 0)
        if kept < 0 or kept + min(after, 0) + max(before, 0) < max(before, 0):
            raise InvalidOperation("narrow(): length must be non-negative.")
        shape.append(n + before + after)
    return Spec(tuple(shape), input.dtype)


@op(_pad_rule, method=False, scratch=0.0)
def constant_pad_nd(xp: Any, input: Array, pad: Ints, value: Number = 0) -> Any:
    """With ``value`` added before and after the last dimensions, or elements taken away where ``pad`` is negative."""
    widths = _by_dim(input.shape, pad)
    kept = input[tuple(slice(max(-b, 0), n - max(-a, 0)) for n, (b, a) in zip(input.shape, widths, strict=True))]
    added = [(max(b, 0), max(a, 0)) for b, a in widths]
    # As a number of the host's, which is what CuPy reads; cast as tensors are, for whole numbers wrap around.
    number = np.asarray(value).astype(input.dtype)[()]
    return xp.pad(kept, added, constant_values=number) if added else kept.copy()


constant_pad_nd.derivative(input=lambda F, grad, pad: F.constant_pad_nd(grad, tuple(-n for n in pad)))


def _check_edges(mode: str, shape: Any, pad: Any) -> None:
    """What torch asks of padding with the tensor's own elements."""
    ndim, dims = len(shape), len(pad) // 2
    if dims not in (1, 2, 3) or ndim - dims not in (1, 2):
        raise NotImplementedForDType(
            f"Padding size {len(pad)} is not supported for {ndim}D input tensor.\n"
            "Supported combinations for non-constant padding:\n"
            "  - 2D or 3D input: padding size = 2 (pads last dimension)\n"
            "  - 3D or 4D input: padding size = 4 (pads last 2 dimensions)\n"
            "  - 4D or 5D input: padding size = 6 (pads last 3 dimensions)"
        )
    if mode != "circular" and 0 in shape[ndim - dims - 1 :]:
        raise ShapeMismatch(
            f"Expected {dims + 1}D or {dims + 2}D (batch mode) tensor with possibly 0 batch size and other "
            f"non-zero dimensions for input, but got: {list(shape)}"
        )
    for d, (before, after) in list(enumerate(_by_dim(shape, pad)))[ndim - dims :]:
        n = shape[d]
        if mode == "reflect" and max(before, after) >= n:
            raise InvalidOperation(
                "Argument #4: Padding size should be less than the corresponding input dimension, but got: "
                f"padding ({before}, {after}) at dimension {d} of input {list(shape)}"
            )
        if mode == "circular" and max(before, after) > n:
            raise InvalidOperation("Padding value causes wrapping around more than once.")
        if mode == "circular" and n + before + after < 0:
            raise InvalidOperation("Negative padding value is resulting in an empty dimension.")
        if mode != "circular" and n + before + after < 1:
            name = "WHD"[ndim - 1 - d]
            raise InvalidOperation(f"input ({name}: {n}) is too small. Calculated output {name}: {n + before + after}")


def _edges(F: Any, x: Any, mode: str, dim: int, before: int, after: int) -> Any:
    """``x`` with its own elements added before and after ``dim``."""
    n = x.shape[dim]
    left, right = max(before, 0), max(after, 0)
    kept = F.narrow(x, dim, max(-before, 0), n + min(before, 0) + min(after, 0))
    if mode == "circular":
        starts = (kept.shape[dim] - left, 0)
        parts = [F.narrow(kept, dim, start, size) for start, size in zip(starts, (left, right), strict=True)]
    elif mode == "reflect":
        starts = (1, n - 1 - right)
        parts = [F.flip(F.narrow(x, dim, s, size), (dim,)) for s, size in zip(starts, (left, right), strict=True)]
    else:
        sizes = [tuple(size if d == dim else m for d, m in enumerate(x.shape)) for size in (left, right)]
        parts = [F.expand(F.narrow(x, dim, s, 1), size) for s, size in zip((0, n - 1), sizes, strict=True)]
    return F.cat([parts[0], kept, parts[1]], dim)


@composite(
    namespace="torch.nn.functional",
)
def pad(F: Any, input: Array, pad: Ints, mode: Str = "constant", value: OptionalNumber = None) -> Any:
    """Elements added around the last dimensions: a value, or with ``mode`` the tensor's own."""
    shape = tuple(input.shape)
    if len(pad) % 2:
        raise InvalidOperation("Padding length must be divisible by 2")
    if len(pad) > 2 * len(shape):
        raise InvalidOperation(
            "Padding length should be less than or equal to two times the input dimension but got padding "
            f"length {len(pad)} and input of dimension {len(shape)}"
        )
    if mode == "constant":
        return F.constant_pad_nd(input, pad, 0 if value is None else value)
    if value:
        raise InvalidOperation(f'Padding mode "{mode}" doesn\'t take in value argument')
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedForDType(f"Unrecognised padding mode {mode}")
    _check_edges(mode, shape, pad)
    if mode != "circular" and input.dtype is bool_:
        kernel = {"reflect": "reflection", "replicate": "replication"}[mode]
        raise NotImplementedForDType(f"\"{kernel}_pad{len(pad) // 2}d\" not implemented for 'Bool'")
    for d, (before, after) in enumerate(_by_dim(shape, pad)):
        if before or after:
            input = _edges(F, input, mode, d, before, after)
    return input


# Windows -------------------------------------------------------------------------------------------------


def _unfold_rule(input: Any, dimension: int, size: int, step: int) -> Spec:
    axis = wrap_dim(dimension, len(input.shape))
    shape = tuple(input.shape) or (1,)
    if size < 0:
        raise InvalidOperation(f"size is {size} but must be >= 0")
    if size > shape[axis]:
        raise InvalidOperation(f"maximum size for tensor at dimension {axis} is {shape[axis]} but size is {size}")
    if step <= 0:
        raise InvalidOperation(f"step is {step} but must be > 0")
    n = (shape[axis] - size) // step + 1
    return Spec((*shape[:axis], n, *shape[axis + 1 :], size) if input.shape else (size,), input.dtype)


@op(
    _unfold_rule,
    view=True,
)
def unfold(xp: Any, input: Array, dimension: Int, size: Int, step: Int) -> Any:
    """The windows of ``size`` elements along ``dimension``, ``step`` apart, in a new last dimension."""
    if not input.ndim:
        return xp.reshape(input, (1,))[:size]
    axis = dimension % input.ndim
    return xp.windows(input, size, axis)[(slice(None),) * axis + (slice(None, None, step),)]


def _unfold_grad(F: Any, grad: Any, input_shape: Any, dimension: int, size: int, step: int) -> Any:
    """Each element's sum over the windows that show it."""
    zeros = F.new_zeros(grad, input_shape)
    if not input_shape:
        return zeros + F.sum(grad)
    axis = dimension % len(input_shape)
    n = grad.shape[axis]
    places = F.reshape(F.arange(n), (n, 1)) * step + F.arange(size)
    return F.index_put(zeros, [None] * axis + [places], F.movedim(grad, -1, axis + 1), True)


unfold.derivative(input=_unfold_grad)
