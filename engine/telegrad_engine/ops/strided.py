"""A tensor's memory read with sizes and strides of one's own."""

from __future__ import annotations

import math
from typing import Any

from ..cases import T, case
from ..errors import InvalidOperation, ShapeMismatch
from ..params import Array, Ints, OptionalInt
from ..registry import op
from ..specs import Spec


def _as_strided_rule(input: Any, size: Any, stride: Any, storage_offset: int | None = None) -> Spec:
    if len(size) != len(stride):
        raise ShapeMismatch("mismatch in length of strides and shape")
    if any(n < 0 for n in stride):
        raise InvalidOperation(
            f"as_strided: Negative strides are not supported at the moment, got strides: {list(stride)}"
        )
    if any(n < 0 for n in size):
        raise ShapeMismatch(f"Storage size calculation overflowed with sizes={list(size)} and strides={list(stride)}")
    offset = storage_offset or 0
    if offset < 0:
        raise InvalidOperation(f"Tensor: invalid storage offset {offset}")
    width, room = input.dtype.itemsize, math.prod(input.shape)
    needed = 0 if 0 in size else 1 + offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if needed > room:
        raise ShapeMismatch(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and itemsize {width} "
            f"requiring a storage size of {needed * width} are out of bounds for storage of size {room * width}"
        )
    return Spec(tuple(size), input.dtype)


@op(
    _as_strided_rule,
    view=True,
    inplace=True,
    cases=[
        case(T(3, 3), (2, 2), (1, 2)),
        case(T(3, 3), (2, 2), (1, 2), 1),
        case(T(5), (3, 3), (1, 1)),
        case(T(5), (2, 4), (0, 1), storage_offset=1),
        case(T(2, 3), (3, 2), (1, 3)),
        case(T(2, 3), (), ()),
        case(T(4), (0,), (1,), 9),
        case(T(4), (2, 4), (1, 1)),
        case(T(4), (2, 2), (1,)),
        case(T(4), (2, 2), (1, -1)),
        case(T(4), (2,), (1,), -1),
    ],
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
    return Spec(tuple(shape), input.dtype)


@op(_unstrided_rule, internal=True, method=False)
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
