"""Ops that draw from the session's random number generator."""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import float16, from_numpy, int64, is_floating
from ..errors import DTypeMismatch, InvalidOperation, InvalidValue, NotImplementedForDType
from ..schema.op import composite, default_float, op
from ..schema.parameters import Array, Bool, Int, Ints, Number, OptionalDType
from ..shapes import Spec
from .create import sized


def _floating_size(name: str, kernel: str) -> Any:
    def rule(size: Any, *, dtype: Any = None) -> Spec:
        if dtype is not None and not dtype.is_floating_point:
            raise NotImplementedForDType(f"\"{kernel}\" not implemented for '{dtype.kernel_name}'")
        return sized(name, size, dtype)

    return rule


def uniform_numbers(xp: Any, rng: Any, size: Any, dtype: Any) -> Any:
    """Uniform numbers from [0, 1): drawn with as many bits as ``dtype`` has, or rounding could give 1."""
    if dtype.itemsize > 2:
        return xp.asarray(rng.random(size, dtype=dtype))
    steps = 2**11 if dtype == float16.numpy else 2**8
    return xp.asarray(rng.integers(0, steps, size) / steps).astype(dtype)


@op(_floating_size("rand", "check_uniform_bounds"), random=True, factory=True, scratch=4.0)
def rand(xp: Any, rng: Any, size: Ints, *, dtype: OptionalDType = None) -> Any:
    """Uniform numbers from [0, 1)."""
    return uniform_numbers(xp, rng, size, default_float() if dtype is None else dtype.numpy)


@op(_floating_size("randn", "normal_kernel_cpu"), random=True, factory=True, scratch=4.0)
def randn(xp: Any, rng: Any, size: Ints, *, dtype: OptionalDType = None) -> Any:
    """Normal numbers of mean 0 and deviation 1."""
    return xp.asarray(rng.standard_normal(size)).astype(default_float() if dtype is None else dtype.numpy)


def _like_rule(input: Any, *, dtype: Any = None) -> Spec:
    wanted = from_numpy(input.dtype) if dtype is None else dtype
    if not wanted.is_floating_point:
        raise NotImplementedForDType(f"\"normal_kernel_cpu\" not implemented for '{wanted.kernel_name}'")
    return Spec(input.shape, wanted.numpy)


@op(_like_rule, random=True, method=False, factory=True, scratch=4.0)
def rand_like(xp: Any, rng: Any, input: Array, *, dtype: OptionalDType = None) -> Any:
    """Uniform numbers from [0, 1) in the shape of another tensor."""
    return uniform_numbers(xp, rng, input.shape, input.dtype if dtype is None else dtype.numpy)


@op(_like_rule, random=True, method=False, factory=True, scratch=4.0)
def randn_like(xp: Any, rng: Any, input: Array, *, dtype: OptionalDType = None) -> Any:
    """Normal numbers in the shape of another tensor."""
    return xp.asarray(rng.standard_normal(input.shape)).astype(input.dtype if dtype is None else dtype.numpy)


def _randint_rule(low: int, high: int, size: Any, *, dtype: Any = None) -> Spec:
    if low >= high:
        raise InvalidOperation(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    return sized("randint", size, int64 if dtype is None else dtype)


@op(_randint_rule, random=True, factory=True, method=False, scratch=4.0)
def randint(xp: Any, rng: Any, low: Int, high: Int, size: Ints, *, dtype: OptionalDType = None) -> Any:
    """Whole numbers from ``low`` up to but without ``high``."""
    return xp.asarray(rng.integers(low, high, size)).astype(int64.numpy if dtype is None else dtype.numpy)


@op(
    lambda high, size, *, dtype=None: _randint_rule(0, high, size, dtype=dtype),
    key="randint.high",
    random=True,
    factory=True,
    scratch=4.0,
)
def randint_high(xp: Any, rng: Any, high: Int, size: Ints, *, dtype: OptionalDType = None) -> Any:
    """Whole numbers from 0 up to but without ``high``."""
    return xp.asarray(rng.integers(0, high, size)).astype(int64.numpy if dtype is None else dtype.numpy)


def _randint_like_rule(input: Any, low: int, high: int, *, dtype: Any = None) -> Spec:
    return _randint_rule(low, high, input.shape, dtype=from_numpy(input.dtype) if dtype is None else dtype)


@op(_randint_like_rule, key="randint_like.low", random=True, method=False, factory=True)
def randint_like_low(xp: Any, rng: Any, input: Array, low: Int, high: Int, *, dtype: OptionalDType = None) -> Any:
    """Whole numbers from ``low`` up to but without ``high``, in the shape of another tensor."""
    return xp.asarray(rng.integers(low, high, input.shape)).astype(input.dtype if dtype is None else dtype.numpy)


@op(
    lambda input, high, *, dtype=None: _randint_like_rule(input, 0, high, dtype=dtype),
    random=True,
    method=False,
    factory=True,
)
def randint_like(xp: Any, rng: Any, input: Array, high: Int, *, dtype: OptionalDType = None) -> Any:
    """Whole numbers from 0 up to but without ``high``, in the shape of another tensor."""
    return xp.asarray(rng.integers(0, high, input.shape)).astype(input.dtype if dtype is None else dtype.numpy)


def _poisson_rule(input: Any) -> Spec:
    if not is_floating(input.dtype):
        kind = from_numpy(input.dtype).kernel_name
        raise NotImplementedForDType(f"\"poisson_cpu\" not implemented for '{kind}'")
    return Spec(input.shape, input.dtype)


MAX_RATE = 9e18
"""The rate up to which numbers of events fit an int64."""


@op(_poisson_rule, random=True, method=False)
def poisson(xp: Any, rng: Any, input: Array) -> Any:
    """Numbers of events whose expected number ``input`` gives for each element."""
    if input.size and float(input.min()) < 0:
        raise InvalidOperation("invalid Poisson rate, expected rate to be non-negative")
    if input.size and not float(input.max()) < MAX_RATE:
        raise InvalidOperation(f"poisson: the expected number of events must be below {MAX_RATE:.0e}")
    return xp.asarray(rng.poisson(xp.download(input) if hasattr(xp, "download") else input)).astype(input.dtype)


poisson.derivative(input=lambda F, grad: F.zeros_like(grad))


def _randperm_rule(n: int) -> Spec:
    return sized("randperm", (n,), int64)


@op(_randperm_rule, random=True, factory=True, scratch=4.0)
def randperm(xp: Any, rng: Any, n: Int) -> Any:
    """The numbers 0 to n - 1 in random order."""
    return xp.asarray(rng.permutation(n)).astype(int64.numpy)


def _bernoulli_rule(input: Any) -> Spec:
    if not is_floating(input.dtype):
        kind = from_numpy(input.dtype).kernel_name
        raise NotImplementedForDType(f"\"bernoulli_tensor_cpu_p_\" not implemented for '{kind}'")
    return Spec(input.shape, input.dtype)


@op(_bernoulli_rule, random=True, scratch=4.0)
def bernoulli(xp: Any, rng: Any, input: Array) -> Any:
    """Ones with the probability that ``input`` gives for each element, else zeros."""
    if input.size and (float(input.min()) < 0 or float(input.max()) > 1):
        raise InvalidOperation(
            "Expected p_in >= 0 && p_in <= 1 to be true, but got false.  (Could this error message be improved?  If "
            "so, please report an enhancement request to PyTorch.)"
        )
    return (xp.asarray(rng.random(input.shape)) < input).astype(input.dtype)


bernoulli.derivative(input=lambda F, grad: F.zeros_like(grad))


def _drop_rule(input: Any, p: float) -> Spec:
    if not is_floating(input.dtype):
        raise DTypeMismatch(
            f"result type Float can't be cast to the desired output type {from_numpy(input.dtype).kernel_name}"
        )
    return Spec(input.shape, input.dtype)


@op(
    _drop_rule,
    random=True,
    internal=True,
    hidden=("mask",),
    hidden_rule=lambda input, p: (Spec(input.shape, input.dtype),),
    node="MulBackward0",
    scratch=4.0,
)
def drop(xp: Any, rng: Any, input: Array, p: Number) -> Any:
    """Each element zeroed with probability ``p``, the rest scaled by 1 / (1 - p)."""
    mask = xp.asarray(rng.random(input.shape, dtype="float32") >= p).astype(input.dtype)
    mask = mask / (1 - p)
    return input * mask, mask


drop.derivative(input=lambda F, grad, mask: grad * mask)


@composite(
    may_alias=True,
    namespace="torch.nn.functional",
    takes_inplace=True,
)
def dropout(F: Any, input: Array, p: Number = 0.5, training: Bool = True) -> Any:
    """Each element zeroed with probability ``p`` while training, the rest scaled by 1 / (1 - p)."""
    if math.isnan(p):
        raise InvalidOperation(f"dropout probability has to be between 0 and 1, but got {p}")
    if not 0 <= p <= 1:
        raise InvalidValue(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0 or 0 in input.shape:
        return input
    return input * 0 if p == 1 else F.drop(input, p)
