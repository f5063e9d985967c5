"""Programs with their ids taken out: what two rounds of a loop have in common.

In the canonical form ``_0``, ``_1``, … stand where a program has the ids of tensors, in the order in which they first
appear, and uploaded arrays are named so too. The SDK sends that form with the list of ids, and, once the server
knows the program, its digest and the list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from . import json_codec
from .data import TAKES_DATA, encode_attrs, program_data
from .instructions import Instruction

Key = tuple[Any, ...]


class Canonical(NamedTuple):
    """A program in two parts: what stays in a loop, as a key, and what changes."""

    key: Key
    """Equal for programs that differ in ids and in the values of uploads alone."""
    ids: list[str]
    arrays: dict[str, Any]
    """The uploads, by what stands for their ids."""


def stand_in(index: int) -> str:
    """What stands for the id that appears after so many others."""
    return f"_{index}"


def canonical(program: Sequence[Instruction], texts: Texts) -> Canonical:
    """The parts of a program."""
    places: dict[str, int] = {}
    key: list[Any] = []
    arrays: dict[str, Any] = {}
    for instruction in program:
        op, attrs = instruction.op, instruction.attrs
        inputs, outputs = _placed(instruction.inputs, places), _placed(instruction.outputs, places)
        if op in TAKES_DATA:
            name = stand_in(outputs[0] if outputs else inputs[0])
            arrays[name] = attrs["data"]
            attrs = {k: v for k, v in attrs.items() if k != "data"}
        key += (op, inputs, outputs, texts.of(op, attrs) if attrs else "", instruction.grad_mode)
    return Canonical(tuple(key), list(places), arrays)


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

    MOST = 1024

    def __init__(self) -> None:
        self._known: dict[int, tuple[Mapping[str, Any], str]] = {}

    def of(self, op: str, attrs: Mapping[str, Any]) -> str:
        """The attributes of this op or verb in JSON."""
        known = self._known.get(id(attrs))
        if known is not None and known[0] is attrs:
            return known[1]
        text = json_codec.dumps(encode_attrs(op, attrs)).decode()
        if len(self._known) >= self.MOST:
            self._known.clear()
        self._known[id(attrs)] = attrs, text
        return text


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
    text = json_codec.dumps(program_data(renamed, {})).decode()
    return Known(text, digest(text))


def _renamed(values: Sequence[Any], names: Mapping[str, str]) -> list[Any]:
    return [
        names[x] if isinstance(x, str) else tuple(_renamed(x, names)) if isinstance(x, (tuple, list)) else x
        for x in values
    ]


def digest(text: str) -> str:
    """What a server knows a program by: the SHA-256 of its canonical text, in hexadecimal digits."""
    return sha256(text.encode()).hexdigest()
