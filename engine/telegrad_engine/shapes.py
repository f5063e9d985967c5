"""Shapes and dtypes without values, for shape rules.

A shape rule takes any object with a ``shape`` (a tuple) and a ``dtype`` (a NumPy dtype): a NumPy array in the engine, a
:class:`Spec` in the SDK and in validation. The error texts are PyTorch's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from . import dtypes
from .context import state
from .errors import IndexOutOfRange, InvalidArgument, InvalidOperation, ShapeMismatch, TooLarge
from .lru import LRU

Shape = tuple[int, ...]


class Spec:
    """The shape and dtype of a tensor without a local value."""

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: Shape, dtype: np.dtype[Any]) -> None:
        self.shape = shape
        self.dtype = dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the value in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"Spec({list(self.shape)}, {dtypes.from_numpy(self.dtype).name})"


SPECS: LRU[Any, Spec] = LRU(4096)
"""Specs, which caches of calls compare by identity."""


def interned(shape: Shape, dtype: np.dtype[Any]) -> Spec:
    """Return the same Spec for the same shape and dtype."""
    key = shape, dtype
    try:
        return SPECS[key]
    except KeyError:
        spec = SPECS[key] = Spec(shape, dtype)
        return spec


def is_array(value: Any) -> bool:
    """Whether a value has a shape: an array or a Spec, but not a Python number."""
    return hasattr(value, "shape")


def check_size(shape: Shape, dtype: np.dtype[Any], view: bool = False) -> int:
    """Return the bytes of a result before it is allocated. Raises TooLarge if there is no room for it.

    A view takes no memory, but reading it takes time, so it may be as large as the largest possible tensor.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if not nbytes and math.prod([n or 1 for n in shape]) * 8 >= 2**63:  # kernels count elements in int64
        raise TooLarge("Stride calculation overflowed")
    if nbytes > (room := state.largest if view else state.room):
        raise TooLarge(
            f"can't allocate memory: you tried to allocate {nbytes} bytes for a tensor of shape {list(shape)}; "
            f"there is room for {room}."
        )
    return nbytes


def strided_extent(size: Sequence[int], stride: Sequence[int], offset: int) -> int:
    """The number of elements of memory that a view with these sizes and strides needs; 0 for an empty view.

    Raises InvalidOperation for negative strides and offsets, ShapeMismatch for negative sizes or lengths that differ.
    """
    if len(size) != len(stride):
        raise ShapeMismatch("mismatch in length of strides and shape")
    if any(n < 0 for n in stride):
        raise InvalidOperation(
            f"as_strided: Negative strides are not supported at the moment, got strides: {list(stride)}"
        )
    if any(n < 0 for n in size):
        raise ShapeMismatch(f"Storage size calculation overflowed with sizes={list(size)} and strides={list(stride)}")
    if offset < 0:
        raise InvalidOperation(f"Tensor: invalid storage offset {offset}")
    return 0 if 0 in size else 1 + offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))


def check_strided(shape: Shape, itemsize: int, size: Sequence[int], stride: Sequence[int], offset: int) -> None:
    """Raise ShapeMismatch if a strided view would exceed the memory of a contiguous array of this shape."""
    needed, room = strided_extent(size, stride, offset), math.prod(shape)
    if needed > room:
        raise ShapeMismatch(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and itemsize {itemsize} "
            f"requiring a storage size of {needed * itemsize} are out of bounds for storage of size {room * itemsize}"
        )


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape that all of these shapes broadcast to. Raises ShapeMismatch if they do not."""
    if not shapes:
        raise InvalidArgument("at least one argument must be a Tensor, but all are numbers")
    result = shapes[0]
    for shape in shapes[1:]:
        if shape != result:
            result = _broadcast_pair(result, shape)
    return result


@lru_cache(1024)
def broadcast_axes(shape: Shape, result: Shape) -> tuple[int, ...]:
    """The dimensions of ``result`` along which a value of ``shape`` was repeated to broadcast to it."""
    lead = len(result) - len(shape)
    return (*range(lead), *[lead + d for d, n in enumerate(shape) if n == 1 and result[lead + d] != 1])


def check_keeps_shape(shape: Shape, other: Shape) -> None:
    """Raise ShapeMismatch unless ``other`` broadcasts to exactly ``shape``, where an in-place op writes its result."""
    broadcast = broadcast_shapes(tuple(shape), tuple(other))
    if broadcast != tuple(shape):
        raise ShapeMismatch(f"output with shape {list(shape)} doesn't match the broadcast shape {list(broadcast)}")


def _broadcast_pair(a: Shape, b: Shape) -> Shape:
    ndim = max(len(a), len(b))
    left, right = (1,) * (ndim - len(a)) + a, (1,) * (ndim - len(b)) + b
    out = []
    for axis in reversed(range(ndim)):  # the text names the last dimension that does not match
        x, y = left[axis], right[axis]
        if x != y and x != 1 and y != 1:
            raise ShapeMismatch(
                f"The size of tensor a ({x}) must match the size of tensor b ({y}) at non-singleton dimension {axis}"
            )
        out.append(y if x == 1 else x)
    return tuple(reversed(out))


def wrap_dim(dim: int, ndim: int) -> int:
    """A dimension counted from the front; a 0-dim tensor has dimensions -1 and 0, as in torch."""
    extent = max(ndim, 1)
    if not -extent <= dim < extent:
        raise IndexOutOfRange(
            f"Dimension out of range (expected to be in range of [{-extent}, {extent - 1}], but got {dim})"
        )
    return dim % extent


def size_at(shape: Shape, dim: int) -> int:
    """The size of one dimension. Raises IndexOutOfRange if it does not exist."""
    if not shape:
        raise IndexOutOfRange(f"Dimension specified as {dim} but tensor has no dimensions")
    return shape[wrap_dim(dim, len(shape))]


def wrap_dims(dims: int | Sequence[int] | None, ndim: int, in_turn: bool = False) -> Shape:
    """Dimensions counted from the front; None and () mean all of them.

    Torch's ops differ in which of two errors they report first: most check all ranges before they check for
    repetitions, and some check each dimension ``in_turn``.
    """
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return tuple(range(ndim))
    given = (dims,) if isinstance(dims, int) else tuple(dims)
    if not in_turn:
        given = tuple([wrap_dim(d, ndim) for d in given])
    wrapped: list[int] = []
    for dim in given:
        axis = wrap_dim(dim, ndim)
        if axis in wrapped:
            raise ShapeMismatch(f"dim {axis} appears multiple times in the list of dims")
        wrapped.append(axis)
    return tuple(wrapped)


def reduced_shape(shape: Shape, dims: Shape, keepdim: bool) -> Shape:
    """The shape after reducing ``dims`` (already wrapped)."""
    if keepdim:
        return tuple(1 if i in dims else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in dims)


def check_nonnegative(shape: Sequence[int], op: str) -> Shape:
    """Return the shape as a tuple. Raises ShapeMismatch if a size is negative."""
    for n in shape:
        if n < 0:
            raise ShapeMismatch(f"Trying to create tensor with negative dimension {n}: {list(shape)}")
    return tuple(shape)


def infer_reshape(shape: Shape, target: Sequence[int]) -> Shape:
    """Return ``target`` with -1 replaced by the size inferred from a tensor of ``shape``."""
    size = math.prod(shape)
    if sum(n == -1 for n in target) > 1:
        raise ShapeMismatch("only one dimension can be inferred")
    for i, n in enumerate(target):
        if n < -1:
            raise ShapeMismatch(f"invalid shape dimension {n} at index {i} of shape {list(target)}")
    known = math.prod(n for n in target if n != -1)
    result = tuple(target)
    if -1 in result:
        if known == 0:
            raise ShapeMismatch(
                f"cannot reshape tensor of 0 elements into shape {list(target)} because the "
                "unspecified dimension size -1 can be any value and is ambiguous"
                if size == 0
                else f"shape '{list(target)}' is invalid for input of size {size}"
            )
        result = tuple(size // known if n == -1 else n for n in result)
    if math.prod(result) != size:
        raise ShapeMismatch(f"shape '{list(target)}' is invalid for input of size {size}")
    return result


def expands_to(shape: Shape, target: Shape) -> bool:
    """Whether a tensor of ``shape`` broadcasts to exactly ``target``."""
    lead = len(target) - len(shape)
    return lead >= 0 and all(n in (1, m) for n, m in zip(shape, target[lead:], strict=True))


def expanded_shape(shape: Shape, dtype: np.dtype[Any], target: Sequence[int]) -> Shape:
    """Return ``target`` of expand with each -1 replaced by the size in a tensor of ``shape`` and ``dtype``."""
    if len(target) < len(shape):
        kind = dtypes.from_numpy(dtype).kernel_name
        raise ShapeMismatch(
            f"expand(torch.{kind}Tensor{{{list(shape)}}}, size={list(target)}): the number of sizes "
            f"provided ({len(target)}) must be greater or equal to the "
            f"number of dimensions in the tensor ({len(shape)})"
        )
    lead = len(target) - len(shape)
    out: list[int] = list(target)
    for i in reversed(range(len(target))):  # as in torch, errors name the last mismatch
        n, own = target[i], shape[i - lead] if i >= lead else None
        if n == -1:
            if own is None:
                raise ShapeMismatch(
                    f"The expanded size of the tensor ({n}) isn't allowed in a leading, non-existing dimension {i}"
                )
            out[i] = own
        elif own is not None and own not in (1, n):
            raise ShapeMismatch(
                f"The expanded size of the tensor ({n}) must match the existing size ({own}) at "
                f"non-singleton dimension {i}.  Target sizes: {list(target)}.  Tensor sizes: {list(shape)}"
            )
        elif n < 0:
            raise ShapeMismatch(f"expand: requested shape has a negative size: {list(target)}")
    return tuple(out)


def torch_size(shape: Sequence[int]) -> str:
    """A shape as torch's error texts show it."""
    return f"torch.Size({list(shape)})"


class Size(tuple[int, ...]):
    """A shape: a tuple of ints that prints as ``telegrad.Size([2, 3])``.

    It is made by ``tensor.shape``, or from an ``iterable`` of ints; ``numel()`` is the number of elements.

    Examples:
        >>> shape = tg.zeros(2, 3).shape
        >>> shape, shape.numel(), shape[0]
        (telegrad.Size([2, 3]), 6, 2)
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"telegrad.Size({list(self)})"

    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return Size(found) if type(index) is slice else found

    def __add__(self, other: Any) -> Any:
        return Size(tuple.__add__(self, other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return Size(tuple.__add__(other, self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, times: Any) -> Any:
        return Size(tuple.__mul__(self, times))

    def numel(self) -> int:
        """Number of elements of a tensor of this shape."""
        return math.prod(self)
