"""Templates: programs without their ids, and without the numbers that affect no shape.

In a template ``_0``, ``_1``, … (slots) stand for the ids of tensors, in the order in which these first appear, and
``{"operand": 3}`` stands for a number. A call of a template provides the ids, the numbers and the uploaded arrays
(:mod:`.wire`). The SDK writes templates; a server identifies them by the digest of their text.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

from ..lru import LRU
from ..schema.parameters import encode_number
from . import json_codec
from .instructions import Instruction, Operands
from .overloads import find_op
from .verbs import VERBS

TAKES_DATA = frozenset(name for name, verb in VERBS.items() if any(p.name == "data" for p in verb.attr_params))
"""Verbs whose ``data`` may be an array of the container."""


OPERAND = "operand"
"""The prefix of the string for an operand among a structure's inputs; the operand's type follows it."""
_encoded: LRU[tuple[str, str], tuple[str, list[float]]] = LRU(1024)
"""The encoded attributes that were used last, with their operands."""
_stand_ins: list[str] = []


class Template(NamedTuple):
    """A template's text and its digest, by which a server identifies it."""

    text: str
    digest: str


class Ending(NamedTuple):
    """The slots of a call's tensors that are fetched and freed at its end."""

    fetch: tuple[int, ...] = ()
    """The fetched tensors, with their values or, if ``values`` is false, only their descriptions."""
    values: bool = True
    free: tuple[int, ...] = ()
    """The freed tensors."""


class Structure(NamedTuple):
    """The part of an instruction that belongs to its template, and its operands, which do not."""

    inputs: tuple[Any, ...]
    """0 for each id, nested as the inputs are, and strings for operands and constants."""
    attrs: str
    """The attributes as JSON, followed by the types of their operands, one on each line."""
    operands: Sequence[float]
    """The operands of the inputs, then those of the attributes."""


def stand_in(slot: int) -> str:
    """Return the placeholder id of a slot."""
    return f"_{slot}"


def slot_of(name: str) -> int:
    """Return the slot of a placeholder id; the largest integer for any other name."""
    digits = name[1:11]
    return int(digits) if digits.isdecimal() and name == stand_in(int(digits)) else sys.maxsize


def stand_ins(count: int) -> list[str]:
    """Return the placeholder ids of at least ``count`` slots."""
    while len(_stand_ins) < count:
        _stand_ins.append(stand_in(len(_stand_ins)))
    return _stand_ins


def digest(text: str) -> str:
    """Return the digest by which a server identifies a template: the SHA-256 of its text, in hexadecimal."""
    from hashlib import sha256  # it loads OpenSSL

    return sha256(text.encode()).hexdigest()


def template_of(instructions: Sequence[str]) -> Template:
    """Return the template of instructions that :func:`instruction_text` wrote."""
    text = f'{{"instructions":[{",".join(instructions)}]}}'
    return Template(text, digest(text))


def instruction_text(instruction: Instruction, first_operand: int) -> str:
    """Return an instruction with placeholder ids as JSON, with operands in place of numbers that affect no shape.

    ``first_operand`` is the number of operands of the instructions before it.
    """
    data: dict[str, Any] = {"op": instruction.op}
    operands = Operands(first_operand)
    if instruction.inputs:
        inputs = _encode_inputs(instruction.inputs)
        lifts = instruction.op not in VERBS
        data["inputs"] = [operands.take(x) if lifts and type(x) in (int, float) else x for x in inputs]
    if instruction.outputs:
        data["outputs"] = list(instruction.outputs)
    if instruction.attrs:
        data["attrs"] = _lifted_attrs(instruction.op, instruction.attrs, operands)
    if instruction.grad_mode:
        data["grad_mode"] = instruction.grad_mode
    return json_codec.dumps(data).decode()


def _encode_inputs(inputs: Sequence[Any]) -> list[Any]:
    return [
        x if type(x) is str else _encode_inputs(x) if isinstance(x, (list, tuple)) else encode_number(x) for x in inputs
    ]


def _lifted_attrs(name: str, attrs: Mapping[str, Any], operands: Operands) -> Mapping[str, Any]:
    """Return attributes of an op or a verb as JSON data, with operands in place of numbers that affect no shape."""
    signature = VERBS.get(name) or find_op(name)[0]
    return signature.lift_attrs(signature.encode_attrs(attrs), operands.take)


def structure_of(op: str, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Structure:
    """Return the structure of an instruction whose attributes have no array."""
    operands: list[float] = []
    pattern = _pattern(inputs, op not in VERBS, operands)
    if not attrs:
        return Structure(pattern, "", operands)
    text, own = structure_attrs(op, attrs)
    return Structure(pattern, text, operands + own if own else operands)


def structure_attrs(op: str, attrs: Mapping[str, Any]) -> tuple[str, list[float]]:
    """Return the text for an instruction's attributes in its structure, and their operands."""
    key = op, repr(attrs)
    try:
        return _encoded[key]
    except KeyError:
        pass
    operands = Operands()
    text = json_codec.dumps(_lifted_attrs(op, attrs, operands)).decode()
    text += "".join([f"\n{type(value).__name__}" for value in operands.values])
    found = _encoded[key] = text, operands.values
    return found


def _pattern(values: Sequence[Any], lifts: bool, operands: list[float]) -> tuple[Any, ...]:
    """Return 0 for each id, a tuple for a list, and text for a constant; with ``lifts`` numbers become operands.

    The text distinguishes ``1`` from ``1.0`` and ``0.0`` from ``-0.0``.
    """
    found: list[Any] = []
    for x in values:
        if type(x) is str:
            found.append(0)
        elif isinstance(x, (tuple, list)):
            found.append(_pattern(x, False, operands))
        elif lifts and (type(x) is int or (type(x) is float and isfinite(x))):
            operands.append(x)
            found.append(OPERAND + type(x).__name__)
        else:
            found.append(repr(x))
    return tuple(found)
