"""Random numbers written into a tensor: ``uniform_``, ``normal_`` and their kin, which exist in place only."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..dtypes import FLOATING, bool_, from_numpy
from ..errors import InvalidOperation, NotImplementedForDType
from ..schema.derivative_plan import Rule
from ..schema.op import Op, op
from ..schema.parameters import Array, Int, Number, OptionalInt
from ..shapes import Spec
from .random import uniform_numbers


def _written(rule: Rule, key: str) -> Callable[[Callable[..., Any]], Op]:
    """Declare an op that fills its input; nothing of what was there remains, so the gradient is 0."""

    def declare(kernel: Callable[..., Any]) -> Op:
        declared = op(rule, key=key, random=True, inplace=True, internal=True, method=True, scratch=4.0)(kernel)
        return declared.derivative(input=lambda F, grad: F.zeros_like(grad))

    return declare


def _same(input: Any, kernel: str = "") -> Spec:
    if kernel and input.dtype not in FLOATING:
        raise NotImplementedForDType(f"\"{kernel}\" not implemented for '{from_numpy(input.dtype).kernel_name}'")
    return Spec(input.shape, input.dtype)


def _uniform_rule(input: Any, from_: float = 0.0, to: float = 1.0) -> Spec:
    spec = _same(input, "check_uniform_bounds")
    largest = float(np.finfo(np.float32 if input.dtype.kind == "V" else input.dtype).max)
    for value, name in ((from_, "from"), (to, "to")):
        if not abs(value) <= largest:
            raise InvalidOperation(f"{name} is out of bounds for {_c_name(input)}")
    if from_ > to:
        raise InvalidOperation(f"uniform_ expects to return a [from, to) range, but found from={from_:g} > to={to:g}")
    if to - from_ > largest:
        raise InvalidOperation(
            f"uniform_ expects to-from <= std::numeric_limits<{from_numpy(input.dtype).kernel_name}>::max(), but found "
            f"to={to:g} and from={from_:g} which result in to-from to exceed the limit"
        )
    return spec


def _c_name(input: Any) -> str:
    name = str(input.dtype.name)
    return {"float32": "float", "float64": "double"}.get(name, name)


@_written(_uniform_rule, "uniform")
def uniform(xp: Any, rng: Any, input: Array, from_: Number = 0.0, to: Number = 1.0) -> Any:
    """Uniform numbers from [from, to)."""
    return (uniform_numbers(xp, rng, input.shape, input.dtype) * (to - from_) + from_).astype(input.dtype)


def _normal_rule(input: Any, mean: float = 0.0, std: float = 1.0) -> Spec:
    if not std >= 0:
        raise InvalidOperation(f"normal expects std >= 0.0, but found std {std:g}")
    return _same(input, "normal_kernel_cpu")


@_written(_normal_rule, "normal.fill")
def normal_fill(xp: Any, rng: Any, input: Array, mean: Number = 0.0, std: Number = 1.0) -> Any:
    """Normal numbers of this mean and deviation."""
    return xp.asarray(mean + std * rng.standard_normal(input.shape)).astype(input.dtype)


def _bernoulli_rule(input: Any, p: float = 0.5) -> Spec:
    if not 0 <= p <= 1:
        raise InvalidOperation(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
    return _same(input)


@_written(_bernoulli_rule, "bernoulli.fill")
def bernoulli_fill(xp: Any, rng: Any, input: Array, p: Number = 0.5) -> Any:
    """Ones with probability ``p``, else zeros."""
    return xp.asarray(rng.random(input.shape) < p).astype(input.dtype)


def _exponential_rule(input: Any, lambd: float = 1.0) -> Spec:
    if input.dtype not in FLOATING:
        kind = from_numpy(input.dtype).kernel_name
        raise InvalidOperation(
            "Exponential distribution is a continuous probability distribution. dtype must be a floating point but "
            f"you specified {kind}"
        )
    if not lambd > 0:
        raise InvalidOperation(f"exponential_ expects lambda > 0.0, but found lambda={lambd:g}")
    return _same(input)


@_written(_exponential_rule, "exponential")
def exponential(xp: Any, rng: Any, input: Array, lambd: Number = 1.0) -> Any:
    """Exponential numbers of this rate."""
    return xp.asarray(rng.standard_exponential(input.shape) / lambd).astype(input.dtype)


def _cauchy_rule(input: Any, median: float = 0.0, sigma: float = 1.0) -> Spec:
    if input.dtype not in FLOATING:
        raise InvalidOperation(
            "Cauchy distribution is a continuous probability distribution. dtype must be a floating point but you "
            f"specified {from_numpy(input.dtype).c_name}"
        )
    if not sigma > 0:
        raise InvalidOperation(f"cauchy_ expects sigma > 0.0, but found sigma={sigma:g}")
    return _same(input)


@_written(_cauchy_rule, "cauchy")
def cauchy(xp: Any, rng: Any, input: Array, median: Number = 0.0, sigma: Number = 1.0) -> Any:
    """Numbers of Cauchy's distribution around ``median``."""
    return xp.asarray(median + sigma * rng.standard_cauchy(input.shape)).astype(input.dtype)


def _log_normal_rule(input: Any, mean: float = 1.0, std: float = 2.0) -> Spec:
    if not std > 0:
        raise InvalidOperation(f"log_normal_ expects std > 0.0, but found std={std:g}")
    return _same(input, "log_normal_cpu")


@_written(_log_normal_rule, "log_normal")
def log_normal(xp: Any, rng: Any, input: Array, mean: Number = 1.0, std: Number = 2.0) -> Any:
    """Numbers whose logarithms are normal, of this mean and deviation."""
    return xp.asarray(rng.lognormal(mean, std, input.shape)).astype(input.dtype)


def _geometric_rule(input: Any, p: float) -> Spec:
    if not 0 < p < 1:
        raise InvalidOperation(f"geometric_ expects p to be in (0, 1), but got p={p:g}")
    return _same(input)


@_written(_geometric_rule, "geometric")
def geometric(xp: Any, rng: Any, input: Array, p: Number) -> Any:
    """How many trials of probability ``p`` it takes until one succeeds."""
    return xp.asarray(rng.geometric(p, input.shape)).astype(input.dtype)


def _limit(input: Any) -> int:
    """The largest whole number up to which a dtype holds all, and one more: what ``random_`` draws below."""
    if input.dtype == bool_.numpy:
        return 2
    if input.dtype in FLOATING:
        digits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[input.dtype.name]
        return int(2**digits) + 1
    return int(np.iinfo(input.dtype).max)


def _random_rule(input: Any, from_: int, to: int | None = None) -> Spec:
    low, high = _random_bounds(input, from_, to)
    if low >= high:
        raise InvalidOperation(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    if math.log2(max(high - low, 1)) > 63:
        raise InvalidOperation("to - 1 is out of bounds for long")
    return _same(input)


def _random_bounds(input: Any, from_: int, to: int | None) -> tuple[int, int]:
    return (from_, _limit(input) if to is None else to)


@_written(_random_rule, "random.between")
def random_between(xp: Any, rng: Any, input: Array, from_: Int, to: OptionalInt) -> Any:
    """Whole numbers from ``from`` up to but without ``to``."""
    low, high = _random_bounds(input, from_, to)
    return xp.asarray(rng.integers(low, high, input.shape)).astype(input.dtype)


@_written(lambda input, to=None: _random_rule(input, 0, to), "random")
def random_below(xp: Any, rng: Any, input: Array, to: OptionalInt = None) -> Any:
    """Whole numbers from 0 up to but without ``to``, or to the largest that the dtype holds."""
    return random_between.raw(xp, rng, input, 0, to)
