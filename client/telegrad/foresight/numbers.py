"""The numbers of an instruction that may be others the next time: the operands of its template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from telegrad_engine.program.data import encode_attrs, lift_attrs
from telegrad_engine.program.operands import Operands
from telegrad_engine.program.verbs import VERBS


class Numbers(NamedTuple):
    """An instruction's numbers, and the instruction without them."""

    template: str
    """The attributes and the constants among the inputs; of an operand only its type."""
    operands: Sequence[float]


class OwnNumbers(NamedTuple):
    """An instruction whose numbers are not those of its step."""

    inputs: Sequence[Any]
    """The inputs, of which only the constants are used."""
    attrs: Mapping[str, Any]
    operands: Sequence[float]


def numbers_of(op: str, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Numbers:
    """The operands of an instruction in the order in which its program takes them, and what is left without them."""
    operands = Operands()
    constants = [operands.take(x) if is_number(op, x) else _constant(x) for x in inputs]
    lifted = lift_attrs(op, encode_attrs(op, attrs), operands.take) if attrs else attrs
    types = [type(value).__name__ for value in operands.values]
    return Numbers(repr((constants, lifted, types)), operands.values)


def is_number(op: str, value: Any) -> bool:
    """Whether an input is an operand, if it is finite."""
    return type(value) in (int, float) and op not in VERBS


def _constant(value: Any) -> Any:
    """An input that is none: how it is told from others. Tensors, and the ids of tensors, are no constants."""
    return None if isinstance(value, (str, tuple, list)) or hasattr(value, "_data") else value
