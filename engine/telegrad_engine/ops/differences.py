"""Differences of neighbours, and the areas below the lines that join them."""

from __future__ import annotations

from typing import Any

from ..cases import T, case
from ..dtypes import bool_
from ..errors import InvalidOperation, ShapeMismatch
from ..params import Array, Int, Number
from ..registry import composite
from ..specs import size_at, wrap_dim


@composite(
    cases=[
        case(T(5)),
        case(T(2, 4), 2),
        case(T(3, 4), 1, 0),
        case(T(2, 4), prepend=T(2, 1), append=T(2, 2)),
        case(T(4, dtype="bool")),
        case(T(2, 3), 5),
        case(T(2, 3), 0),
        case(T(3), -1),
        case(T()),
    ]
)
def diff(F: Any, input: Array, n: Int = 1, dim: Int = -1, prepend: Array = None, append: Array = None) -> Any:
    """The ``n``-th differences along ``dim`` of ``input`` between what is prepended and appended."""
    if not input.ndim:
        raise ShapeMismatch("diff expects input to be at least one-dimensional")
    if n < 0:
        raise InvalidOperation(f"order must be non-negative but got {n}")
    axis = wrap_dim(dim, input.ndim)
    ends = [x for x in (prepend, input, append) if x is not None]
    x = F.cat(ends, axis) if len(ends) > 1 and n else input
    subtract = F.logical_xor if x.dtype is bool_ else F.sub
    for _ in range(min(n, x.shape[axis])):
        left = x.shape[axis] - 1
        x = subtract(F.narrow(x, axis, 1, left), F.narrow(x, axis, 0, left))
    return x if n else F.clone(x)


def _areas(F: Any, y: Any, width: Any, axis: int) -> Any:
    left = size_at(y.shape, axis) - 1
    return (F.narrow(y, axis, 0, left) + F.narrow(y, axis, 1, left)) * width * 0.5


def _widths(F: Any, y: Any, x: Any, axis: int) -> Any:
    """The distances of ``x``, a vector along ``axis`` or of the shape of ``y``."""
    if x.ndim != 1:
        return F.diff(x, 1, axis)
    if x.shape[0] != size_at(y.shape, axis):
        raise ShapeMismatch("trapezoid: There must be one `x` value for each sample point")
    return F.reshape(F.diff(x), [-1 if d == axis else 1 for d in range(y.ndim)])


TRAPEZOIDS = [case(T(5)), case(T(2, 4), dx=0.5, dim=0), case(T(2, 4), dim=-1)]
ALONG = [case(T(4), T(4)), case(T(2, 4), T(2, 4)), case(T(4, 2), T(4), dim=0), case(T(2, 4), T(3))]


@composite(key="trapezoid.dx", method=False, aliases=("trapz",), cases=TRAPEZOIDS)
def trapezoid_dx(F: Any, y: Array, *, dx: Number = 1, dim: Int = -1) -> Any:
    """The area below the lines that join neighbours along ``dim``, ``dx`` apart."""
    if y.dtype is bool_:
        raise InvalidOperation("trapezoid: received a bool input for `y`, but bool is not supported")
    axis = wrap_dim(dim, y.ndim)
    return F.sum(_areas(F, y, dx, axis), axis)


@composite(method=False, aliases=("trapz",), cases=ALONG)
def trapezoid(F: Any, y: Array, x: Array, *, dim: Int = -1) -> Any:
    """The area below the lines that join neighbours along ``dim``, which are at ``x``."""
    if bool_ in (x.dtype, y.dtype):
        raise InvalidOperation("trapezoid: received a bool input for `x` or `y`, but bool is not supported")
    axis = wrap_dim(dim, y.ndim)
    return F.sum(_areas(F, y, _widths(F, y, x, axis), axis), axis)
