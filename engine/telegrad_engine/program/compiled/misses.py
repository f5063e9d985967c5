"""What keeps a program from running as an executable that there is already: the first thing that it finds otherwise.

An executable is for tensors of certain kinds. A program whose tensors are of other kinds has to be planned anew, which
a loop should rarely do; so the report of such a run says what differs from the kinds that are nearest to these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .analysis import Analysis, names_in, number_of
from .input_signature import InputSignature, TensorSpec

WORDS = {
    "shape": "shape",
    "dtype": "dtype",
    "requires_grad": "requires_grad",
    "contiguous": "being in row-major order",
    "grad": "having a gradient",
    "view": "being a view",
    "shared": "sharing its memory",
}
"""What the facts of a tensor are called, in the order in which they are told."""


def difference(analysis: Analysis, kinds: InputSignature, known: Iterable[InputSignature]) -> str | None:
    """What differs from the nearest of the known kinds, of one program; None where none is known."""
    found = [[*_differences(analysis, kinds, other)] for other in known]
    nearest = min(found, key=len, default=None)
    return nearest[0] if nearest else None


def _differences(analysis: Analysis, kinds: InputSignature, other: InputSignature) -> Iterator[str]:
    """All that differs, the plainest first."""
    for place, (own, before) in enumerate(zip(kinds.tensors, other.tensors, strict=False)):
        yield from _of_tensor(_taken(analysis, kinds, place), own, before)
    for place, (own, before) in enumerate(zip(kinds.uploads, other.uploads, strict=True)):
        yield from _of_tensor(_uploaded(analysis, place), own, before)
    for place, (own, before) in enumerate(zip(kinds.operands, other.operands, strict=True)):
        if own != before:
            yield f"number {place} is {_shown(own)}, and was {_shown(before)}"
    if kinds.places != other.places or len(kinds.tensors) != len(other.tensors):
        yield "other tensors are the same, or have gradients"
    if kinds.graph != other.graph:
        yield "other nodes are behind the tensors that it takes"
    if (kinds.functions, kinds.device) != (other.functions, other.device):
        yield "a registered function, or the device, is another"


def _of_tensor(name: str, own: TensorSpec, before: TensorSpec) -> Iterator[str]:
    for fact, word in WORDS.items():
        here, there = getattr(own, fact), getattr(before, fact)
        if fact == "grad":
            here, there = here is not None, there is not None
        if here != there:
            yield f"the {word} of {name} is {here}, and was {there}"


def _taken(analysis: Analysis, kinds: InputSignature, place: int) -> str:
    """What to call one of the tensors that a program takes: by the instruction that takes it first."""
    wanted = {number for number, each in zip(analysis.taken, kinds.places, strict=True) if each == place}
    for index, step in enumerate(analysis.program.steps):
        if any(number_of(name) in wanted for name in names_in(step.instruction.inputs)):
            return f"a tensor that instruction {index}, {step.instruction.op}, takes"
    return "a gradient"


def _uploaded(analysis: Analysis, place: int) -> str:
    uploads = [index for index, step in enumerate(analysis.program.steps) if step.data is not None]
    return f"what instruction {uploads[place]} uploads"


def _shown(kind: Any) -> str:
    """An operand's type, or where an executable is for one value, that."""
    return kind.__name__ if isinstance(kind, type) else str(kind)
