"""What need not be sent: instructions whose results died before anybody could use them.

A tensor that was made and freed within what is still unsent, and that nothing sent depends on, is neither made nor
freed. What may fail because of the values that it is given is sent all the same, so that no error is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad_engine.program import Instruction
from telegrad_engine.registry import CATALOGUE

PURE_VERBS = frozenset({"tensor", "alias", "detach", "grad_of"})
"""The verbs that make a name and do nothing else."""
VALUES_MATTER = frozenset({"div.mode", "floor_divide", "fmod", "pow", "remainder"})
"""Pointwise ops that refuse some integers."""
_pure: dict[str, bool] = {}


def free(program: list[Instruction], lines: list[Any], dead: Sequence[str]) -> int:
    """Have a program that is about to be sent free tensors, or not make them in the first place.

    Returns how many bytes fewer it uploads.
    """
    there = set(dead)
    nbytes = sum(elide(program, lines, there))
    left = tuple([name for name in dead if name in there])
    if left:
        program.append(Instruction("free", [left], (), None, None, True))
        lines.append(None)
    return nbytes


def elide(program: list[Instruction], lines: list[Any], dead: set[str]) -> list[int]:
    """Take out of a program, and of the lines behind it, what makes only ``dead`` tensors that nothing kept uses.

    The names that thereby never come to be leave ``dead``. Returns how many bytes of uploads went with them, one
    item an instruction.
    """
    used: set[str] = set()
    gone: list[int] = []
    for index in range(len(program) - 1, -1, -1):
        instruction = program[index]
        outputs = instruction.outputs
        if outputs and dead.issuperset(outputs) and used.isdisjoint(outputs) and _is_pure(instruction.op):
            gone.append(index)
            dead.difference_update(outputs)
        else:
            _note(instruction.inputs, used)
    for index in gone:  # from the end, so the others keep their places
        del lines[index]
    return [_nbytes(program.pop(index)) for index in gone]


def _note(inputs: Sequence[Any], used: set[str]) -> None:
    for x in inputs:
        if type(x) is str:
            used.add(x)
        elif type(x) is tuple or type(x) is list:
            _note(x, used)


def _nbytes(instruction: Instruction) -> int:
    return int(instruction.attrs["data"].nbytes) if instruction.op == "tensor" else 0


def _is_pure(name: str) -> bool:
    """Whether all that an op or verb does is make its outputs, whatever the values.

    Draws are not pure: they move the session's generator on.
    """
    known = _pure.get(name)
    if known is None:
        op = CATALOGUE.ops.get(name)
        simple = op is not None and (op.pointwise or op.view or op.factory) and not op.random
        known = _pure[name] = name in PURE_VERBS or (simple and name not in VALUES_MATTER)
    return known
