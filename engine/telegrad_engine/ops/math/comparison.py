"""Comparing, logic, bits and choosing, element by element."""

from __future__ import annotations

from typing import Any

from ...dtypes import bool_, from_numpy, is_floating
from ...errors import DTypeMismatch, NotImplementedForDType
from ...schema.op import elementwise
from ...schema.parameters import Array, Operand


@elementwise(out="bool", inplace=True)
def eq(xp: Any, input: Array, other: Operand) -> Any:
    """Whether equal."""
    return xp.equal(input, other)


@elementwise(out="bool", inplace=True, aliases=("not_equal",))
def ne(xp: Any, input: Array, other: Operand) -> Any:
    """Whether different."""
    return xp.not_equal(input, other)


@elementwise(out="bool", inplace=True, aliases=("less",))
def lt(xp: Any, input: Array, other: Operand) -> Any:
    """Whether less."""
    return xp.less(input, other)


@elementwise(out="bool", inplace=True, aliases=("less_equal",))
def le(xp: Any, input: Array, other: Operand) -> Any:
    """Whether less or equal."""
    return xp.less_equal(input, other)


@elementwise(out="bool", inplace=True, aliases=("greater",))
def gt(xp: Any, input: Array, other: Operand) -> Any:
    """Whether greater."""
    return xp.greater(input, other)


@elementwise(out="bool", inplace=True, aliases=("greater_equal",))
def ge(xp: Any, input: Array, other: Operand) -> Any:
    """Whether greater or equal."""
    return xp.greater_equal(input, other)


for _comparison in (eq, ne, lt, le, gt, ge):
    # Out of place the result is bool, and nothing is recorded; in place it is the tensor's own dtype.
    _comparison.derivative(input=lambda F, grad: F.zeros_like(grad), other=lambda F, grad: F.zeros_like(grad))


@elementwise(out="bool", inplace=True)
def logical_and(xp: Any, input: Array, other: Array) -> Any:
    """Whether both are non-zero."""
    return xp.logical_and(input, other)


@elementwise(out="bool", inplace=True)
def logical_or(xp: Any, input: Array, other: Array) -> Any:
    """Whether either is non-zero."""
    return xp.logical_or(input, other)


@elementwise(out="bool", inplace=True)
def logical_xor(xp: Any, input: Array, other: Array) -> Any:
    """Whether exactly one is non-zero."""
    return xp.logical_xor(input, other)


@elementwise(out="bool", inplace=True)
def logical_not(xp: Any, input: Array) -> Any:
    """Whether zero."""
    return xp.logical_not(input)


def _integral_only(name: str) -> Any:
    def guard(*inputs: Any) -> None:
        for x in inputs:
            if isinstance(x, float) or (hasattr(x, "dtype") and is_floating(x.dtype)):
                kind = from_numpy(x.dtype).kernel_name if hasattr(x, "dtype") else "Float"
                raise NotImplementedForDType(f"\"{name}_cpu\" not implemented for '{kind}'")

    return guard


@elementwise(guard=_integral_only("bitwise_and"), keeps_dtype=False)
def bitwise_and(xp: Any, input: Operand, other: Operand) -> Any:
    """And, bit by bit; of bools, logical."""
    return xp.bitwise_and(input, other)


@elementwise(guard=_integral_only("bitwise_or"), keeps_dtype=False)
def bitwise_or(xp: Any, input: Operand, other: Operand) -> Any:
    """Or, bit by bit; of bools, logical."""
    return xp.bitwise_or(input, other)


@elementwise(guard=_integral_only("bitwise_xor"), keeps_dtype=False)
def bitwise_xor(xp: Any, input: Operand, other: Operand) -> Any:
    """Exclusive or, bit by bit; of bools, logical."""
    return xp.bitwise_xor(input, other)


@elementwise(guard=_integral_only("bitwise_not"), keeps_dtype=False)
def bitwise_not(xp: Any, input: Array) -> Any:
    """Every bit flipped; of bools, not."""
    return xp.invert(input)


@elementwise(out="bool")
def isnan(xp: Any, input: Array) -> Any:
    """Whether not a number."""
    return xp.isnan(input)


@elementwise(out="bool")
def isinf(xp: Any, input: Array) -> Any:
    """Whether infinite."""
    return xp.isinf(input)


@elementwise(out="bool")
def isfinite(xp: Any, input: Array) -> Any:
    """Whether neither infinite nor not a number."""
    return xp.isfinite(input)


# Choosing ------------------------------------------------------------------------------------------------


def _bool_condition(condition: Any, *_: Any) -> None:
    if condition.dtype != bool_.numpy:
        raise DTypeMismatch(
            "where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{from_numpy(condition.dtype).kernel_name}"
        )


@elementwise(guard=_bool_condition, unpromoted=1, inplace=False, method=False)
def where(xp: Any, condition: Array, input: Operand, other: Operand) -> Any:
    """``input`` where the condition holds, else ``other``."""
    return xp.where(condition, input, other)


where.derivative(
    input=lambda F, grad, condition: F.where(condition, grad, 0.0),
    other=lambda F, grad, condition: F.where(condition, 0.0, grad),
)
