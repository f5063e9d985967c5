"""Programs as calls of templates, as the SDK sends them.

Internals: it makes calls as the SDK does, which the engine cannot import.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad_engine.errors import UnknownProgram
from telegrad_engine.program import Instruction
from telegrad_engine.program.instructions import names_in
from telegrad_engine.program.program import BoundProgram, ProgramCache
from telegrad_engine.program.template import (
    TAKES_DATA,
    Structure,
    instruction_text,
    stand_in,
    structure_of,
    template_of,
)
from telegrad_engine.program.wire import Call


def structures_of(
    program: Sequence[Instruction],
) -> tuple[list[tuple[str, Structure, tuple[int, ...], str | None]], list[str]]:
    """What the instructions of a program have in common with others of its template, and the ids."""
    slots: dict[str, int] = {}
    found = []
    for i in program:
        attrs = {k: v for k, v in i.attrs.items() if k != "data" or i.op not in TAKES_DATA}
        structure = structure_of(i.op, i.inputs, attrs)
        places = tuple([slots.setdefault(name, len(slots)) for name in (*names_in(i.inputs), *(i.outputs or ()))])
        found.append((i.op, structure, places, i.grad_mode))
    return found, [*slots]


def call_of(program: Sequence[Instruction]) -> Call:
    """The call of a template that a program comes to."""
    structures, ids = structures_of(program)
    names = {name: stand_in(slot) for slot, name in enumerate(ids)}
    operands: list[float] = []
    arrays: dict[str, Any] = {}
    texts = []
    for i, (_, structure, *_) in zip(program, structures, strict=True):
        attrs = i.attrs
        if i.op in TAKES_DATA and "data" in attrs:
            arrays[names[(i.outputs or i.inputs)[0]]] = attrs["data"]
            attrs = {k: v for k, v in attrs.items() if k != "data"}
        renamed = Instruction(i.op, _renamed(i.inputs, names), _renamed(i.outputs, names), attrs, i.grad_mode)
        texts.append(instruction_text(renamed, len(operands)))
        operands += structure.operands
    return Call(template_of(texts), ids, operands, arrays)


def bound(memory: ProgramCache, program: Sequence[Instruction]) -> BoundProgram:
    """A program as a session runs it, which has the template's text the first time."""
    call = call_of(program)
    try:
        found = memory.find(call.template.digest)
    except UnknownProgram:
        found = memory.read(call.template.text, call.template.digest, 64)
    return found.bind(call.ids, call.arrays, call.operands)


def _renamed(values: Sequence[Any], names: dict[str, str]) -> list[Any]:
    return [
        names[x] if isinstance(x, str) else tuple(_renamed(x, names)) if isinstance(x, (tuple, list)) else x
        for x in values
    ]
