"""Steps: what a session records, without ids. Recording appends a step and the slots of its tensors to a list.

Two steps of the same ``kind`` differ only in their numbers, the operands of a template. A compiled function records a
:class:`Block` of steps as one entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Self

from telegrad_engine.lru import LRU
from telegrad_engine.program import Instruction
from telegrad_engine.program.instructions import names_in
from telegrad_engine.program.template import TAKES_DATA, instruction_text, structure_attrs, structure_of
from telegrad_engine.program.verbs import VERBS
from telegrad_engine.schema.op import CATALOGUE, NO_ATTRS

from ..call_site import Position

QUIET = frozenset(name for name, verb in VERBS.items() if verb.quiet)
Places = tuple[int, ...]
"""The slots of an instruction's tensors: those among the inputs, in order, then those of the outputs."""


class RecordedStep:
    """An instruction without ids."""

    __slots__ = ("attrs", "inputs", "kind", "mode", "op", "operands")

    def __init__(
        self, op: str, inputs: Sequence[Any], attrs: Mapping[str, Any], mode: str | None, operands: Sequence[float]
    ) -> None:
        self.op, self.attrs, self.mode, self.operands = op, attrs, mode, operands
        self.inputs = inputs
        """The inputs, with any string in place of an id."""
        self.kind: RecordedStep = self
        """The first step that differed from others in more than its numbers: steps of a kind have the same one."""

    def __len__(self) -> int:
        return 1

    def expanded(self, places: Places, position: Position | None = None) -> Sequence[Single]:
        """The single steps that an entry with these places stands for, with their places and the users' lines."""
        return ((self, places, position),)

    def instruction(self, ids: Sequence[str], array: Any = None) -> Instruction:
        """The instruction on these ids, with the array that it uploads."""
        given = iter(ids)
        inputs = _filled(self.inputs, given)
        attrs = self.attrs if array is None else {**self.attrs, "data": array}
        return Instruction(self.op, inputs, [*given], attrs, self.mode, True)

    def text(self, ids: Sequence[str], first_operand: int) -> str:
        """The instruction as part of a template, as :func:`instruction_text` writes it."""
        count = len(self.inputs)
        if (
            self.attrs
            or self.mode is not None
            or not 0 < count < len(ids)
            or not all(type(x) is str for x in self.inputs)
        ):
            return instruction_text(self.instruction(ids), first_operand)
        inputs, outputs = '","'.join(ids[:count]), '","'.join(ids[count:])  # a faster way for nearly all
        return f'{{"op":"{self.op}","inputs":["{inputs}"],"outputs":["{outputs}"]}}'

    @property
    def settings(self) -> str:
        """The attributes as part of a template; the empty string if there are none."""
        return structure_attrs(self.op, self.attrs)[0].partition("\n")[0] if self.attrs else ""

    def __repr__(self) -> str:
        return f"<step {self.op}{tuple(self.inputs)} {self.attrs}>"


Single = tuple[RecordedStep, Places, Position | None]
"""A single step, its places, and the user's line that recorded it."""


def _filled(values: Sequence[Any], ids: Iterator[str]) -> tuple[Any, ...]:
    return tuple(
        [next(ids) if type(x) is str else _filled(x, ids) if isinstance(x, (tuple, list)) else x for x in values]
    )


def is_quiet(op: str, attrs: Mapping[str, Any]) -> bool:
    """Whether an instruction leaves a lazy graph unchanged. A ``zero_grad`` without attributes changes no gradient."""
    return op in QUIET and not (attrs and op == "zero_grad")


# Kinds of steps -------------------------------------------------------------------------------------------

MAX_KINDS = 4096
_kinds: LRU[Any, RecordedStep] = LRU(MAX_KINDS)


def step_of(op: str, inputs: Sequence[Any], outputs: int, attrs: Mapping[str, Any], mode: str | None) -> RecordedStep:
    """Return the step of an instruction with this number of outputs, whose attributes are canonical."""
    if op in TAKES_DATA:
        attrs = {name: value for name, value in attrs.items() if name != "data"}
    if not attrs and all(type(x) is str for x in inputs):
        key: Any = (op, mode, outputs, len(inputs))
        operands: Sequence[float] = ()
    else:
        structure = structure_of(op, inputs, attrs)
        key, operands = (op, mode, outputs, structure.inputs, structure.attrs), structure.operands
    kind: RecordedStep | None = _kinds.get(key)
    if kind is not None and not operands:
        return kind
    step = RecordedStep(op, inputs, attrs or NO_ATTRS, mode, operands)
    if kind is None:
        _kinds[key] = step
    else:
        step.kind = kind
    return step


class Block:
    """Steps that are recorded together as one entry: those of a compiled function."""

    def __init__(
        self, steps: Sequence[RecordedStep], places: Sequence[Places], positions: Sequence[Position | None]
    ) -> None:
        self.steps, self._places, self._positions = steps, places, positions
        self.kind = self
        self.operands: Sequence[float] = [x for step in self.steps for x in step.operands]
        found = [VERBS.get(s.op) or CATALOGUE.ops.get(s.op.removesuffix("_")) for s in self.steps]
        self.may_raise = any(each is not None and each.may_raise for each in found)
        """Whether values may make one of its instructions raise an error."""
        self.keeps_graph = all(is_quiet(s.op, s.attrs) or s.op in CATALOGUE.ops or s.op == "apply" for s in self.steps)
        """Whether its instructions change no tensor, so that calls after it may join a lazy graph from before it."""

    def __len__(self) -> int:
        return len(self.steps)

    def has(self, op: str) -> bool:
        """Whether one of the instructions is of this op."""
        return any(step.op == op for step in self.steps)

    def with_attrs(self, attrs: Mapping[int, Mapping[str, Any]]) -> Self:
        """The block with other attributes for some steps, by index, that differ in their numbers."""
        if not attrs:
            return self
        other = copy(self)
        other.steps = [*self.steps]
        for index, given in attrs.items():
            step, used = self.steps[index], self._places[index]
            outputs = len(used) - len([*names_in(step.inputs)])
            other.steps[index] = step_of(step.op, step.inputs, outputs, given, step.mode)
        if any(new.kind is not old.kind for new, old in zip(other.steps, self.steps, strict=True)):
            other.kind = other
        other.operands = [x for step in other.steps for x in step.operands]
        return other

    def expanded(self, places: Places, _: Position | None = None) -> Sequence[Single]:
        """The single steps that an entry with these places stands for, with the lines that recorded the trace."""
        parts = zip(self.steps, self._places, self._positions, strict=True)
        return [(step, tuple([places[index] for index in own]), position) for step, own, position in parts]
