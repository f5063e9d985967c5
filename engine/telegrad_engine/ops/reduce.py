"""Ops that reduce dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..cases import T, case, reduction
from ..dtypes import bool_, float32, from_numpy, int64, is_floating
from ..errors import DTypeMismatch, IndexOutOfRange, InvalidOperation
from ..params import Array, Bool, Int, Ints, Number, OptionalBool, OptionalDType, OptionalInt, OptionalInts, OptionalNumber
from ..registry import composite, op
from ..specs import Spec, reduced_shape, wrap_dim, wrap_dims

# How sizes and dtypes come about ------------------------------------------------------------------


def _reduced(input: Any, dim: Any, keepdim: bool, dtype: Any = None) -> Spec:
    shape = reduced_shape(input.shape, wrap_dims(dim, len(input.shape)), keepdim)
    return Spec(shape, input.dtype if dtype is None else dtype)


def _sum_rule(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Spec:
    own = input.dtype if is_floating(input.dtype) else int64.numpy
    return _reduced(input, dim, keepdim, own if dtype is None else dtype.numpy)


def _floating(name: str, input: Any, text: str) -> None:
    if not is_floating(input.dtype):
        raise DTypeMismatch(f"{name}(): {text} Got: {from_numpy(input.dtype).kernel_name}")


def axes(dim: Any, ndim: int) -> tuple[int, ...]:
    """``dim`` as NumPy's axis argument: always a tuple, empty for a 0-dim array."""
    return wrap_dims(dim, ndim) if ndim else ()


def restore(F: Any, grad: Any, shape: tuple[int, ...], dim: Any, keepdim: bool) -> Any:
    """Spread the gradient of a reduction back over the input's shape."""
    if not keepdim:
        kept = reduced_shape(shape, wrap_dims(dim, len(shape)), True)
        grad = F.reshape(grad, kept)
    return F.expand(grad, shape)


def count(shape: tuple[int, ...], dim: Any) -> int:
    """Number of elements that are reduced into one."""
    return math.prod(shape[d] for d in wrap_dims(dim, len(shape))) if shape else 1


def _by_dim(name: str) -> Callable[[Any], str]:
    """torch numbers a reduction's node by its overload: of everything, or of some dimensions."""
    return lambda node: f"{name}Backward{int(node.attrs.get('dim') is not None)}"


# Sums and means -----------------------------------------------------------------------------------


@op(
    _sum_rule,
    node=_by_dim("Sum"),
    cases=[
        *reduction(),
        case(T(2, 3, dtype="int64")),
        case(T(2, 3, dtype="bool"), dim=1),
        case(T(2, 3), dtype="float64"),
        case(T(2, 3, 4), dim=()),
    ],
)
def sum_(xp: Any, input: Array, dim: OptionalInts = None, keepdim: Bool = False, *, dtype: OptionalDType = None) -> Any:
    """The sum over ``dim``, or over everything. Integers and bools sum in int64."""
    if dtype is not None:
        input = input.astype(dtype.numpy)
    elif input.dtype.kind in "biu":
        input = input.astype(int64.numpy)
    return xp.sum(input, axis=axes(dim, input.ndim), keepdims=keepdim)


sum_.derivative(input=lambda F, grad, input_shape, dim, keepdim: restore(F, grad, input_shape, dim, keepdim))


def _mean_rule(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Spec:
    if dtype is None:
        _floating(
            "mean",
            input,
            "could not infer output dtype. Input dtype must be either a floating point or complex dtype.",
        )
    return _reduced(input, dim, keepdim, input.dtype if dtype is None else dtype.numpy)


@op(_mean_rule, node=_by_dim("Mean"), cases=[*reduction(), case(T(2, 3, dtype="int64"), dtype="float32")])
def mean(xp: Any, input: Array, dim: OptionalInts = None, keepdim: Bool = False, *, dtype: OptionalDType = None) -> Any:
    """The mean over ``dim``, or over everything."""
    if dtype is not None:
        input = input.astype(dtype.numpy)
    total = xp.sum(input, axis=axes(dim, input.ndim), keepdims=keepdim)
    return xp.true_divide(total, count(input.shape, dim), dtype=total.dtype)


mean.derivative(
    input=lambda F, grad, input_shape, dim, keepdim: (
        restore(F, grad / max(count(input_shape, dim), 1), input_shape, dim, keepdim)
    )
)


def _var_rule(
    input: Any, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: Any = None
) -> Spec:
    if not is_floating(input.dtype):
        raise DTypeMismatch("std and var only support floating point and complex dtypes")
    return _reduced(input, dim, keepdim)


def _correction(unbiased: Any, correction: Any) -> float:
    if correction is not None:
        return float(correction)
    return 0.0 if unbiased is False else 1.0


VARIANCES = [
    *[case(*c.args, **c.kwargs) for c in reduction((3, 2, 4)) if c.args[0].shape],
    case(T(3, 4), dim=1, correction=0),
    case(T(3, 4), dim=0, unbiased=False),
]


@op(_var_rule, cases=VARIANCES)
def var(
    xp: Any,
    input: Array,
    dim: OptionalInts = None,
    unbiased: OptionalBool = None,
    keepdim: Bool = False,
    *,
    correction: OptionalNumber = None,
) -> Any:
    """The variance over ``dim``, divided by n - correction (1 unless told)."""
    axis = axes(dim, input.ndim)
    n = count(input.shape, dim) - _correction(unbiased, correction)
    total = xp.sum(input, axis=axis, keepdims=True)
    centred = input - xp.true_divide(total, count(input.shape, dim), dtype=total.dtype)
    total = xp.sum(centred * centred, axis=axis, keepdims=keepdim)
    return total / max(n, 0.0) if n > 0 else total / xp.zeros((), input.dtype)


def _centred(F: Any, input: Any, dim: Any) -> Any:
    return input - F.mean(input, dim, True)


def _var_grad(F: Any, grad: Any, input: Any, dim: Any, unbiased: Any, keepdim: Any, correction: Any) -> Any:
    n = count(input.shape, dim) - _correction(unbiased, correction)
    spread = restore(F, grad, tuple(input.shape), dim, keepdim)
    return spread * _centred(F, input, dim) * (2.0 / n if n else math.nan)


var.derivative(input=_var_grad)


@op(_var_rule, cases=VARIANCES)
def std(
    xp: Any,
    input: Array,
    dim: OptionalInts = None,
    unbiased: OptionalBool = None,
    keepdim: Bool = False,
    *,
    correction: OptionalNumber = None,
) -> Any:
    """The standard deviation over ``dim``: the square root of the variance."""
    return xp.sqrt(var.raw(xp, input, dim, unbiased, keepdim, correction=correction))


def _std_grad(
    F: Any, grad: Any, input: Any, result: Any, dim: Any, unbiased: Any, keepdim: Any, correction: Any
) -> Any:
    # Where the deviation is 0 the slope is taken as 0, as torch does.
    slope = F.where(result == 0.0, 0.0, grad / (result * 2.0))
    return _var_grad(F, slope, input, dim, unbiased, keepdim, correction)


std.derivative(input=_std_grad)


@op(_sum_rule, cases=[case(T(2, 3)), case(T(2, 3, dtype="int64")), case(T()), case(T(0)), case(T(3, values=[1.0, 0.0, 2.0]))])
def prod(xp: Any, input: Array, *, dtype: OptionalDType = None) -> Any:
    """The product of all elements."""
    return xp.prod(input, dtype=dtype.numpy if dtype else None if is_floating(input.dtype) else int64.numpy)


def _prod_grad(F: Any, grad: Any, input: Any) -> Any:
    """The product of all other elements, exact with zeros: products from the left times those from the right."""
    flat = F.reshape(input, (-1,))
    n = flat.shape[0]
    ones = F.ones_like(flat)
    rows = F.where(_off_diagonal(F, flat, n), F.expand(flat, (n, n)), F.expand(ones, (n, n)))
    others = ones
    for i in range(n):
        others = others * F.select(rows, 1, i)
    return grad * F.reshape(others, tuple(input.shape))


def _off_diagonal(F: Any, flat: Any, n: int) -> Any:
    positions = F.cumsum(F.ones_like(flat), 0)
    return F.ne(F.reshape(positions, (n, 1)), F.reshape(positions, (1, n)))


prod.derivative(input=_prod_grad)


def _cumsum_rule(input: Any, dim: int, *, dtype: Any = None) -> Spec:
    wrap_dim(dim, len(input.shape))
    own = input.dtype if is_floating(input.dtype) else int64.numpy
    return Spec(input.shape, own if dtype is None else dtype.numpy)


@op(_cumsum_rule, cases=[case(T(2, 3), 0), case(T(2, 3), -1), case(T(3, dtype="int64"), 0), case(T(), 0), case(T(0, 3), 0)])
def cumsum(xp: Any, input: Array, dim: Int, *, dtype: OptionalDType = None) -> Any:
    """The running sum along ``dim``."""
    wanted = dtype.numpy if dtype else input.dtype if is_floating(input.dtype) else int64.numpy
    return xp.cumsum(input, axis=dim, dtype=wanted) if input.ndim else input.astype(wanted)


cumsum.derivative(input=lambda F, grad, dim: F.flip(F.cumsum(F.flip(grad, (dim,)), dim), (dim,)))


# Largest and smallest ------------------------------------------------------------------------------


def _nonempty(name: str) -> Callable[..., Spec]:
    def rule(input: Any) -> Spec:
        if math.prod(input.shape) == 0:
            raise InvalidOperation(
                f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
                "Specify the reduction dim with the 'dim' argument."
            )
        return Spec((), input.dtype)

    return rule


WHOLE = [case(T(2, 3)), case(T()), case(T(4, values=[1.0, 2.0, 2.0, -3.0])), case(T(4, values=[1.0, -3.0, -3.0, 0.0]))]


@op(_nonempty("max"), node="MaxBackward1", cases=WHOLE)
def max_(xp: Any, input: Array) -> Any:
    """The largest element; ties share the gradient evenly."""
    return xp.max(input)


@op(_nonempty("min"), node="MinBackward1", cases=WHOLE)
def min_(xp: Any, input: Array) -> Any:
    """The smallest element; ties share the gradient evenly."""
    return xp.min(input)


def _evenly(F: Any, grad: Any, hits: Any, dim: Any) -> Any:
    shares = F.sum(hits, dim, True, dtype=float32) if dim is not None else F.sum(hits, dtype=float32)
    return grad * hits / F.to(shares, dtype=from_numpy(_dtype(grad)))


def _dtype(value: Any) -> Any:
    return value._data.dtype if hasattr(value, "_data") else value.dtype


for _whole in (max_, min_):
    _whole.derivative(input=lambda F, grad, input, result: _evenly(F, grad, F.eq(input, result), None))


def _along(name: str) -> Callable[..., list[Spec]]:
    def rule(input: Any, dim: int, keepdim: bool = False) -> list[Spec]:
        axis = wrap_dim(dim, len(input.shape))
        if input.shape and input.shape[axis] == 0:
            raise IndexOutOfRange(
                f"{name}(): Expected reduction dim {axis} to have non-zero size."
            )
        shape = reduced_shape(input.shape, (axis,), keepdim)
        return [Spec(shape, input.dtype), Spec(shape, int64.numpy)]

    return rule


ALONG = [
    case(T(2, 3), 1),
    case(T(2, 3, 4), -2, True),
    case(T(3), dim=0),
    case(T(), 0),
    case(T(0, 3), 1),
    case(T(2, 3, values=[[1.0, 2.0, 2.0], [5.0, 5.0, 0.0]]), 1),
]


def _by_argument(xp: Any, find: Any, input: Any, dim: int, keepdim: bool) -> Any:
    if not input.ndim:
        return input, xp.zeros((), int64.numpy)
    indices = find(input, axis=dim, keepdims=True)
    values = xp.take_along_axis(input, indices, axis=dim)
    return (values, indices) if keepdim else (xp.squeeze(values, dim), xp.squeeze(indices, dim))


@op(_along("max"), key="max.dim", outputs=("values", "indices"), cases=ALONG)
def max_dim(xp: Any, input: Array, dim: Int, keepdim: Bool = False) -> Any:
    """The largest elements along ``dim`` and their indices; the gradient goes to the index."""
    return _by_argument(xp, xp.argmax, input, dim, keepdim)


@op(_along("min"), key="min.dim", outputs=("values", "indices"), cases=ALONG)
def min_dim(xp: Any, input: Array, dim: Int, keepdim: Bool = False) -> Any:
    """The smallest elements along ``dim`` and their indices; the gradient goes to the index."""
    return _by_argument(xp, xp.argmin, input, dim, keepdim)


def _to_index(F: Any, grads: Any, indices: Any, input_shape: Any, dim: int, keepdim: bool) -> Any:
    grad = grads[0]
    if grad is None:
        return None
    if not keepdim and input_shape:
        grad, indices = F.unsqueeze(grad, dim), F.unsqueeze(indices, dim)
    if not input_shape:
        return grad
    return F.scatter_add(F.new_zeros(grad, input_shape), dim, indices, grad)


for _indexed in (max_dim, min_dim):
    _indexed.derivative(input=_to_index)


@composite(key="max.other", cases=[case(T(2, 3), T(3))])
def max_other(F: Any, input: Array, other: Array) -> Any:
    """The larger of two, elementwise: ``maximum``."""
    return F.maximum(input, other)


@composite(key="min.other", cases=[case(T(2, 3), T(3))])
def min_other(F: Any, input: Array, other: Array) -> Any:
    """The smaller of two, elementwise: ``minimum``."""
    return F.minimum(input, other)


def _extreme_rule(name: str) -> Callable[..., Spec]:
    def rule(input: Any, dim: Any = None, keepdim: bool = False) -> Spec:
        dims = wrap_dims(dim, len(input.shape))
        for d in dims:
            if input.shape and input.shape[d] == 0:
                raise (
                    InvalidOperation(
                        f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
                        "Specify the reduction dim with the 'dim' argument."
                    )
                    if dim is None
                    else IndexOutOfRange(f"{name}(): Expected reduction dim {d} to have non-zero size.")
                )
        return _reduced(input, dim, keepdim)

    return rule


EXTREMES = [*reduction()[:-1], case(T(2, 3, values=[[1.0, 2.0, 2.0], [5.0, 5.0, 0.0]]), dim=1)]


@op(_extreme_rule("amax"), cases=EXTREMES)
def amax(xp: Any, input: Array, dim: OptionalInts = None, keepdim: Bool = False) -> Any:
    """The largest elements over ``dim``; ties share the gradient evenly."""
    return xp.max(input, axis=axes(dim, input.ndim), keepdims=keepdim)


@op(_extreme_rule("amin"), cases=EXTREMES)
def amin(xp: Any, input: Array, dim: OptionalInts = None, keepdim: Bool = False) -> Any:
    """The smallest elements over ``dim``; ties share the gradient evenly."""
    return xp.min(input, axis=axes(dim, input.ndim), keepdims=keepdim)


def _amax_grad(F: Any, grad: Any, input: Any, result: Any, dim: Any, keepdim: bool) -> Any:
    shape = tuple(input.shape)
    hits = F.eq(input, restore(F, result, shape, dim, keepdim))
    return _evenly(F, restore(F, grad, shape, dim, keepdim), hits, wrap_dims(dim, len(shape)) or None)


amax.derivative(input=_amax_grad)
amin.derivative(input=_amax_grad)


def _arg_rule(name: str) -> Callable[..., Spec]:
    def rule(input: Any, dim: Any = None, keepdim: bool = False) -> Spec:
        if dim is None:
            if math.prod(input.shape) == 0:
                raise IndexOutOfRange(f"{name}(): Expected reduction dim to be specified for input.numel() == 0.")
            return Spec((1,) * len(input.shape) if keepdim else (), int64.numpy)
        axis = wrap_dim(dim, len(input.shape))
        if input.shape and input.shape[axis] == 0:
            raise IndexOutOfRange(f"{name}(): Expected reduction dim {axis} to have non-zero size.")
        return Spec(reduced_shape(input.shape, (axis,), keepdim), int64.numpy)

    return rule


ARGUMENTS = [case(T(2, 3)), case(T(2, 3), 1), case(T(2, 3), dim=0, keepdim=True), case(T()), case(T(0, 3), 1)]


@op(_arg_rule("argmax"), cases=ARGUMENTS)
def argmax(xp: Any, input: Array, dim: OptionalInt = None, keepdim: Bool = False) -> Any:
    """The index of the largest element, of the flattened input unless ``dim`` is given."""
    return xp.argmax(input, axis=dim if input.ndim else None, keepdims=keepdim)


@op(_arg_rule("argmin"), cases=ARGUMENTS)
def argmin(xp: Any, input: Array, dim: OptionalInt = None, keepdim: Bool = False) -> Any:
    """The index of the smallest element, of the flattened input unless ``dim`` is given."""
    return xp.argmin(input, axis=dim if input.ndim else None, keepdims=keepdim)


# Truth ---------------------------------------------------------------------------------------------


def _truth_rule(input: Any, dim: Any = None, keepdim: bool = False) -> Spec:
    return _reduced(input, dim, keepdim, bool_.numpy)


TRUTHS = [case(T(2, 3, dtype="bool")), case(T(2, 3), dim=1), case(T(2, 3), 0, True), case(T(0, 3), dim=0), case(T())]


@op(_truth_rule, cases=TRUTHS)
def all_(xp: Any, input: Array, dim: OptionalInts = None, keepdim: Bool = False) -> Any:
    """Whether every element is non-zero."""
    return xp.all(input, axis=axes(dim, input.ndim), keepdims=keepdim)


@op(_truth_rule, cases=TRUTHS)
def any_(xp: Any, input: Array, dim: OptionalInts = None, keepdim: Bool = False) -> Any:
    """Whether any element is non-zero."""
    return xp.any(input, axis=axes(dim, input.ndim), keepdims=keepdim)


# Log-sum-exp and the softmaxes ---------------------------------------------------------------------


def _logsumexp_rule(input: Any, dim: Any, keepdim: bool = False) -> Spec:
    if not is_floating(input.dtype):
        return _reduced(input, dim, keepdim, float32.numpy)
    return _reduced(input, dim, keepdim)


@op(
    _logsumexp_rule,
    cases=[
        case(T(2, 3), 1),
        case(T(2, 3, 4), (0, 2), True),
        case(T(), 0),
        case(T(0, 3), 0),
        case(T(2, 2, values=[[-math.inf, -math.inf], [-math.inf, 1.0]]), 1),
        case(T(3, values=[1000.0, 1000.0, -1000.0]), 0),
    ],
)
def logsumexp(xp: Any, input: Array, dim: Ints, keepdim: Bool = False) -> Any:
    """``log(sum(exp(input)))`` over ``dim`` without overflow; -inf where all elements are."""
    if not is_floating(input.dtype):
        input = input.astype(float32.numpy)
    axis = axes(dim, input.ndim)
    top = xp.max(input, axis=axis, keepdims=True, initial=-math.inf)
    top = xp.where(xp.isfinite(top), top, xp.zeros_like(top))
    result = xp.log(xp.sum(xp.exp(input - top), axis=axis, keepdims=True)) + top
    return result if keepdim else xp.squeeze(result, axis)


def _logsumexp_grad(F: Any, grad: Any, input: Any, result: Any, dim: Any, keepdim: bool) -> Any:
    shape = tuple(input.shape)
    return restore(F, grad, shape, dim, keepdim) * F.exp(input - restore(F, result, shape, dim, keepdim))


logsumexp.derivative(input=_logsumexp_grad)
