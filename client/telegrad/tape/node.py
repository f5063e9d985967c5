"""One instruction after others, as it was recorded before: with slots in place of ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from telegrad_engine.program import Instruction
from telegrad_engine.program.data import TAKES_DATA
from telegrad_engine.program.template import Structure, Template, instruction_text, stand_in, template_of
from telegrad_engine.registry import NO_ATTRS

from ..lines import Line

if TYPE_CHECKING:
    from .shortcut import Shortcut

CLOCK = 8
"""Of so many instructions one asks whether the message is old: to ask takes as long as to recognize a tensor."""
MAX_SHORTCUTS = 8
"""How many a node keeps: those used last."""
TRIES = 8
"""After so many shortcuts were made, only one of as many more calls makes another."""
Pattern = tuple[Any, ...]
"""An instruction's inputs: a slot for an id, a Literal, a pattern for a list."""
Key = tuple[str, str | None, Any, str, int]
"""What tells a node from its siblings: op, grad mode, the structure of inputs and attributes, number of outputs."""


class Own(NamedTuple):
    """The numbers of an instruction that are not its node's."""

    inputs: Sequence[Any]
    """The inputs, of which only the constants are used."""
    attrs: Mapping[str, Any]
    operands: Sequence[float]


class Literal:
    """A number, a bool or None among the inputs."""

    __slots__ = ("text", "value")

    def __init__(self, value: Any) -> None:
        self.value, self.text = value, repr(value)

    def __repr__(self) -> str:
        return f"={self.text}"


class Node:
    """An instruction that comes after others, and what came after it."""

    __slots__ = (
        "_repr", "_text", "attrs", "before", "calls", "children", "first_operand", "function", "index", "inputs", "key",
        "line", "looks_at_clock", "mode", "next", "op", "operands", "outputs", "passes", "shortcuts", "template",
        "width",
    )  # fmt: skip

    def __init__(self) -> None:
        """The root: nothing is recorded yet."""
        self.op = ""
        self.mode: str | None = None
        self.key: Key | None = None
        self.attrs: Mapping[str, Any] = NO_ATTRS
        self.inputs: Pattern = ()
        self.outputs: tuple[int, ...] = ()
        self.operands: Sequence[float] = ()
        self.before: Node | None = None
        self.index = self.width = self.first_operand = 0
        """How many instructions, slots and operands there are: up to it, after it, and before it."""
        self.line: Line | None = None
        self.looks_at_clock = False
        self._text: str | None = None
        self._repr: str | None = None
        self.children: dict[Key, Node] = {}
        self.next: Node | None = None
        """The child that came last."""
        self.function: Callable[..., Any] | None = None
        """What recorded it last by a shortcut; ``shortcuts[0]`` is that."""
        self.shortcuts: list[Shortcut] = []
        self.calls = 0
        """How often it was recorded without one, though it was known."""
        self.template: KnownTemplate | None = None
        """Of the segment that ends here."""
        self.passes: dict[Any, Any] = {}
        """What backward passes reached here (:mod:`.lazy_graph`)."""

    def child(
        self,
        key: Key,
        inputs: Sequence[Any],
        attrs: Mapping[str, Any],
        structure: Structure,
        outputs: Sequence[int],
        width: int,
        line: Line | None,
    ) -> Node:
        """A new node for an instruction that comes after this one."""
        node = Node()
        node.op, node.mode, node.key, node.attrs = key[0], key[1], key, attrs
        node.inputs = (
            structure.inputs if all(type(x) is int for x in structure.inputs) else _pattern(inputs, structure.inputs)
        )
        node.outputs, node.operands = tuple(outputs), structure.operands
        node.before, node.index, node.width, node.line = self, self.index + 1, width, line
        node.first_operand = self.first_operand + len(self.operands)
        node.looks_at_clock = node.index % CLOCK == 0
        self.children[key] = node
        return node

    def matches(
        self,
        op: str,
        inputs: Sequence[Any],
        attrs: Mapping[str, Any],
        mode: str | None,
        outputs: int,
        slots: dict[str, int],
    ) -> bool:
        """Whether an instruction is this one again, with the same numbers. Ids that are new get the next slots."""
        if self.op != op or self.mode != mode or len(self.outputs) != outputs:
            return False
        if attrs is not self.attrs:
            if self._repr is None:
                self._repr = repr(self.attrs)
            if repr(attrs) != self._repr:
                return False
        return _matches(inputs, self.inputs, slots)

    def path(self, first: Node | None = None) -> list[Node]:
        """The nodes up to this one, from the first of a segment or from one of them."""
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None and node.before is not None:
            nodes.append(node)
            node = None if node is first else node.before
        return nodes[::-1]

    def instruction(self, names: Sequence[str], array: Any = None, own: Own | None = None) -> Instruction:
        """The instruction on these ids, with the array that it uploads and with its own numbers."""
        inputs, attrs = _named(self.inputs, names), self.attrs
        if own is not None:
            attrs = own.attrs
            own_inputs = zip(self.inputs, inputs, own.inputs, strict=True)
            inputs = tuple([new if type(expected) is Literal else x for expected, x, new in own_inputs])
        if self.op in TAKES_DATA and array is not None:
            attrs = {**attrs, "data": array}
        return Instruction(self.op, inputs, [names[slot] for slot in self.outputs], attrs, self.mode, True)

    @property
    def text(self) -> str:
        """The instruction as part of a template."""
        if self._text is None:
            names = [*map(stand_in, range(self.width))]
            self._text = instruction_text(self.instruction(names), self.first_operand)
        return self._text

    def ends(self) -> KnownTemplate:
        """The template of the segment that ends here."""
        if self.template is None:
            self.template = KnownTemplate(self.path())
        return self.template

    def __repr__(self) -> str:
        return f"<node {self.index}: {self.outputs} = {self.op}{self.inputs} {self.attrs}>"


class KnownTemplate:
    """A segment's template, and where its numbers and uploads are."""

    __slots__ = ("numbered", "sent", "template", "uploads", "used")

    def __init__(self, path: Sequence[Node]) -> None:
        self.template: Template = template_of([node.text for node in path])
        self.numbered = tuple([node for node in path if node.operands])
        """The nodes with operands."""
        self.uploads = tuple(
            [(stand_in((node.outputs or node.inputs)[0]), node.index) for node in path if node.op in TAKES_DATA]
        )
        """What the template calls the arrays that it uploads, and the indices of the nodes that do."""
        self.sent = False
        """Whether the server has read it."""
        self.used = 0
        """The number of the segment that had it last."""


def _pattern(values: Sequence[Any], structure: Sequence[Any]) -> Pattern:
    return tuple(
        [
            found if type(found) is int else _pattern(x, found) if type(found) is tuple else Literal(x)
            for x, found in zip(values, structure, strict=True)
        ]
    )


def _matches(values: Sequence[Any], pattern: Pattern, slots: dict[str, int]) -> bool:
    if len(values) != len(pattern):
        return False
    for x, expected in zip(values, pattern, strict=True):
        if type(expected) is int:
            if type(x) is not str or slots.setdefault(x, len(slots)) != expected:
                return False
        elif type(expected) is Literal:
            if x is not expected.value and repr(x) != expected.text:
                return False
        elif not isinstance(x, (tuple, list)) or not _matches(x, expected, slots):
            return False
    return True


def _named(pattern: Pattern, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple([names[x] if type(x) is int else x.value if type(x) is Literal else _named(x, names) for x in pattern])
