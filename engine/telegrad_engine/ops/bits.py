"""Ops on whole numbers: shifted bits, and common divisors and multiples."""

from __future__ import annotations

from typing import Any

from ..dtypes import bool_, from_numpy, is_floating
from ..errors import NotImplementedForDType
from ..schema.op import common_dtype, elementwise
from ..schema.parameters import Array, Operand


def _whole_numbers(kernel: str) -> Any:
    """A check that raises unless an op computes in whole numbers, which bools alone are not."""

    def guard(*inputs: Any) -> None:
        dtype = common_dtype(inputs)
        if is_floating(dtype) or dtype == bool_.numpy:
            raise NotImplementedForDType(f"\"{kernel}_cpu\" not implemented for '{from_numpy(dtype).kernel_name}'")

    return guard


def _shift(xp: Any, shift: Any, input: Any, other: Any, rest: Any) -> Any:
    """``shift(input, other)`` where that many bits can be shifted, else what is left when all are."""
    dtype = common_dtype((input, other))
    input, other = xp.asarray(input, dtype), xp.asarray(other, dtype)
    width = dtype.itemsize * 8
    inside = (other >= 0) & (other < width)
    return xp.where(inside, shift(input, xp.where(inside, other, 0)), rest(input)).astype(dtype)


@elementwise(guard=_whole_numbers("lshift"), keeps_dtype=False)
def bitwise_left_shift(xp: Any, input: Operand, other: Operand) -> Any:
    """The bits of ``input`` moved up by ``other`` places; 0 if that is no number of places that there are."""
    return _shift(xp, xp.left_shift, input, other, lambda x: xp.zeros_like(x))


@elementwise(guard=_whole_numbers("rshift"), keeps_dtype=False)
def bitwise_right_shift(xp: Any, input: Operand, other: Operand) -> Any:
    """The bits of ``input`` moved down by ``other`` places; the sign alone if that is no number of places."""
    return _shift(xp, xp.right_shift, input, other, lambda x: xp.where(x < 0, -1, 0))


@elementwise(guard=_whole_numbers("gcd"), keeps_dtype=False)
def gcd(xp: Any, input: Array, other: Array) -> Any:
    """The greatest common divisor, which is not negative."""
    return xp.gcd(input, other)


@elementwise(guard=_whole_numbers("lcm"), keeps_dtype=False)
def lcm(xp: Any, input: Array, other: Array) -> Any:
    """The least common multiple, which is not negative."""
    return xp.lcm(input, other)
