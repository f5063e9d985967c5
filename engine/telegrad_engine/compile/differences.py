"""Differences between the inputs of a program and those of its earlier runs: why no plan of it could run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..program.instructions import names_in
from ..program.program import Program
from ..program.template import slot_of
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
"""The fields of a tensor's spec in words, in the order in which differences are named."""


def difference(program: Program, signature: InputSignature, known: Iterable[InputSignature]) -> str | None:
    """Return the first difference from the most similar known signature of a program; None if none is known."""
    found = [[*_differences(program, signature, other)] for other in known]
    nearest = min(found, key=len, default=None)
    return nearest[0] if nearest else None


def _differences(program: Program, signature: InputSignature, other: InputSignature) -> Iterator[str]:
    for place, (own, before) in enumerate(zip(signature.tensors, other.tensors, strict=False)):
        yield from _between(_name_of_tensor(program, signature, place), own, before)
    uploads = [f"what instruction {i} uploads" for i, step in enumerate(program.steps) if step.data is not None]
    for name, own, before in zip(uploads, signature.uploads, other.uploads, strict=True):
        yield from _between(name, own, before)
    for place, (kind, known) in enumerate(zip(signature.operands, other.operands, strict=True)):
        if kind is not known:
            yield f"number {place} is {kind.__name__}, and was {known.__name__}"
    if signature.places != other.places or len(signature.tensors) != len(other.tensors):
        yield "other tensors are the same, or have gradients"
    if signature.graph != other.graph:
        yield "the graph behind the tensors that it takes is another"
    if signature.functions != other.functions:
        yield "a registered function is another"


def _between(name: str, own: TensorSpec, before: TensorSpec) -> Iterator[str]:
    for field, word in WORDS.items():
        here, there = getattr(own, field), getattr(before, field)
        if field == "grad":
            here, there = here is not None, there is not None
        if here != there:
            yield f"the {word} of {name} is {here}, and was {there}"


def _name_of_tensor(program: Program, signature: InputSignature, place: int) -> str:
    """Return a description of a tensor by the first instruction that takes it."""
    wanted = {number for number, each in zip(program.taken, signature.places, strict=True) if each == place}
    for index, step in enumerate(program.steps):
        if any(slot_of(name) in wanted for name in names_in(step.instruction.inputs)):
            return f"a tensor that instruction {index}, {step.instruction.op}, takes"
    return "a gradient"
