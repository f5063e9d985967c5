"""Differences of neighbours, and the areas below the lines that join them."""

from __future__ import annotations

from typing import Any

from ..dtypes import bool_
from ..errors import InvalidOperation, ShapeMismatch
from ..schema.op import composite
from ..schema.parameters import Array, Arrays, Int, Number, NumberOrNumbers, OptionalInts
from ..shapes import size_at, wrap_dim


@composite()
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


@composite(key="trapezoid.dx", method=False, aliases=("trapz",))
def trapezoid_dx(F: Any, y: Array, *, dx: Number = 1, dim: Int = -1) -> Any:
    """The area below the lines that join neighbours along ``dim``, ``dx`` apart."""
    if y.dtype is bool_:
        raise InvalidOperation("trapezoid: received a bool input for `y`, but bool is not supported")
    axis = wrap_dim(dim, y.ndim)
    return F.sum(_areas(F, y, dx, axis), axis)


@composite(method=False, aliases=("trapz",))
def trapezoid(F: Any, y: Array, x: Array, *, dim: Int = -1) -> Any:
    """The area below the lines that join neighbours along ``dim``, which are at ``x``."""
    if bool_ in (x.dtype, y.dtype):
        raise InvalidOperation("trapezoid: received a bool input for `x` or `y`, but bool is not supported")
    axis = wrap_dim(dim, y.ndim)
    return F.sum(_areas(F, y, _widths(F, y, x, axis), axis), axis)


@composite(
    key="gradient.tensorarray",
    method=False,
    lists_outputs=True,
)
def gradient_tensorarray(
    F: Any, input: Array, *, spacing: Arrays, dim: OptionalInts = None, edge_order: Int = 1
) -> Any:
    """The slopes along each of ``dim``, all by default, where ``spacing`` has the coordinates along each.

    ``spacing`` is a list of 1-D tensors. Formulas and errors are those of spacings that are numbers.
    """
    if edge_order not in (1, 2):
        raise InvalidOperation("torch.gradient only supports edge_order=1 and edge_order=2.")
    if dim is None and len(spacing) != input.ndim:
        raise InvalidOperation(
            "torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal to 'self.dim() = "
            f"{input.ndim}', since dim argument was not given, but got a list of length {len(spacing)}"
        )
    axes = [wrap_dim(d, input.ndim) for d in (range(input.ndim) if dim is None else dim)]
    if len(spacing) != len(axes):
        raise InvalidOperation(
            "torch.gradient expected spacing to be unspecified, a scalar or it's spacing and dim arguments to have the "
            f"same length, but got a spacing argument of length {len(spacing)} and a dim argument of length "
            f"{len(axes)}."
        )
    for coordinates in spacing:
        if coordinates.ndim != 1:
            raise InvalidOperation(
                "torch.gradient expected each element of spacing to have one dimension, but got an element with "
                f"{coordinates.ndim} dimensions!"
            )
    if any(size_at(input.shape, axis) <= edge_order for axis in axes):
        raise InvalidOperation("torch.gradient expected each dimension size to be at least edge_order+1")
    return tuple([_slopes_at(F, input, axis, x, edge_order) for axis, x in zip(axes, spacing, strict=True)])


def _slopes_at(F: Any, x: Any, axis: int, coordinates: Any, edge_order: int) -> Any:
    n = x.shape[axis]
    widths = F.diff(coordinates)
    inner = max(widths.shape[0] - 1, 0)
    left, right = F.narrow(widths, 0, 0, inner), F.narrow(widths, 0, widths.shape[0] - inner, inner)

    def at(start: int, length: int = 1) -> Any:
        return F.narrow(x, axis, start, length)

    def along(factor: Any) -> Any:
        return F.reshape(factor, [-1 if d == axis else 1 for d in range(x.ndim)])

    middle = (
        along(-right / (left * (left + right))) * at(0, n - 2)
        + along((right - left) / (left * right)) * at(1, n - 2)
        + along(left / (right * (left + right))) * at(2, n - 2)
    )
    if edge_order == 1:
        first = (at(1) - at(0)) / F.select(widths, 0, 0)
        last = (at(n - 1) - at(n - 2)) / F.select(widths, 0, -1)
    else:
        a, b = F.select(widths, 0, 0), F.select(widths, 0, 1)
        first = (at(1) - at(0)) / a * ((a * 2 + b) / (a + b)) - (at(2) - at(1)) / b * (a / (a + b))
        a, b = F.select(widths, 0, -2), F.select(widths, 0, -1)
        last = (at(n - 1) - at(n - 2)) / b * ((a + b * 2) / (a + b)) - (at(n - 2) - at(n - 3)) / a * (b / (a + b))
    return F.cat([first, middle, last], axis)


@composite(
    method=False,
    lists_outputs=True,
)
def gradient(
    F: Any, input: Array, *, spacing: NumberOrNumbers = None, dim: OptionalInts = None, edge_order: Int = 1
) -> Any:
    """The slopes along each of ``dim``, all by default: central differences, one-sided ones at the edges.

    Edges of order 2 take three elements. Formulas: Fornberg, "Generation of finite difference formulas on arbitrarily
    spaced grids" (1988).
    """
    if edge_order not in (1, 2):
        raise InvalidOperation("torch.gradient only supports edge_order=1 and edge_order=2.")
    axes = [wrap_dim(d, input.ndim) for d in (range(input.ndim) if dim is None else dim)]
    widths = spacing if isinstance(spacing, tuple) else (1 if spacing is None else spacing,) * len(axes)
    if len(widths) != len(axes):
        raise InvalidOperation(
            f"torch.gradient expected spacing to be unspecified, a scalar or a list of length {len(axes)}, but got a "
            f"list of length {len(widths)}"
        )
    if any(size_at(input.shape, axis) <= edge_order for axis in axes):
        raise InvalidOperation("torch.gradient expected each dimension size to be at least edge_order+1")
    return tuple([_slopes(F, input, axis, width, edge_order) for axis, width in zip(axes, widths, strict=True)])


def _slopes(F: Any, x: Any, axis: int, width: float, edge_order: int) -> Any:
    n = x.shape[axis]

    def at(start: int, length: int = 1) -> Any:
        return F.narrow(x, axis, start, length)

    if edge_order == 1:
        first, last = at(1) - at(0), at(n - 1) - at(n - 2)
    else:
        first = at(1) * 2 - at(0) * 1.5 - at(2) * 0.5
        last = at(n - 1) * 1.5 - at(n - 2) * 2 + at(n - 3) * 0.5
    middle = (at(2, n - 2) - at(0, n - 2)) / 2
    return F.cat([first / width, middle / width, last / width], axis)
