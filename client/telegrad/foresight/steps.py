"""One instruction of a message that recurs: how the next time is told to be the same, and what may come behind it.

Ids have numbers here, their places: in the order in which they first appear in the message, as it is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from telegrad_engine.program import Instruction
from telegrad_engine.program.canonical import Known
from telegrad_engine.program.data import TAKES_DATA
from telegrad_engine.registry import NO_ATTRS

from ..lines import Line
from .calls import Call, Going, placed
from .drawing import Opening
from .numbers import Numbers, OwnNumbers, numbers_of
from .undrawn import Passes

EVERY = 8
"""Of so many calls one asks whether the message is old: to ask takes as long as to recognize a tensor."""
Pattern = tuple[Any, ...]
"""An instruction's inputs: a place for an id, a Literal, a pattern for a list."""


class Step:
    """An instruction that comes after others, and what came after it in one message or another."""

    __slots__ = (
        "attrs", "before", "call", "depth", "endings", "front", "go_on", "index", "inputs", "line",
        "looks_at_the_clock", "mode", "next", "numbers", "op", "opening", "outputs", "passes", "sibling", "text",
        "width",
    )  # fmt: skip

    def __init__(self, op: str = "", attrs: Mapping[str, Any] = NO_ATTRS, mode: str | None = None) -> None:
        """Without an op, where every message begins."""
        self.op, self.mode = op, mode
        self.attrs = lasting(op, attrs)
        self.text = repr(self.attrs)
        """The attributes, as they are compared."""
        self.numbers = Numbers("", ())
        """Those that may be others the next time."""
        self.inputs: Pattern = ()
        self.outputs: tuple[int, ...] = ()
        self.before: Step | None = None
        self.index = self.width = 0
        """How many instructions there are up to it, and how many places."""
        self.call: Call | None = None
        self.front: Callable[..., Any] | None = None
        """What was called; ``go_on`` and ``depth`` are that call's, too."""
        self.go_on: Going = _never
        self.depth = 0
        self.line: Line | None = None
        self.looks_at_the_clock = False
        self.next: Step | None = None
        """What came behind it."""
        self.sibling: Step | None = None
        """What came in its place at other times."""
        self.endings: list[Ending] = []
        self.opening: Opening | None = None
        """What is new to a drawing here."""
        self.passes: Passes = {}
        """Of plain passes behind it."""

    @classmethod
    def of(cls, before: Step, instruction: Instruction, call: Call | None, places: dict[str, int]) -> Step:
        """The step of an instruction behind another; ``places`` are those of the ids so far, and get its own."""
        step = cls(instruction.op, instruction.attrs, instruction.grad_mode)
        step.numbers = numbers_of(step.op, instruction.inputs, step.attrs)
        step.inputs = _pattern(instruction.inputs, places)
        step.outputs = tuple([placed(name, places) for name in instruction.outputs])
        step.before, step.index, step.width = before, before.index + 1, len(places)
        step.looks_at_the_clock = step.index % EVERY == 0
        if call is not None:
            step.call, step.front, step.go_on, step.depth = call, call.front, call.go_on, call.depth
        return step

    def is_of(self, op: str, mode: str | None, outputs: int) -> bool:
        """Whether it may be that of an instruction that no call recorded."""
        return self.op == op and self.call is None and self.mode == mode and len(self.outputs) == outputs

    def has(self, attrs: Mapping[str, Any]) -> bool:
        """Whether an instruction with these attributes has the numbers of last time among them."""
        return attrs is self.attrs or repr(attrs) == self.text

    def changed(self, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> OwnNumbers | None:
        """What an instruction has of its own that differs from this one in its numbers alone; None if it does not."""
        if not self.numbers.operands:
            return None
        template, operands = numbers_of(self.op, inputs, attrs)
        return OwnNumbers(inputs, attrs, operands) if template == self.numbers.template else None

    def is_like(self, other: Step) -> bool:
        """Whether two steps behind the same one are of one instruction, which was recorded in one way."""
        return self._facts() == other._facts()

    def _facts(self) -> tuple[Any, ...]:
        call = self.call and self.call.facts
        return self.op, self.mode, self.numbers.template, _shape(self.inputs), self.outputs, call

    @property
    def following(self) -> Iterator[Step]:
        """All that came behind it."""
        step = self.next
        while step is not None:
            yield step
            step = step.sibling

    def path(self, first: Step | None = None) -> list[Step]:
        """The steps up to this one, from the beginning or from one of them."""
        steps: list[Step] = []
        step: Step | None = self
        while step is not None and step.before is not None:
            steps.append(step)
            step = None if step is first else step.before
        return steps[::-1]

    def instruction(self, names: Sequence[str], arrays: Mapping[int, Any], changed: OwnNumbers | None) -> Instruction:
        """The instruction with ids, by their places, with what it uploads, and with its own numbers."""
        inputs, attrs = _named(self.inputs, names), self.attrs
        if changed is not None:
            attrs = changed.attrs
            own = zip(self.inputs, inputs, changed.inputs, strict=True)
            inputs = tuple([new if type(expected) is Literal else x for expected, x, new in own])
        if self.op in TAKES_DATA:
            attrs = {**attrs, "data": arrays[self.index]}
        return Instruction(self.op, inputs, [names[place] for place in self.outputs], attrs, self.mode, True)

    def __repr__(self) -> str:
        return f"<step {self.index}: {self.outputs} = {self.op}{self.inputs} {self.text}>"


class Ending(NamedTuple):
    """How a message ended that went as far as some step: as a program that the server remembers."""

    dead: list[int]
    """The places of the tensors that died in its time, in that order; those that were not used in it behind them."""
    known: Known
    ids: tuple[int, ...]
    """The program's ids, by their places."""
    arrays: tuple[tuple[str, int], ...]
    """What the program calls the arrays that it uploads, and the indices of the steps that do."""
    numbered: tuple[Step, ...]
    """The steps with operands, in the order in which the program takes them."""


def _never(*_: Any) -> None:
    """What goes on with a call where an instruction is due that no call recorded."""


def lasting(op: str, attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The attributes without the array among them: of what kind that is matters to the calls that use it alone."""
    return {name: value for name, value in attrs.items() if name != "data"} if op in TAKES_DATA else attrs


def _pattern(values: Sequence[Any], places: dict[str, int]) -> Pattern:
    return tuple(
        [
            placed(x, places) if type(x) is str else _pattern(x, places) if isinstance(x, (tuple, list)) else Literal(x)
            for x in values
        ]
    )


class Literal:
    """A number, a bool or None among the inputs."""

    __slots__ = ("text", "value")

    def __init__(self, value: Any) -> None:
        self.value, self.text = value, repr(value)

    def __repr__(self) -> str:
        return f"={self.text}"


def matched(values: Sequence[Any], pattern: Pattern, places: dict[str, int], numbers: bool = True) -> bool:
    """Whether inputs are like those of a step; gives the ids that are new their places, whatever comes of it.

    With ``numbers`` false, the constants among the inputs are not compared.
    """
    if len(values) != len(pattern):
        return False
    for x, expected in zip(values, pattern, strict=True):
        if type(expected) is int:
            if type(x) is not str or placed(x, places) != expected:
                return False
        elif type(expected) is Literal:
            if numbers and x is not expected.value and repr(x) != expected.text:
                return False
        elif not isinstance(x, (tuple, list)) or not matched(x, expected, places):
            return False
    return True


def _shape(pattern: Pattern) -> tuple[Any, ...]:
    """The inputs of a step without the constants among them, which its template has."""
    return tuple([None if type(x) is Literal else x if type(x) is int else repr(x) for x in pattern])


def places_of(dead: Sequence[str], places: Mapping[str, int]) -> list[int]:
    """The places of tensors that have died; those that have none get the next ones."""
    found = [*map(places.get, dead)]
    if None not in found:
        return found  # type: ignore[return-value]
    new = count(len(places))
    return [next(new) if place is None else place for place in found]


def _named(pattern: Pattern, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple([names[x] if type(x) is int else x.value if type(x) is Literal else _named(x, names) for x in pattern])
