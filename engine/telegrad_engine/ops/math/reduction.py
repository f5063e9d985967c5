"""Sums, means, variances and other reductions over dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from ...dtypes import LOW, bool_, float32, from_numpy, int64, is_floating, widened
from ...errors import DTypeMismatch
from ...schema.declaration import FUNCTION, INPLACE, LIST, METHOD, NO_SCRATCH, RESULT, Results, Variants, blocks
from ...schema.op import composite, op
from ...schema.parameters import Array, Bool, Int, Ints, OptionalBool, OptionalDType, OptionalInts, OptionalNumber
from ...schema.promotion import FLOAT32_ON_CUDA, RESULT_FLOAT32_ON_CUDA, Autocast, Policy
from ...shapes import Spec, reduced_shape, wrap_dim, wrap_dims
from ..batching import math_rules
from ..blocked_loops import reduce_in_blocks
from ..guards import no_kernel


def reduced(input: Any, dim: Any, keepdim: bool, dtype: Any = None) -> Spec:
    """The spec after reducing ``dim``, in the input's dtype or in ``dtype``."""
    shape = reduced_shape(input.shape, wrap_dims(dim, len(input.shape)), keepdim)
    return Spec(shape, input.dtype if dtype is None else dtype)


def accumulated_dtype(input: Any, dtype: Any) -> Any:
    """The dtype of a sum or product: ``dtype`` if given, the input's if floating, else int64."""
    return dtype.numpy if dtype else input.dtype if is_floating(input.dtype) else int64.numpy


def accumulated(input: Any, dtype: Any) -> Any:
    """``input`` in the dtype that sums and products are computed in: float16 and bfloat16 are computed in float32."""
    return widened(input.astype(accumulated_dtype(input, dtype)))


def running_rule(kernel: str, input: Any, dim: int, dtype: Any) -> Spec:
    """The spec of a running sum or product; raises for bool, which torch's ``kernel`` does not support."""
    if dtype is bool_:
        raise no_kernel(kernel, bool_.numpy)
    wrap_dim(dim, len(input.shape))
    return Spec(input.shape, accumulated_dtype(input, dtype))


def sum_rule(input: Any, dim: Any, keepdim: bool, dtype: Any) -> Spec:
    """The spec of a sum over ``dim``, or over all dimensions."""
    return reduced(input, dim, keepdim, accumulated_dtype(input, dtype))


def axes(dim: Any, ndim: int) -> tuple[int, ...]:
    """``dim`` as NumPy's axis argument: always a tuple, empty for a 0-dim array."""
    return wrap_dims(dim, ndim) if ndim else ()


def restore(F: Any, grad: Any, shape: tuple[int, ...], dim: Any, keepdim: bool) -> Any:
    """Expand the gradient of a reduction to the input's shape."""
    if dim is None and F.xp is not None:
        return F.xp.broadcast_to(grad, shape)
    if not keepdim:
        kept = reduced_shape(shape, wrap_dims(dim, len(shape)), True)
        grad = F.reshape(grad, kept)
    return F.expand(grad, shape)


def count(shape: tuple[int, ...], dim: Any) -> int:
    """The number of elements that are reduced into one."""
    return math.prod(shape[d] for d in wrap_dims(dim, len(shape))) if shape else 1


def _by_dim(name: str) -> Callable[[Any], str]:
    """The node name of a reduction, numbered by overload as in torch: 0 over all dimensions, 1 over ``dim``."""
    return lambda node: f"{name}Backward{int(node.attrs.get('dim') is not None)}"


# Sums and means ------------------------------------------------------------------------------------------


def _reduce(xp: Any, input: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    whole = input.dtype == accumulated_dtype(input, dtype) and input.dtype not in LOW
    return partial(xp.add.reduce, axis=axes(dim, input.ndim), keepdims=keepdim) if whole else None


@op(sum_rule, node=_by_dim("Sum"), memory=NO_SCRATCH, autocast=RESULT_FLOAT32_ON_CUDA, prepare=_reduce)
def sum_(xp: Any, input: Array, dim: OptionalInts = None, keepdim: Bool = False, *, dtype: OptionalDType = None) -> Any:
    """The sum over ``dim``, or over everything. Integers and bools sum in int64."""
    return _sum(xp, input, dim, keepdim, accumulated_dtype(input, dtype))


def _sum(xp: Any, input: Any, dim: Any, keepdim: bool, kind: Any) -> Any:
    """The sum in the dtype ``kind``, computed in float32 for a dtype in LOW. Casts are done block by block."""
    axis = axes(dim, input.ndim)
    if input.dtype == kind and kind not in LOW:
        return xp.sum(input, axis=axis, keepdims=keepdim)
    return reduce_in_blocks(xp, xp.sum, lambda x: widened(x.astype(kind)), (input,), axis, keepdim)


sum_.derivative(input=lambda F, grad, input_shape, dim, keepdim: restore(F, grad, input_shape, dim, keepdim))


def _mean_rule(input: Any, dim: Any, keepdim: bool, dtype: Any) -> Spec:
    wanted = from_numpy(input.dtype) if dtype is None else dtype
    if not wanted.is_floating_point:
        raise DTypeMismatch(
            f"mean(): could not infer output dtype. {'Input' if dtype is None else 'Optional'} dtype must be either a "
            f"floating point or complex dtype. Got: {wanted.kernel_name}"
        )
    return reduced(input, dim, keepdim, wanted.numpy)


def _over(grad: Any, n: int) -> Any:
    """``grad / n``, in two steps if ``n`` could exceed float16's range."""
    return grad / n if n < 2**15 else grad * 2.0**-15 / (n / 2**15)


def _average(xp: Any, input: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    total, n, divide = _reduce(xp, input, dim, keepdim, dtype), count(input.shape, dim), xp.true_divide
    return None if total is None else lambda x: divide(total(x), n, dtype=x.dtype)


@op(_mean_rule, node=_by_dim("Mean"), prepare=_average)
def mean(xp: Any, input: Array, dim: OptionalInts = None, keepdim: Bool = False, *, dtype: OptionalDType = None) -> Any:
    """The mean over ``dim``, or over everything."""
    total = _sum(xp, input, dim, keepdim, input.dtype if dtype is None else dtype.numpy)
    return xp.true_divide(total, count(input.shape, dim), dtype=total.dtype)


mean.derivative(
    input=lambda F, grad, input_shape, dim, keepdim: restore(
        F, _over(grad, max(count(input_shape, dim), 1)), input_shape, dim, keepdim
    )
)


@op(
    lambda input, dtype: Spec((), accumulated_dtype(input, dtype)),
    memory=blocks(1.25),
    autocast=Autocast(cpu=Policy.FLOAT32, cuda=Policy.RESULT_FLOAT32),
    batching=math_rules.of_all,
)
def prod(xp: Any, input: Array, *, dtype: OptionalDType = None) -> Any:
    """The product of all elements."""
    wanted = accumulated_dtype(input, dtype)
    return reduce_in_blocks(xp, xp.prod, lambda x: widened(x.astype(wanted)), (input,))


def _products_of_others(F: Any, x: Any) -> Any:
    """For each element of a vector, the product of all others.

    Computed without division, so it is exact with zeros: elements are paired, the products of the other pairs are
    computed recursively, and each is multiplied by the element's partner. That takes about 2 n products.
    """
    n = x.shape[0]
    if n < 2:
        return F.ones_like(x)
    if n % 2:
        x = F.cat([x, F.new_ones(x, (1,))])
    pairs = F.reshape(x, (-1, 2))
    other_pairs = _products_of_others(F, F.select(pairs, 1, 0) * F.select(pairs, 1, 1))
    others = F.unsqueeze(other_pairs, 1) * F.flip(pairs, (1,))
    return F.narrow(F.reshape(others, (-1,)), 0, 0, n)


def times(F: Any, factor: Any, x: Any) -> Any:
    """``factor * x``, and 0 where the factor is 0, even if ``x`` is not finite; under a graph, the plain product."""
    return factor * x if F.xp is None else F.where(factor == 0, 0.0, factor * x)


def _prod_grad(F: Any, grad: Any, input: Any) -> Any:
    others = F.reshape(_products_of_others(F, F.reshape(input, (-1,))), tuple(input.shape))
    # With two zeros, all other factors have the product 0, so the gradient is 0, as in torch.
    return grad * others if F.xp is None else F.where(F.sum(input == 0) > 1, 0.0, grad * others)


prod.derivative(input=_prod_grad)


@op(partial(running_rule, "cumsum_out_cpu"), variants=FUNCTION | METHOD | INPLACE, autocast=RESULT_FLOAT32_ON_CUDA)
def cumsum(xp: Any, input: Array, dim: Int, *, dtype: OptionalDType = None) -> Any:
    """The running sum along ``dim``."""
    wide = accumulated(input, dtype)
    return xp.cumsum(wide, axis=dim) if input.ndim else wide


cumsum.derivative(input=lambda F, grad, dim: F.flip(F.cumsum(F.flip(grad, (dim,)), dim), (dim,)))


# all and any ---------------------------------------------------------------------------------------------


def _truth_rule(input: Any, dim: Any, keepdim: bool) -> Spec:
    if dim == ():
        return Spec(input.shape, bool_.numpy)  # here torch treats an empty dim as no dimensions, not as all
    return reduced(input, dim, keepdim, bool_.numpy)


def _truth_axes(dim: Any, ndim: int) -> tuple[int, ...]:
    return () if dim == () else axes(dim, ndim)


@op(_truth_rule)
def all_(xp: Any, input: Array, dim: OptionalInts = None, keepdim: Bool = False) -> Any:
    """Whether every element is non-zero."""
    return xp.all(input, axis=_truth_axes(dim, input.ndim), keepdims=keepdim)


@op(_truth_rule)
def any_(xp: Any, input: Array, dim: OptionalInts = None, keepdim: Bool = False) -> Any:
    """Whether any element is non-zero."""
    return xp.any(input, axis=_truth_axes(dim, input.ndim), keepdims=keepdim)


# Log-sum-exp ---------------------------------------------------------------------------------------------


def _logsumexp_rule(input: Any, dim: Any, keepdim: bool) -> Spec:
    return reduced(input, dim, keepdim, None if is_floating(input.dtype) else float32.numpy)


@op(_logsumexp_rule, memory=blocks(3.0), autocast=FLOAT32_ON_CUDA)
def logsumexp(xp: Any, input: Array, dim: Ints, keepdim: Bool = False) -> Any:
    """``log(sum(exp(input)))`` over ``dim`` without overflow; -inf where all elements are."""
    axis, wide = axes(dim, input.ndim), _computed
    top = xp.zeros((), float32.numpy)
    if math.prod(input.shape):  # max of an empty array raises
        top = wide(xp.max(input, axis=axis, keepdims=True))
        top = xp.where(xp.isfinite(top), top, xp.zero(top))
    total = reduce_in_blocks(xp, xp.sum, lambda x, top: xp.exp(wide(x) - top), (input, top), axis, True)
    result = xp.log(total) + top
    return result if keepdim else xp.squeeze(result, axis)


def _computed(x: Any) -> Any:
    """``x`` in the dtype that exponentials are computed in: float32 for integers, bools and dtypes in LOW."""
    return widened(x) if is_floating(x.dtype) else x.astype(float32.numpy)


def _logsumexp_grad(F: Any, grad: Any, input: Any, result: Any, dim: Any, keepdim: bool) -> Any:
    shape = tuple(input.shape)
    return restore(F, grad, shape, dim, keepdim) * F.exp(input - restore(F, result, shape, dim, keepdim))


logsumexp.derivative(input=_logsumexp_grad)


# Variances and standard deviations, alone and with the mean ----------------------------------------------


def _var_rule(input: Any, dim: Any, keepdim: bool) -> Spec:
    if not is_floating(input.dtype):
        raise DTypeMismatch("std and var only support floating point and complex dtypes")
    wrap_dims(dim, len(input.shape), in_turn=True)
    return reduced(input, dim, keepdim)


def _correction(unbiased: Any, correction: Any) -> float:
    if correction is not None:
        return float(correction)
    return 0.0 if unbiased is False else 1.0


@op(_var_rule, memory=blocks(3.0))
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
    total = reduce_in_blocks(xp, xp.sum, widened, (input,), axis, True)
    mean = xp.true_divide(total, count(input.shape, dim), dtype=total.dtype)
    total = reduce_in_blocks(xp, xp.sum, _squared_gaps, (input, mean), axis, keepdim)
    return total / max(n, 0.0) if n > 0 else total / xp.zeros((), total.dtype)


def _squared_gaps(input: Any, mean: Any) -> Any:
    gaps = widened(input) - mean
    return gaps * gaps


def _var_grad(F: Any, grad: Any, input: Any, dim: Any, unbiased: Any, keepdim: Any, correction: Any) -> Any:
    n = count(input.shape, dim) - _correction(unbiased, correction)
    spread = restore(F, grad, tuple(input.shape), dim, keepdim)
    return spread * (input - F.mean(input, dim, True)) * (2.0 / n if n else math.nan)


var.derivative(input=_var_grad)


@op(_var_rule, memory=blocks(3.0))
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
    # Where the deviation is 0, the slope is 0, as in torch.
    slope = F.where(result == 0.0, 0.0, grad / (result * 2.0))
    return _var_grad(F, slope, input, dim, unbiased, keepdim, correction)


std.derivative(input=_std_grad)


def _declare_with_mean(name: str, doc: str) -> None:
    """Declare the op that returns the result of the op ``name`` and the mean."""

    def function(
        F: Any,
        input: Array,
        dim: OptionalInts = None,
        unbiased: OptionalBool = None,
        keepdim: Bool = False,
        *,
        correction: OptionalNumber = None,
    ) -> Any:
        spread = getattr(F, name)(input, dim, unbiased, keepdim, correction=correction)
        return spread, F.mean(input, dim, keepdim)

    function.__doc__ = doc
    composite(key=f"{name}_mean", variants=FUNCTION, results=LIST)(function)


_declare_with_mean("var", "The variance over ``dim``, divided by n - correction (1 unless told), and the mean.")
_declare_with_mean("std", "The standard deviation over ``dim``, as ``var_mean`` the variance, and the mean.")


def _declare_unbiased(name: str, doc: str, variants: Variants = FUNCTION | METHOD, results: Results = RESULT) -> None:
    """Declare the overload of the op ``name`` over all dimensions, which takes only ``unbiased``."""

    def function(F: Any, input: Array, unbiased: Bool) -> Any:
        return getattr(F, name)(input, None, unbiased)

    function.__doc__ = doc
    composite(key=f"{name}.unbiased", variants=variants, results=results)(function)


_declare_unbiased("var", "The variance over all dimensions, divided by n - 1 if ``unbiased``, else by n.")
_declare_unbiased("std", "The standard deviation over all dimensions, as ``var`` divides.")
for _name, _doc in (
    ("var_mean", "The variance over all dimensions, as ``var`` divides, and the mean."),
    ("std_mean", "The standard deviation over all dimensions, as ``var`` divides, and the mean."),
):
    _declare_unbiased(_name, _doc, variants=FUNCTION, results=LIST)
