"""Guards that families of elementwise ops share: dtypes and values that torch has no kernel for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..dtypes import FLOATING, bool_
from ..errors import InvalidOperation, NotImplementedForDType
from ..schema.op import common_dtype


def is_whole(value: Any) -> bool:
    """Whether an operand, tensor or number, is of a dtype of whole numbers or bools."""
    return value.dtype not in FLOATING if hasattr(value, "dtype") else not isinstance(value, float)


def no_bools(kernel: str) -> Callable[..., None]:
    """A guard against computing in bools, for which torch has no such kernel."""

    def guard(*inputs: Any, **_: Any) -> None:
        if common_dtype(inputs) == bool_.numpy:
            raise NotImplementedForDType(f"\"{kernel}\" not implemented for 'Bool'")

    return guard


def divisible(kernel: str) -> Callable[..., None]:
    """A guard of divisions that keep whole numbers whole: no bools, and no number 0 to divide by."""
    refuse_bools = no_bools(kernel)

    def guard(input: Any, other: Any) -> None:
        refuse_bools(input, other)
        by_zero = not hasattr(other, "dtype") and other == 0 and is_whole(input) and is_whole(other)
        if by_zero and math.prod(getattr(input, "shape", ())):
            raise InvalidOperation("ZeroDivisionError")

    return guard


def refuse_zero(xp: Any, input: Any, other: Any) -> None:
    """Refuse to divide whole numbers by zero: they have no infinity or NaN to answer with."""
    if is_whole(input) and is_whole(other) and xp.any(xp.equal(other, 0)) and xp.size(input):
        raise InvalidOperation("ZeroDivisionError")
