"""Strided views: a tensor's memory read with given sizes and strides."""

from __future__ import annotations

import math
from typing import Any

from ..errors import InvalidOperation, ShapeMismatch
from ..schema.op import composite, op
from ..schema.parameters import Array, Ints, OptionalDType, OptionalInt
from ..shapes import Spec, check_strided


def _as_strided_rule(input: Any, size: Any, stride: Any, storage_offset: int | None = None) -> Spec:
    check_strided(input.shape, input.dtype.itemsize, size, stride, storage_offset or 0)
    return Spec(tuple(size), input.dtype)


@op(
    _as_strided_rule,
    view=True,
    inplace=True,
)
def as_strided(xp: Any, input: Array, size: Ints, stride: Ints, storage_offset: OptionalInt = None) -> Any:
    """A view with these sizes and strides, in elements, from ``storage_offset``; elements may be seen repeatedly.

    The memory is that of ``input``'s own elements in row-major order: one that is not contiguous is refused, and
    what lies beside a view is out of bounds.
    """
    if not xp.is_contiguous(input):
        raise InvalidOperation("as_strided needs a contiguous tensor here; call .contiguous() first")
    return xp.as_strided(input, size, stride, storage_offset or 0)


def _as_strided_grad(F: Any, grad: Any, input_shape: Any, size: Any, stride: Any, storage_offset: int | None) -> Any:
    """What is seen several times adds up."""
    places = F.as_strided(F.arange(math.prod(input_shape)), size, stride, storage_offset)
    flat = F.new_zeros(grad, (math.prod(input_shape),))
    return F.reshape(F.index_add(flat, 0, F.reshape(places, (-1,)), F.reshape(grad, (-1,))), input_shape)


as_strided.derivative(input=_as_strided_grad)


def _unstrided_rule(input: Any, shape: Any, stride: Any, storage_offset: int | None = None) -> Spec:
    if any(n < 0 for n in shape):
        raise ShapeMismatch(f"a shape has no negative sizes, but this one is {list(shape)}")
    check_strided(shape, input.dtype.itemsize, input.shape, stride, storage_offset or 0)
    return Spec(tuple(shape), input.dtype)


@op(_unstrided_rule, private=True, method=False)
def unstrided(xp: Any, input: Array, shape: Ints, stride: Ints, storage_offset: OptionalInt = None) -> Any:
    """A tensor of ``shape`` of which ``input`` is what ``as_strided`` shows; zero where it shows nothing."""
    room = math.prod(shape)
    places = xp.as_strided(xp.arange(room), input.shape, stride, storage_offset or 0).reshape(-1)
    return xp.index_set(xp.zeros((room,), input.dtype), places, input.reshape(-1)).reshape(shape)


unstrided.derivative(
    input=lambda F, grad, input_shape, stride, storage_offset: F.as_strided(
        F.contiguous(grad), input_shape, stride, storage_offset
    )
)


def _room(size: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """How many elements of memory a tensor of these sizes and strides takes."""
    if len(size) != len(stride):
        raise ShapeMismatch(
            f"dimensionality of sizes ({len(size)}) must match dimensionality of strides ({len(stride)})"
        )
    if any(n < 0 for n in (*size, *stride)):
        raise ShapeMismatch(f"Storage size calculation overflowed with sizes={list(size)} and strides={list(stride)}")
    return 0 if 0 in size else 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))


@composite(factory=True)
def empty_strided(F: Any, size: Ints, stride: Ints, *, dtype: OptionalDType = None) -> Any:
    """A tensor of these sizes and strides whose values mean nothing; here, zeros."""
    return F.as_strided(F.empty((_room(size, stride),), dtype=dtype), size, stride)


@composite(factory=True)
def empty_permuted(F: Any, size: Ints, physical_layout: Ints, *, dtype: OptionalDType = None) -> Any:
    """A tensor whose dimensions lie in memory in the order ``physical_layout``; its values mean nothing."""
    if len(size) != len(physical_layout):
        raise ShapeMismatch(
            "Number of dimensions in size does not match the length of the physical_layout; i.e. len(size) = "
            f"{len(size)} is not equal to len(physical_layout) = {len(physical_layout)}"
        )
    for d in physical_layout:
        if not 0 <= d < len(size):
            raise ShapeMismatch(
                "Dimension out of range (expected to be between 0 and "
                f"{len(size) - 1}, but got {d} at index {physical_layout.index(d)}).  NB: negative dims not currently "
                "supported; file an issue if you want it."
            )
    if len(set(physical_layout)) != len(physical_layout):
        raise ShapeMismatch("Duplicate dim not allowed")
    made = F.empty(tuple([size[d] for d in physical_layout]), dtype=dtype)
    return F.permute(made, tuple([physical_layout.index(d) for d in range(len(size))]))
