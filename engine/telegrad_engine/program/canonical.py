"""Programs with their ids taken out: what two rounds of a loop have in common.

In the canonical form ``_0``, ``_1``, … stand where a program has the ids of tensors, in the order in which they first
appear, and uploaded arrays are named so too. The SDK sends that form with the list of ids, and, once the server
knows the program, its digest and the list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from math import isfinite
from typing import Any, NamedTuple

from ..lru import LRU
from . import json_codec
from .data import TAKES_DATA, encode_attrs, lift_attrs, program_data
from .instructions import Instruction
from .operands import Operands
from .verbs import VERBS

Key = tuple[Any, ...]
OPERAND = "operand"
"""What a key has in place of an input that is an operand."""
KEY_ITEMS = 5
"""How many items of a key are one instruction's."""
TEXTS = 1024
"""How many texts of attributes are kept: those used last."""


class Canonical(NamedTuple):
    """A program in two parts: what stays in a loop, as a key, and what changes."""

    key: Key
    """Equal for programs that differ in ids, operands and the values of uploads alone."""
    ids: list[str]
    arrays: dict[str, Any]
    """The uploads, by what stands for their ids."""
    operands: list[float]
    """The numbers that change no shape, in the order in which the template takes them."""


def stand_in(index: int) -> str:
    """What stands for the id that appears after so many others."""
    return f"_{index}"


def canonical(program: Sequence[Instruction], texts: Texts) -> Canonical:
    """The parts of a program."""
    places: dict[str, int] = {}
    key: list[Any] = []
    arrays: dict[str, Any] = {}
    operands: list[float] = []
    for instruction in program:
        op, attrs = instruction.op, instruction.attrs
        inputs, outputs = _placed(instruction.inputs, places), _placed(instruction.outputs, places)
        if op not in VERBS:
            inputs = _lifted(instruction.inputs, inputs, operands)
        if op in TAKES_DATA:
            name = stand_in(outputs[0] if outputs else inputs[0])
            arrays[name] = attrs["data"]
            attrs = {k: v for k, v in attrs.items() if k != "data"}
        text = ""
        if attrs:
            text, own = texts.of(op, attrs)
            operands += own
        key += (op, inputs, outputs, text, instruction.grad_mode)
    return Canonical(tuple(key), list(places), arrays, operands)


def _lifted(values: Sequence[Any], placed: tuple[Any, ...], operands: list[float]) -> tuple[Any, ...]:
    """Inputs with OPERAND in the places of numbers, which join the operands."""
    if not any(map(_is_operand, values)):
        return placed
    operands += filter(_is_operand, values)
    return tuple([OPERAND if _is_operand(x) else place for x, place in zip(values, placed, strict=True)])


def _is_operand(value: Any) -> bool:
    """Whether an input is a number that JSON can write."""
    return type(value) is int or (type(value) is float and isfinite(value))


def _placed(values: Sequence[Any], places: dict[str, int]) -> tuple[Any, ...]:
    """Ids as places; numbers as text, which tells ``1`` from ``1.0`` and ``0.0`` from ``-0.0``."""
    return tuple(
        [
            places.setdefault(x, len(places))
            if type(x) is str
            else _placed(x, places)
            if isinstance(x, (tuple, list))
            else repr(x)
            for x in values
        ]
    )


class Texts:
    """Attributes as text. Those of calls that the SDK remembers are the same object every time."""

    def __init__(self) -> None:
        self._known: LRU[int, tuple[Mapping[str, Any], str, list[float]]] = LRU(TEXTS)

    def of(self, op: str, attrs: Mapping[str, Any]) -> tuple[str, list[float]]:
        """The attributes of this op or verb as a template in JSON, and their operands."""
        try:
            owner, text, values = self._known[id(attrs)]
            if owner is attrs:
                return text, values
        except KeyError:
            pass
        operands = Operands()
        text = json_codec.dumps(lift_attrs(op, encode_attrs(op, attrs), operands.take)).decode()
        self._known[id(attrs)] = attrs, text, operands.values
        return text, operands.values


class Known(NamedTuple):
    """A program that was sent before: its text and the digest of that."""

    text: str
    digest: str


def known(program: Sequence[Instruction], ids: Sequence[str]) -> Known:
    """The canonical text of a program with these ids, and its digest."""
    names = {name: stand_in(index) for index, name in enumerate(ids)}
    renamed = [
        Instruction(i.op, _renamed(i.inputs, names), _renamed(i.outputs, names), i.attrs, i.grad_mode) for i in program
    ]
    data = program_data(renamed, {})
    operands = Operands()
    for instruction in data["instructions"]:
        lift(instruction, operands)
    text = json_codec.dumps(data).decode()
    return Known(text, digest(text))


def lift(instruction: dict[str, Any], operands: Operands) -> None:
    """Put operands in place of the numbers of an instruction, which is JSON data."""
    op = instruction["op"]
    if op not in VERBS and "in" in instruction:
        instruction["in"] = [operands.take(x) if type(x) in (int, float) else x for x in instruction["in"]]
    if "attrs" in instruction:
        instruction["attrs"] = lift_attrs(op, instruction["attrs"], operands.take)


def _renamed(values: Sequence[Any], names: Mapping[str, str]) -> list[Any]:
    return [
        names[x] if isinstance(x, str) else tuple(_renamed(x, names)) if isinstance(x, (tuple, list)) else x
        for x in values
    ]


def digest(text: str) -> str:
    """What a server knows a program by: the SHA-256 of its canonical text, in hexadecimal digits."""
    return sha256(text.encode()).hexdigest()
