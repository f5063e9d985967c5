"""Templates: programs without their ids, and without the numbers that change no shape.

In a template ``_0``, ``_1``, … (slots) stand for the ids of tensors, in the order in which these first appear, and
``{"operand": 3}`` stands for a number (:mod:`.operands`). A call of a template gives the ids, the numbers and the
arrays that are uploaded (:mod:`.message`). The SDK writes templates; a server knows them by the digest of their text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from math import isfinite
from typing import Any, NamedTuple

from ..lru import LRU
from ..schema.parameters import Take, encode_number
from . import json_codec
from .instructions import Instruction
from .operands import Operands
from .overloads import find_op
from .verbs import VERBS

TAKES_DATA = frozenset(name for name, verb in VERBS.items() if any(p.name == "data" for p in verb.attr_params))
"""Verbs whose ``data`` may come as an array of the container."""


def instruction_data(instruction: Instruction, arrays: dict[str, Any] | None) -> dict[str, Any]:
    """One instruction as JSON data; what it uploads goes into ``arrays``, if there is one."""
    data: dict[str, Any] = {"op": instruction.op}
    if instruction.inputs:
        data["in"] = _encode_inputs(instruction.inputs)
    if instruction.outputs:
        data["out"] = list(instruction.outputs)
    attrs = instruction.attrs
    if arrays is not None and instruction.op in TAKES_DATA and "data" in attrs:
        name = instruction.outputs[0] if instruction.outputs else instruction.inputs[0]
        arrays[name] = attrs["data"]
        attrs = {k: v for k, v in attrs.items() if k != "data"}
    if attrs:
        data["attrs"] = encode_attrs(instruction.op, attrs)
    if instruction.grad_mode:
        data["grad_mode"] = instruction.grad_mode
    return data


def _encode_inputs(inputs: Sequence[Any]) -> list[Any]:
    return [
        x if type(x) is str else _encode_inputs(x) if isinstance(x, (list, tuple)) else encode_number(x) for x in inputs
    ]


def encode_attrs(name: str, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of an op or a verb as JSON data."""
    verb = VERBS.get(name)
    return verb.encode_attrs(attrs) if verb is not None else find_op(name)[0].encode_attrs(attrs)


def lift_attrs(name: str, encoded: Mapping[str, Any], take: Take) -> Mapping[str, Any]:
    """The attributes of an op or a verb as JSON data, with operands in place of numbers that change no shape."""
    verb = VERBS.get(name)
    return (verb if verb is not None else find_op(name)[0]).lift_attrs(encoded, take)


OPERAND = "operand"
"""What a structure has in place of an input that is an operand, followed by its type."""
ENCODED_ATTRS = 1024
"""How many attributes are kept encoded: those used last."""
_stand_ins: list[str] = []


class Template(NamedTuple):
    """A template's text, and what a server knows it by."""

    text: str
    digest: str


class Ending(NamedTuple):
    """What becomes of a call's tensors, by their slots."""

    fetch: tuple[int, ...] = ()
    """Those that the answer has, with their values or, if ``values`` is false, only what they are."""
    values: bool = True
    free: tuple[int, ...] = ()
    """Those that are freed."""


class Structure(NamedTuple):
    """What one instruction has in common with others of its template, and its numbers, which it has not."""

    inputs: tuple[Any, ...]
    """Slots, nested as the inputs are; strings for operands and for constants."""
    attrs: str
    """The attributes as JSON, and on further lines the types of the operands in them."""
    operands: Sequence[float]
    """The numbers of the inputs, then those of the attributes."""


def stand_in(slot: int) -> str:
    """What stands for an id in a template."""
    return f"_{slot}"


def stand_ins(count: int) -> list[str]:
    """What stands for so many ids, or for more."""
    while len(_stand_ins) < count:
        _stand_ins.append(stand_in(len(_stand_ins)))
    return _stand_ins


def digest(text: str) -> str:
    """What a server knows a template by: the SHA-256 of its text, in hexadecimal digits."""
    return sha256(text.encode()).hexdigest()


def template_of(instructions: Sequence[str]) -> Template:
    """The template of instructions as :func:`instruction_text` writes them."""
    text = f'{{"instructions":[{",".join(instructions)}]}}'
    return Template(text, digest(text))


def instruction_text(instruction: Instruction, first_operand: int) -> str:
    """An instruction whose ids are stand-ins, as JSON, with operands in place of numbers that change no shape.

    ``first_operand`` says how many the instructions before it have.
    """
    data = instruction_data(instruction, {})
    operands = Operands(first_operand)
    if instruction.op not in VERBS and "in" in data:
        data["in"] = [operands.take(x) if type(x) in (int, float) else x for x in data["in"]]
    if "attrs" in data:
        data["attrs"] = lift_attrs(instruction.op, data["attrs"], operands.take)
    return json_codec.dumps(data).decode()


class Structures:
    """Finds the structure of instructions. Attributes that are the same object as before are not encoded again."""

    def __init__(self) -> None:
        self._encoded: LRU[int, tuple[Mapping[str, Any], str, list[float]]] = LRU(ENCODED_ATTRS)

    def of(self, op: str, inputs: Sequence[Any], attrs: Mapping[str, Any], slots: dict[str, int]) -> Structure:
        """The structure of an instruction, whose attributes have no array. Ids that are new get the next slots."""
        try:
            pattern = tuple([slots[x] for x in inputs])
            if not attrs:
                return Structure(pattern, "", ())  # as nearly always
        except (KeyError, TypeError):
            pass
        operands: list[float] = []
        lifts = op not in VERBS
        pattern = tuple([_input(x, lifts, slots, operands) for x in inputs])
        if not attrs:
            return Structure(pattern, "", operands)
        text, own = self.encode(op, attrs)
        return Structure(pattern, text, operands + own if own else operands)

    def encode(self, op: str, attrs: Mapping[str, Any]) -> tuple[str, list[float]]:
        """What the structure of an instruction has of its attributes, and their numbers."""
        try:
            owner, text, values = self._encoded[id(attrs)]
            if owner is attrs:
                return text, values
        except KeyError:
            pass
        operands = Operands()
        text = json_codec.dumps(lift_attrs(op, encode_attrs(op, attrs), operands.take)).decode()
        text += "".join([f"\n{type(value).__name__}" for value in operands.values])
        self._encoded[id(attrs)] = attrs, text, operands.values
        return text, operands.values


def _input(value: Any, lifts: bool, slots: dict[str, int], operands: list[float]) -> Any:
    """An id as its slot, a list as a tuple; a number as an operand if it ``lifts``, and as text like other constants.

    The text tells ``1`` from ``1.0`` and ``0.0`` from ``-0.0``.
    """
    if type(value) is str:
        return slots.setdefault(value, len(slots))
    if isinstance(value, (tuple, list)):
        return tuple([_input(x, False, slots, operands) for x in value])
    if lifts and (type(value) is int or (type(value) is float and isfinite(value))):
        operands.append(value)
        return OPERAND + type(value).__name__
    return repr(value)
