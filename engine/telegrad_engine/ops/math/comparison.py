"""Elementwise comparison, logical and bitwise ops, and ``where``."""

from __future__ import annotations

from typing import Any

from ...dtypes import bool_, float32, is_floating
from ...errors import DTypeMismatch
from ...schema.declaration import FUNCTION, INPLACE, INPLACE_ARITHMETIC, METHOD
from ...schema.op import elementwise
from ...schema.parameters import Array, Operand
from ...schema.promotion import TO_BOOL, WHOLE, Promotion
from ..guards import kernel_name, no_kernel
from .declarations import binary, unary, zero_gradient

for _name, _calls, _aliases, _doc in (
    ("eq", "equal", (), "Whether equal."),
    ("ne", "not_equal", ("not_equal",), "Whether different."),
    ("lt", "less", ("less",), "Whether less."),
    ("le", "less_equal", ("less_equal",), "Whether less or equal."),
    ("gt", "greater", ("greater",), "Whether greater."),
    ("ge", "greater_equal", ("greater_equal",), "Whether greater or equal."),
):
    # Out of place, the result is bool and nothing is recorded; in place, the result has the tensor's own dtype.
    binary(
        _name,
        _doc,
        calls=_calls,
        operands=(Array, Operand),
        aliases=_aliases,
        variants=FUNCTION | METHOD | INPLACE,
        promotion=TO_BOOL,
    ).derivative(input=zero_gradient, other=zero_gradient)

binary(
    "logical_and",
    "Whether both are non-zero.",
    variants=FUNCTION | METHOD | INPLACE,
    promotion=TO_BOOL,
    batching=INPLACE_ARITHMETIC,
)
binary(
    "logical_or",
    "Whether either is non-zero.",
    variants=FUNCTION | METHOD | INPLACE,
    promotion=TO_BOOL,
    batching=INPLACE_ARITHMETIC,
)
binary(
    "logical_xor",
    "Whether exactly one is non-zero.",
    variants=FUNCTION | METHOD | INPLACE,
    promotion=TO_BOOL,
    batching=INPLACE_ARITHMETIC,
)
unary("logical_not", "Whether zero.", variants=FUNCTION | METHOD | INPLACE, promotion=TO_BOOL)


def _whole_numbers_or_bools(kernel: str) -> Any:
    def guard(*inputs: Any) -> None:
        for x in inputs:
            if isinstance(x, float) or (hasattr(x, "dtype") and is_floating(x.dtype)):
                raise no_kernel(kernel, getattr(x, "dtype", float32.numpy))

    return guard


for _name, _doc in (
    ("bitwise_and", "And, bit by bit; of bools, logical."),
    ("bitwise_or", "Or, bit by bit; of bools, logical."),
    ("bitwise_xor", "Exclusive or, bit by bit; of bools, logical."),
):
    _guard = _whole_numbers_or_bools(f"{_name}_cpu")
    binary(_name, _doc, operands=(Operand, Operand), guard=_guard, promotion=WHOLE)

unary(
    "bitwise_not",
    "Every bit flipped; of bools, not.",
    calls="invert",
    guard=_whole_numbers_or_bools("bitwise_not_cpu"),
    promotion=WHOLE,
)

unary("isnan", "Whether not a number.", promotion=TO_BOOL)
unary("isinf", "Whether infinite.", promotion=TO_BOOL)
unary("isfinite", "Whether neither infinite nor not a number.", promotion=TO_BOOL)


# where ---------------------------------------------------------------------------------------------------


def _bool_condition(condition: Any, *_: Any) -> None:
    if condition.dtype != bool_.numpy:
        raise DTypeMismatch(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype {kernel_name(condition)}"
        )


@elementwise(guard=_bool_condition, variants=FUNCTION, promotion=Promotion(widens=True, unpromoted=1), calls="where")
def where(xp: Any, condition: Array, input: Operand, other: Operand) -> Any:
    """``input`` where the condition holds, else ``other``."""
    return xp.where(condition, input, other)


where.derivative(
    input=lambda F, grad, condition: F.where(condition, grad, 0.0),
    other=lambda F, grad, condition: F.where(condition, 0.0, grad),
)
