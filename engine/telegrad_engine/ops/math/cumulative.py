"""Cumulative sums, products and extremes; finite differences and numerical integration."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from ...dtypes import bool_, int64, widened
from ...errors import IndexOutOfRange, InvalidOperation, ShapeMismatch
from ...schema.declaration import FUNCTION, INPLACE, LIST, METHOD, named, scratch
from ...schema.op import composite, op
from ...schema.parameters import Array, Arrays, Bool, Int, Number, NumberOrNumbers, OptionalDType, OptionalInts
from ...schema.promotion import RESULT_FLOAT32_ON_CUDA, Autocast, Policy
from ...shapes import Spec, reduced_shape, size_at, wrap_dim
from .declarations import same_floating
from .reduction import accumulated, accumulated_dtype, running_rule, times
from .sorting import route, values_and_indices


@op(partial(running_rule, "cumprod_out_cpu"), variants=FUNCTION | METHOD | INPLACE, autocast=RESULT_FLOAT32_ON_CUDA)
def cumprod(xp: Any, input: Array, dim: Int, *, dtype: OptionalDType = None) -> Any:
    """The running product along ``dim``."""
    wide = accumulated(input, dtype)
    return xp.cumprod(wide, axis=dim) if input.ndim else wide


def _before(F: Any, running: Any, dim: int) -> Any:
    """The exclusive running product, from the inclusive one."""
    n = running.shape[dim]
    return F.cat([F.ones_like(F.narrow(running, dim, 0, 1)), F.narrow(running, dim, 0, n - 1)], dim)


def _accumulate_back(F: Any, total: Any, factor: Any, dim: int) -> Any:
    """Return s with s[k] = total[k] + factor[k] s[k + 1], where the last element of s is that of total.

    Computed by doubling (Hillis and Steele's scan): after each step, s[k] covers twice as many terms, and factor[k] is
    the product of the factors that those terms span. A factor of 0 cuts off what comes after it, infinite or not.
    """
    n, step = total.shape[dim], 1
    while step < n:
        left = n - step
        reached = F.narrow(total, dim, 0, left) + times(F, factor, F.narrow(total, dim, step, left))
        total = F.cat([reached, F.narrow(total, dim, left, step)], dim)
        if left > step:
            factor = F.narrow(factor, dim, 0, left - step) * F.narrow(factor, dim, step, left - step)
        step *= 2
    return total


def _cumprod_grad(F: Any, grad: Any, input: Any, result: Any, dim: int) -> Any:
    """The exclusive product of the elements before each index times the backward recurrence: exact with zeros."""
    if not input.shape or not input.shape[dim]:
        return grad
    following = F.narrow(input, dim, 1, input.shape[dim] - 1)
    return times(F, _before(F, result, dim), _accumulate_back(F, grad, following, dim))


cumprod.derivative(input=_cumprod_grad)


def _prod_rule(input: Any, dim: int, keepdim: bool, dtype: Any) -> Spec:
    axis = wrap_dim(dim, len(input.shape))
    return Spec(reduced_shape(input.shape, (axis,), keepdim), accumulated_dtype(input, dtype))


@op(
    _prod_rule,
    key="prod.dim",
    node="ProdBackward1",
    memory=scratch(1.25),
    autocast=Autocast(cpu=Policy.FLOAT32, cuda=Policy.RESULT_FLOAT32),
)
def prod_dim(xp: Any, input: Array, dim: Int, keepdim: Bool = False, *, dtype: OptionalDType = None) -> Any:
    """The product along ``dim``."""
    wide = accumulated(input, dtype)
    return xp.prod(wide, axis=dim, keepdims=keepdim) if input.ndim else wide


def _prod_grad(F: Any, grad: Any, input: Any, dim: int, keepdim: bool) -> Any:
    """The product of all elements before times that of all elements after: exact with zeros."""
    if not input.shape:
        return grad
    if not keepdim:
        grad = F.unsqueeze(grad, wrap_dim(dim, len(input.shape)))
    if not input.shape[dim]:
        return F.new_zeros(grad, tuple(input.shape))
    before = _before(F, F.cumprod(input, dim), dim)
    after = F.flip(_before(F, F.cumprod(F.flip(input, (dim,)), dim), dim), (dim,))
    return grad * before * after


prod_dim.derivative(input=_prod_grad)


# Extremes ------------------------------------------------------------------------------------------------


def _running_rule(name: str, input: Any, dim: int) -> list[Spec]:
    if not input.shape and dim not in (0, -1):
        raise IndexOutOfRange(f"{name}(): Expected reduction dim -1 or 0 for scalar but got {dim}")
    wrap_dim(dim, len(input.shape))
    return values_and_indices(input, input.shape)


def _running(xp: Any, extreme: str, input: Any, dim: int) -> Any:
    if not input.ndim:
        return input, xp.zeros((), int64.numpy)
    values = xp.running(extreme, input, dim)
    places = xp.arange(input.shape[dim]).reshape([-1 if d == dim % input.ndim else 1 for d in range(input.ndim)])
    # The index of the running extreme is the last one that equals it; a NaN is the extreme from there on.
    newest = xp.where((input == values) | (input != input), places, 0)
    return values, xp.running("maximum", newest, dim)


@op(partial(_running_rule, "cummax"), results=named("values", "indices"))
def cummax(xp: Any, input: Array, dim: Int) -> Any:
    """The running maximum along ``dim`` and its indices, the last of equals; the gradient goes to the index."""
    return _running(xp, "maximum", input, dim)


@op(partial(_running_rule, "cummin"), results=named("values", "indices"))
def cummin(xp: Any, input: Array, dim: Int) -> Any:
    """The running minimum along ``dim`` and its indices, the last of equals; the gradient goes to the index."""
    return _running(xp, "minimum", input, dim)


for _indexed in (cummax, cummin):
    _indexed.derivative(input=route)


# Log-sum-exp ---------------------------------------------------------------------------------------------


def _logcumsumexp_rule(input: Any, dim: int) -> Spec:
    wrap_dim(dim, len(input.shape))
    return same_floating("logcumsumexp_out_cpu")(input)


@op(_logcumsumexp_rule)
def logcumsumexp(xp: Any, input: Array, dim: Int) -> Any:
    """The logarithm of the running sum of exponentials along ``dim``, without overflow."""
    return xp.running("logaddexp", widened(input), dim) if input.ndim else input


def _logcumsumexp_grad(F: Any, grad: Any, input: Any, result: Any, dim: int) -> Any:
    """The sum of grad[i] exp(input[k] - result[i]) over i >= k, computed with factors that are at most 1."""
    if not input.shape or not input.shape[dim]:
        return grad
    left = input.shape[dim] - 1
    here, there = F.narrow(result, dim, 0, left), F.narrow(result, dim, 1, left)
    decay = F.where(here == -math.inf, 0.0, F.exp(here - there))
    own = F.exp(input - result)
    # NaN up to the first finite element, as in torch; it must not spread to later elements.
    none = result == -math.inf
    return F.where(none, own * grad, F.where(none, 0.0, own) * _accumulate_back(F, grad, decay, dim))


logcumsumexp.derivative(input=_logcumsumexp_grad)


# Finite differences and the trapezoidal rule -------------------------------------------------------------


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
    """The differences of ``x``, which is a vector along ``axis`` or has the dimensions of ``y``."""
    if x.ndim != 1:
        return F.diff(x, 1, axis)
    if x.shape[0] != size_at(y.shape, axis):
        raise ShapeMismatch("trapezoid: There must be one `x` value for each sample point")
    return F.reshape(F.diff(x), [-1 if d == axis else 1 for d in range(y.ndim)])


def _declare_trapezoid(name: str, doc: str, integrate: str, aliases: tuple[str, ...] = ()) -> None:
    """Declare the area below the lines that join neighbours, or its running sum, for a spacing and for coordinates."""

    def by_spacing(F: Any, y: Array, *, dx: Number = 1, dim: Int = -1) -> Any:
        if y.dtype is bool_:
            raise InvalidOperation(f"{name}: received a bool input for `y`, but bool is not supported")
        axis = wrap_dim(dim, y.ndim)
        return getattr(F, integrate)(_areas(F, y, dx, axis), axis)

    def by_coordinates(F: Any, y: Array, x: Array, *, dim: Int = -1) -> Any:
        if bool_ in (x.dtype, y.dtype):
            raise InvalidOperation(f"{name}: received a bool input for `x` or `y`, but bool is not supported")
        axis = wrap_dim(dim, y.ndim)
        return getattr(F, integrate)(_areas(F, y, _widths(F, y, x, axis), axis), axis)

    by_spacing.__doc__ = f"{doc} below the lines that join neighbours along ``dim``, ``dx`` apart."
    by_coordinates.__doc__ = f"{doc} below the lines that join neighbours along ``dim``, which are at ``x``."
    composite(key=f"{name}.dx", aliases=aliases, variants=FUNCTION)(by_spacing)
    composite(key=name, aliases=aliases, variants=FUNCTION)(by_coordinates)


_declare_trapezoid("trapezoid", "The area", "sum", aliases=("trapz",))
_declare_trapezoid("cumulative_trapezoid", "The running area", "cumsum")


def _gradient_axes(input: Any, dim: Any, edge_order: int) -> list[int]:
    """The dimensions along which ``gradient`` differentiates."""
    if edge_order not in (1, 2):
        raise InvalidOperation("torch.gradient only supports edge_order=1 and edge_order=2.")
    return [wrap_dim(d, input.ndim) for d in (range(input.ndim) if dim is None else dim)]


def _gradients(slopes: Any, F: Any, input: Any, axes: list[int], spacings: Any, edge_order: int) -> tuple[Any, ...]:
    """Apply ``slopes`` to each of the dimensions, with its spacing."""
    if any(size_at(input.shape, axis) <= edge_order for axis in axes):
        raise InvalidOperation("torch.gradient expected each dimension size to be at least edge_order+1")
    return tuple([slopes(F, input, axis, spacing, edge_order) for axis, spacing in zip(axes, spacings, strict=True)])


@composite(key="gradient.tensorarray", variants=FUNCTION, results=LIST)
def gradient_tensorarray(
    F: Any, input: Array, *, spacing: Arrays, dim: OptionalInts = None, edge_order: Int = 1
) -> Any:
    """The slopes along each of ``dim``, all by default, where ``spacing`` has the coordinates along each.

    ``spacing`` is a list of 1-D tensors. The formulas and errors are the same as for numeric spacings.
    """
    axes = _gradient_axes(input, dim, edge_order)
    if dim is None and len(spacing) != input.ndim:
        raise InvalidOperation(
            "torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal to 'self.dim() = "
            f"{input.ndim}', since dim argument was not given, but got a list of length {len(spacing)}"
        )
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
    return _gradients(_slopes_at, F, input, axes, spacing, edge_order)


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


@composite(variants=FUNCTION, results=LIST)
def gradient(
    F: Any, input: Array, *, spacing: NumberOrNumbers = None, dim: OptionalInts = None, edge_order: Int = 1
) -> Any:
    """The slopes along each of ``dim``, all by default: central differences, one-sided ones at the edges.

    Edges of order 2 use three elements. Formulas: Fornberg, "Generation of finite difference formulas on arbitrarily
    spaced grids" (1988).
    """
    axes = _gradient_axes(input, dim, edge_order)
    widths = spacing if isinstance(spacing, tuple) else (1 if spacing is None else spacing,) * len(axes)
    if len(widths) != len(axes):
        raise InvalidOperation(
            f"torch.gradient expected spacing to be unspecified, a scalar or a list of length {len(axes)}, but got a "
            f"list of length {len(widths)}"
        )
    return _gradients(_slopes, F, input, axes, widths, edge_order)


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
