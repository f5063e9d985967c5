"""Sampling with the session's random number generator, into new tensors and in place."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...dtypes import FLOATING, bool_, float16, from_numpy, int64
from ...errors import InvalidOperation
from ...schema.declaration import FUNCTION, INPLACE, NEW, scratch
from ...schema.derivative_plan import Rule
from ...schema.op import Op, op
from ...schema.parameters import Array, Int, Ints, Number, OptionalDType, OptionalInt
from ...schema.promotion import default_float
from ...shapes import Spec
from ..batching import math_rules
from ..guards import kernel_name, no_kernel
from ..math.declarations import same_floating, zero_gradient
from ..shape.creation import sized


def _size_rule(name: str, kernel: str, size: Any, dtype: Any) -> Spec:
    if dtype is not None and not dtype.is_floating_point:
        raise no_kernel(kernel, dtype.numpy)
    return sized(name, size, dtype)


def uniform_numbers(xp: Any, rng: Any, size: Any, dtype: Any) -> Any:
    """Uniform numbers from [0, 1), drawn with only the bits that ``dtype`` has, so that none is rounded to 1."""
    if dtype.itemsize > 2:
        return xp.asarray(rng.random(size, dtype=dtype))
    steps = 2**11 if dtype == float16.numpy else 2**8
    return xp.asarray(rng.integers(0, steps, size) / steps).astype(dtype)


@op(partial(_size_rule, "rand", "check_uniform_bounds"), results=NEW, memory=scratch(4.0))
def rand(xp: Any, rng: Any, size: Ints, *, dtype: OptionalDType = None) -> Any:
    """Uniform numbers from [0, 1)."""
    return uniform_numbers(xp, rng, size, default_float() if dtype is None else dtype.numpy)


@op(partial(_size_rule, "randn", "normal_kernel_cpu"), results=NEW, memory=scratch(4.0))
def randn(xp: Any, rng: Any, size: Ints, *, dtype: OptionalDType = None) -> Any:
    """Normal numbers of mean 0 and deviation 1."""
    return xp.asarray(rng.standard_normal(size)).astype(default_float() if dtype is None else dtype.numpy)


def _like_rule(input: Any, dtype: Any) -> Spec:
    return same_floating("normal_kernel_cpu")(Spec(input.shape, input.dtype if dtype is None else dtype.numpy))


@op(_like_rule, variants=FUNCTION, results=NEW, memory=scratch(4.0))
def rand_like(xp: Any, rng: Any, input: Array, *, dtype: OptionalDType = None) -> Any:
    """Uniform numbers from [0, 1) in the shape of another tensor."""
    return uniform_numbers(xp, rng, input.shape, input.dtype if dtype is None else dtype.numpy)


@op(_like_rule, variants=FUNCTION, results=NEW, memory=scratch(4.0))
def randn_like(xp: Any, rng: Any, input: Array, *, dtype: OptionalDType = None) -> Any:
    """Normal numbers in the shape of another tensor."""
    return xp.asarray(rng.standard_normal(input.shape)).astype(input.dtype if dtype is None else dtype.numpy)


def _check_bounds(low: int, high: int) -> None:
    if low >= high:
        raise InvalidOperation(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")


def _randint_rule(low: int, high: int, size: Any, dtype: Any) -> Spec:
    _check_bounds(low, high)
    return sized("randint", size, int64 if dtype is None else dtype)


@op(_randint_rule, variants=FUNCTION, results=NEW, memory=scratch(4.0))
def randint(xp: Any, rng: Any, low: Int, high: Int, size: Ints, *, dtype: OptionalDType = None) -> Any:
    """Whole numbers from ``low`` up to but without ``high``."""
    return xp.asarray(rng.integers(low, high, size)).astype(int64.numpy if dtype is None else dtype.numpy)


@op(partial(_randint_rule, 0), key="randint.high", results=NEW, memory=scratch(4.0))
def randint_high(xp: Any, rng: Any, high: Int, size: Ints, *, dtype: OptionalDType = None) -> Any:
    """Whole numbers from 0 up to but without ``high``."""
    return randint.raw(xp, rng, 0, high, size, dtype=dtype)


def _randint_like_rule(input: Any, low: int, high: int, dtype: Any) -> Spec:
    return _randint_rule(low, high, input.shape, from_numpy(input.dtype) if dtype is None else dtype)


@op(_randint_like_rule, key="randint_like.low", variants=FUNCTION, results=NEW)
def randint_like_low(xp: Any, rng: Any, input: Array, low: Int, high: Int, *, dtype: OptionalDType = None) -> Any:
    """Whole numbers from ``low`` up to but without ``high``, in the shape of another tensor."""
    return xp.asarray(rng.integers(low, high, input.shape)).astype(input.dtype if dtype is None else dtype.numpy)


@op(lambda input, high, dtype: _randint_like_rule(input, 0, high, dtype), variants=FUNCTION, results=NEW)
def randint_like(xp: Any, rng: Any, input: Array, high: Int, *, dtype: OptionalDType = None) -> Any:
    """Whole numbers from 0 up to but without ``high``, in the shape of another tensor."""
    return randint_like_low.raw(xp, rng, input, 0, high, dtype=dtype)


MAX_RATE = 9e18
"""The largest rate whose number of events fits an int64."""


@op(same_floating("poisson_cpu"), variants=FUNCTION, may_raise=True)
def poisson(xp: Any, rng: Any, input: Array) -> Any:
    """Numbers of events whose expected number ``input`` gives for each element."""
    if input.size and float(input.min()) < 0:
        raise InvalidOperation("invalid Poisson rate, expected rate to be non-negative")
    if input.size and not float(input.max()) < MAX_RATE:
        raise InvalidOperation(f"poisson: the expected number of events must be below {MAX_RATE:.0e}")
    return xp.asarray(rng.poisson(xp.download(input) if hasattr(xp, "download") else input)).astype(input.dtype)


poisson.derivative(input=zero_gradient)


@op(lambda n: sized("randperm", (n,), int64), results=NEW, memory=scratch(4.0), batching=math_rules.randperm)
def randperm(xp: Any, rng: Any, n: Int) -> Any:
    """The numbers 0 to n - 1 in random order."""
    return xp.asarray(rng.permutation(n)).astype(int64.numpy)


@op(same_floating("bernoulli_tensor_cpu_p_"), memory=scratch(4.0), may_raise=True)
def bernoulli(xp: Any, rng: Any, input: Array) -> Any:
    """Ones with the probability that ``input`` gives for each element, else zeros."""
    if input.size and not (float(input.min()) >= 0 and float(input.max()) <= 1):  # NaN is refused, too
        raise InvalidOperation(
            "Expected p_in >= 0 && p_in <= 1 to be true, but got false.  (Could this error message be improved?  If "
            "so, please report an enhancement request to PyTorch.)"
        )
    return (xp.asarray(rng.random(input.shape)) < input).astype(input.dtype)


bernoulli.derivative(input=zero_gradient)


# In-place random fills: ``uniform_``, ``normal_`` and others ----------------------------------------------


def _fill(rule: Rule, key: str) -> Callable[[Callable[..., Any]], Op]:
    """Declare an op that overwrites its input, so the gradient is 0."""

    def declare(kernel: Callable[..., Any]) -> Op:
        declared = op(rule, key=key, variants=INPLACE, memory=scratch(4.0))(kernel)
        return declared.derivative(input=zero_gradient)

    return declare


def _uniform_rule(input: Any, from_: float, to: float) -> Spec:
    spec = same_floating("check_uniform_bounds")(input)
    largest = float(np.finfo(np.float32 if input.dtype.kind == "V" else input.dtype).max)
    for value, name in ((from_, "from"), (to, "to")):
        if not abs(value) <= largest:
            kind = {"float32": "float", "float64": "double"}.get(input.dtype.name, input.dtype.name)
            raise InvalidOperation(f"{name} is out of bounds for {kind}")
    if from_ > to:
        raise InvalidOperation(f"uniform_ expects to return a [from, to) range, but found from={from_:g} > to={to:g}")
    if to - from_ > largest:
        raise InvalidOperation(
            f"uniform_ expects to-from <= std::numeric_limits<{kernel_name(input)}>::max(), but found "
            f"to={to:g} and from={from_:g} which result in to-from to exceed the limit"
        )
    return spec


@_fill(_uniform_rule, "uniform")
def uniform(xp: Any, rng: Any, input: Array, from_: Number = 0.0, to: Number = 1.0) -> Any:
    """Uniform numbers from [from, to)."""
    return (uniform_numbers(xp, rng, input.shape, input.dtype) * (to - from_) + from_).astype(input.dtype)


def _normal_rule(input: Any, std: float) -> Spec:
    if not std >= 0:
        raise InvalidOperation(f"normal expects std >= 0.0, but found std {std:g}")
    return same_floating("normal_kernel_cpu")(input)


@_fill(_normal_rule, "normal.fill")
def normal_fill(xp: Any, rng: Any, input: Array, mean: Number = 0.0, std: Number = 1.0) -> Any:
    """Normal numbers of this mean and deviation."""
    return xp.asarray(mean + std * rng.standard_normal(input.shape)).astype(input.dtype)


def _bernoulli_rule(input: Any, p: float) -> Spec:
    if not 0 <= p <= 1:
        raise InvalidOperation(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
    return Spec(input.shape, input.dtype)


@_fill(_bernoulli_rule, "bernoulli.fill")
def bernoulli_fill(xp: Any, rng: Any, input: Array, p: Number = 0.5) -> Any:
    """Ones with probability ``p``, else zeros."""
    return xp.asarray(rng.random(input.shape) < p).astype(input.dtype)


def _exponential_rule(input: Any, lambd: float) -> Spec:
    if input.dtype not in FLOATING:
        raise InvalidOperation(
            "Exponential distribution is a continuous probability distribution. dtype must be a floating point but "
            f"you specified {kernel_name(input)}"
        )
    if not lambd > 0:
        raise InvalidOperation(f"exponential_ expects lambda > 0.0, but found lambda={lambd:g}")
    return Spec(input.shape, input.dtype)


@_fill(_exponential_rule, "exponential")
def exponential(xp: Any, rng: Any, input: Array, lambd: Number = 1.0) -> Any:
    """Exponential numbers of this rate."""
    return xp.asarray(rng.standard_exponential(input.shape) / lambd).astype(input.dtype)


def _cauchy_rule(input: Any, sigma: float) -> Spec:
    if input.dtype not in FLOATING:
        raise InvalidOperation(
            "Cauchy distribution is a continuous probability distribution. dtype must be a floating point but you "
            f"specified {from_numpy(input.dtype).c_name}"
        )
    if not sigma > 0:
        raise InvalidOperation(f"cauchy_ expects sigma > 0.0, but found sigma={sigma:g}")
    return Spec(input.shape, input.dtype)


@_fill(_cauchy_rule, "cauchy")
def cauchy(xp: Any, rng: Any, input: Array, median: Number = 0.0, sigma: Number = 1.0) -> Any:
    """Numbers of Cauchy's distribution around ``median``."""
    return xp.asarray(median + sigma * rng.standard_cauchy(input.shape)).astype(input.dtype)


def _log_normal_rule(input: Any, std: float) -> Spec:
    if not std > 0:
        raise InvalidOperation(f"log_normal_ expects std > 0.0, but found std={std:g}")
    return same_floating("log_normal_cpu")(input)


@_fill(_log_normal_rule, "log_normal")
def log_normal(xp: Any, rng: Any, input: Array, mean: Number = 1.0, std: Number = 2.0) -> Any:
    """Numbers whose logarithms are normal, of this mean and deviation."""
    return xp.asarray(rng.lognormal(mean, std, input.shape)).astype(input.dtype)


def _geometric_rule(input: Any, p: float) -> Spec:
    if not 0 < p < 1:
        raise InvalidOperation(f"geometric_ expects p to be in (0, 1), but got p={p:g}")
    return Spec(input.shape, input.dtype)


@_fill(_geometric_rule, "geometric")
def geometric(xp: Any, rng: Any, input: Array, p: Number) -> Any:
    """How many trials of probability ``p`` it takes until one succeeds."""
    return xp.asarray(rng.geometric(p, input.shape)).astype(input.dtype)


def _limit(input: Any) -> int:
    """The default exclusive upper bound of ``random_`` for the dtype of ``input``."""
    if input.dtype == bool_.numpy:
        return 2
    if input.dtype in FLOATING:
        digits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[input.dtype.name]
        return int(2**digits) + 1
    return int(np.iinfo(input.dtype).max)


def _random_rule(input: Any, from_: int, to: int | None) -> Spec:
    high = _limit(input) if to is None else to
    _check_bounds(from_, high)
    if math.log2(max(high - from_, 1)) > 63:
        raise InvalidOperation("to - 1 is out of bounds for long")
    return Spec(input.shape, input.dtype)


@_fill(_random_rule, "random.between")
def random_between(xp: Any, rng: Any, input: Array, from_: Int, to: OptionalInt) -> Any:
    """Whole numbers from ``from`` up to but without ``to``."""
    high = _limit(input) if to is None else to
    return xp.asarray(rng.integers(from_, high, input.shape)).astype(input.dtype)


@_fill(lambda input, to: _random_rule(input, 0, to), "random")
def random_below(xp: Any, rng: Any, input: Array, to: OptionalInt = None) -> Any:
    """Whole numbers from 0 up to but without ``to``, or to the largest that the dtype holds."""
    return random_between.raw(xp, rng, input, 0, to)
