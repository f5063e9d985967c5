"""The analysis of a cached program: the tensors that it takes, makes and frees, and whether it can be planned.

Ids are numbers here: positions in the list of ids of a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any

from ..errors import TelegradError
from .instructions import Instruction, names_in
from .overloads import find_op
from .verbs import VERBS


class Analysis:
    """The analysis of one program."""

    def __init__(self, steps: Sequence[Any]) -> None:
        self._instructions = [step.instruction for step in steps]
        self.taken: list[int] = []
        """The existing tensors that it uses, in the order of their first use."""
        self.made: list[int] = []
        self.freed: list[int] = []
        """The existing tensors that it frees."""
        self.functions: dict[str, None] = {}
        """The names of registered functions that it applies."""
        self.uploads = [(x.data, x.instruction.attrs.get("dtype")) for x in steps if x.data is not None]
        """The names of the arrays that it uploads, each with the requested dtype."""
        for instruction in self._instructions:
            self._note(instruction)

    def _note(self, instruction: Instruction) -> None:
        names = [number_of(x) for x in names_in(instruction.inputs)]
        if instruction.op == "apply":
            self.functions[str(instruction.attrs.get("function"))] = None
        if instruction.op == "free":
            self.freed += [n for n in names if n not in self.made]
        else:
            self.taken += dict.fromkeys(n for n in names if n not in self.made and n not in self.taken)
        self.made += [number_of(name) for name in instruction.outputs or ()]

    @cached_property
    def ids_made(self) -> Callable[[Sequence[str]], Iterable[str]]:
        """A function that returns the ids of the tensors that it makes from the ids of a message."""
        if len(self.made) < 2:
            return lambda ids: [ids[i] for i in self.made]
        return itemgetter(*self.made)

    @cached_property
    def visits_graphs(self) -> bool:
        """Whether it may make a pass over the graph of tensors that it takes."""
        return any(i.op in VERBS and not VERBS[i.op].quiet for i in self._instructions)

    @cached_property
    def refusal(self) -> str | None:
        """Why the program runs one instruction at a time; None if it can be planned."""
        for index, instruction in enumerate(self._instructions):
            reason = _refusal(instruction)
            if reason is not None:
                return f"instruction {index}, {instruction.op}: {reason}"
        if not {*self.made}.isdisjoint([*self.taken, *self.freed]) or len({*self.made}) < len(self.made):
            return "one id is that of two tensors"
        return None


def _refusal(instruction: Instruction) -> str | None:
    verb = VERBS.get(instruction.op)
    if verb is not None:
        if instruction.attrs.get("is_grads_batched"):
            return "its rows are computed together"
        return None if verb.repeatable or verb.name in ("fetch", "tensor") else "it does more than compute with tensors"
    try:
        find_op(instruction.op)
    except TelegradError:
        return "there is no such op"
    return None


def last_uses(program: Sequence[Instruction]) -> list[set[str]]:
    """Return for each instruction the names that no later one uses."""
    seen: set[str] = set()
    found = []
    for instruction in reversed(program):
        found.append({*names_in(instruction.inputs), *(instruction.outputs or ())} - seen)
        seen |= found[-1]
    return found[::-1]


def number_of(name: str) -> int:
    """Return the number of the id that a placeholder stands for."""
    return int(name[1:])
