"""Programs as JSON data, which both encodings are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..schema.parameters import Take, encode_number
from .instructions import Instruction
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
