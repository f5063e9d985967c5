"""Replays: instructions that a compiled function recorded once and records again, as a whole, on other tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple

from telegrad_engine.program import Instruction
from telegrad_engine.program.verbs import VERBS
from telegrad_engine.schema.op import CATALOGUE

from ..call_site import Line
from .lazy_graph import is_quiet
from .node import Literal, Pattern, named

STEP = "optim_step"
NEW = -1
"""A placeholder for the slot of a tensor that a segment does not have yet."""
_numbers = count()


class Step(NamedTuple):
    """One instruction, with indices into the replay's list of ids in place of the ids."""

    op: str
    inputs: Pattern
    outputs: tuple[int, ...]
    attrs: Mapping[str, Any]
    mode: str | None
    line: Line


class Replay:
    """Instructions on tensors from outside (``taken``) and on the tensors that they create.

    A list of ids holds the ids of the tensors from outside, then those of the created tensors, in the order of
    ``made``.
    """

    def __init__(
        self,
        instructions: Sequence[Instruction],
        lines: Sequence[Line],
        taken: Sequence[str],
        dropped: Collection[str] = (),
    ) -> None:
        self.number = next(_numbers)
        """Identifies the replay, without a reference that would keep it alive."""
        self.taken = len(taken)
        self.made = [name for instruction in instructions for name in instruction.outputs]
        places = {name: place for place, name in enumerate([*taken, *self.made])}
        self.dropped = [places[name] for name in dropped]
        """The indices of the created tensors that are not used after the instructions have run."""
        self.steps = [
            Step(i.op, _placed(i.inputs, places), _placed(i.outputs, places), i.attrs, i.grad_mode, line)
            for i, line in zip(instructions, lines, strict=True)
        ]

    @cached_property
    def steps_optimizer(self) -> bool:
        """Whether one of the instructions is an optimizer step."""
        return any(step.op == STEP for step in self.steps)

    @cached_property
    def may_raise(self) -> bool:
        """Whether values may make one of its instructions raise an error."""
        found = [VERBS.get(s.op) or CATALOGUE.ops.get(s.op.removesuffix("_")) for s in self.steps]
        return any(each is not None and each.may_raise for each in found)

    @cached_property
    def keeps_graph(self) -> bool:
        """Whether its instructions change no tensor, so that calls after it may join a lazy graph from before it."""
        return all(is_quiet(s.op, s.attrs) or s.op in CATALOGUE.ops or s.op == "apply" for s in self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def with_ids(self, ids: Sequence[str], attrs: Mapping[int, Mapping[str, Any]]) -> list[tuple[Any, ...]]:
        """The instructions on these ids. ``attrs`` replaces the attributes of some, by the instruction's index."""
        return [
            (s.op, named(s.inputs, ids), [ids[place] for place in s.outputs], attrs.get(index, s.attrs), s.mode, s.line)
            for index, s in enumerate(self.steps)
        ]


def _placed(values: Sequence[Any], places: Mapping[str, int]) -> Pattern:
    return tuple(
        [
            places[x] if isinstance(x, str) else _placed(x, places) if isinstance(x, (tuple, list)) else Literal(x)
            for x in values
        ]
    )
