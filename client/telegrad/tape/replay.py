"""Replays: instructions that a compiled function recorded once, to be recorded again as a whole on other tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple

from telegrad_engine.program import Instruction

from ..call_site import Line
from .node import Literal, Pattern, named

STEP = "optim_step"
NEW = -1
"""A placeholder for the slot of a tensor that a segment does not have yet."""
_numbers = count()


class Step(NamedTuple):
    """One instruction, with places in the replay's list of ids in place of ids."""

    op: str
    inputs: Pattern
    outputs: tuple[int, ...]
    attrs: Mapping[str, Any]
    mode: str | None
    line: Line


class Replay:
    """Instructions on tensors from outside, ``taken``, and on those that they make.

    A list of ids has the ids of the tensors from outside first, then of those that are made, as ``made`` names them.
    """

    def __init__(
        self,
        instructions: Sequence[Instruction],
        lines: Sequence[Line],
        taken: Sequence[str],
        dropped: Collection[str] = (),
    ) -> None:
        self.number = next(_numbers)
        """Told apart from all other replays by it; nothing that has it keeps the replay alive."""
        self.taken = len(taken)
        self.made = [name for instruction in instructions for name in instruction.outputs]
        places = {name: place for place, name in enumerate([*taken, *self.made])}
        self.dropped = [places[name] for name in dropped]
        """The places of what is made and not used once the instructions have run."""
        self.steps = [
            Step(i.op, _placed(i.inputs, places), _placed(i.outputs, places), i.attrs, i.grad_mode, line)
            for i, line in zip(instructions, lines, strict=True)
        ]

    @cached_property
    def steps_optimizer(self) -> bool:
        """Whether there is an optimizer's step among the instructions."""
        return any(step.op == STEP for step in self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def with_ids(self, ids: Sequence[str], attrs: Mapping[int, Mapping[str, Any]]) -> list[tuple[Any, ...]]:
        """The instructions on these ids; ``attrs`` are those of this time, by the instruction's index."""
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
