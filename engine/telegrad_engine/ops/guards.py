"""Checks shared by several ops: dtypes and values that torch has no kernel for, with torch's error texts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..dtypes import FLOATING, bool_, parse
from ..errors import DTypeMismatch, InvalidOperation, NotImplementedForDType
from ..schema.promotion import common_dtype


def kernel_name(x: Any) -> str:
    """The name of a dtype, or of the dtype of a tensor, array or Spec, in torch's error texts: ``Float``, ``Long``."""
    return parse(getattr(x, "dtype", x)).kernel_name


def no_kernel(kernel: str, x: Any) -> NotImplementedForDType:
    """The error for a dtype, or an input of a dtype, that torch's ``kernel`` does not support."""
    return NotImplementedForDType(f"\"{kernel}\" not implemented for '{kernel_name(x)}'")


_FLOATS = frozenset({*FLOATING, *map(parse, FLOATING)})
_BOOLS = frozenset({bool_, bool_.numpy})


def check_floats(kernel: str, x: Any) -> None:
    """Raise for a tensor, array or Spec of integers or bools, which torch's ``kernel`` does not support."""
    if x.dtype not in _FLOATS:
        raise no_kernel(kernel, x)


def check_no_bools(kernel: str, x: Any) -> None:
    """Raise for a tensor, array or Spec of bools, which torch's ``kernel`` does not support."""
    if x.dtype in _BOOLS:
        raise no_kernel(kernel, x)


def check_dtype(x: Any, expected: Any) -> None:
    """Raise unless ``x`` is None or has the ``expected`` dtype."""
    if x is not None and x.dtype != expected:
        raise DTypeMismatch(f"expected scalar type {kernel_name(expected)} but found {kernel_name(x)}")


def is_whole(value: Any) -> bool:
    """Whether an operand, a tensor or a number, is an integer or a bool."""
    return value.dtype not in FLOATING if hasattr(value, "dtype") else not isinstance(value, float)


def no_bools(kernel: str) -> Callable[..., None]:
    """A guard that raises if an op computes in bools, for which torch's ``kernel`` is not implemented."""

    def guard(*inputs: Any, **_: Any) -> None:
        if common_dtype(inputs) == bool_.numpy:
            raise no_kernel(kernel, bool_)

    return guard


def divisible(kernel: str) -> Callable[..., None]:
    """A guard for divisions of integers: raises for bools and for division by the number 0."""
    refuse_bools = no_bools(kernel)

    def guard(input: Any, other: Any) -> None:
        refuse_bools(input, other)
        by_zero = not hasattr(other, "dtype") and other == 0 and is_whole(input) and is_whole(other)
        if by_zero and math.prod(getattr(input, "shape", ())):
            raise InvalidOperation("ZeroDivisionError")

    return guard


def refuse_zero(xp: Any, input: Any, other: Any) -> None:
    """Raise for a division of integers by zero, since integers have no infinity or NaN."""
    if is_whole(input) and is_whole(other) and xp.any(xp.equal(other, 0)) and xp.size(input):
        raise InvalidOperation("ZeroDivisionError")
