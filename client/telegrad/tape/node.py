"""One instruction after others, as it was recorded before: with slots in place of ids."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import Any, NamedTuple

from telegrad_engine.lru import LRU
from telegrad_engine.program import Instruction
from telegrad_engine.program.template import (
    TAKES_DATA,
    Structure,
    Template,
    instruction_text,
    stand_in,
    stand_ins,
    template_of,
)
from telegrad_engine.schema.op import NO_ATTRS

from ..call_site import Line

CLOCK = 8
"""One in this many instructions checks the age of the message: a check takes as long as recognizing a tensor."""
MAX_SHORTCUTS = 8
"""How many shortcuts a node keeps: those used last."""
TRIES = 8
"""A node learns a shortcut from each of its first calls, up to this many; after that, from one call in this many."""
Pattern = tuple[Any, ...]
"""An instruction's inputs: a slot for an id, a Literal, a pattern for a list."""
Key = tuple[str, str | None, Any, str, int]
"""What tells a node from its siblings: op, grad mode, the structure of inputs and attributes, number of outputs."""


Record = Callable[[Sequence[Any], Mapping[str, Any], Any, Any, "Node"], Any]
"""Of arguments, a recorder, its segment and the node that is due: the result, recorded; None if it is another call."""


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


class Shortcut:
    """How one function recorded a node's instruction, for tensors of certain kinds."""

    __slots__ = ("depth", "function", "record")

    def __init__(self, function: Callable[..., Any], record: Record) -> None:
        self.function, self.record = function, record
        self.depth = 1
        """How far up the stack the user's line is."""


class Jump(NamedTuple):
    """Where a replay (:mod:`.replay`) leads from one node, for tensors in certain slots."""

    end: Node
    new: tuple[int, ...]
    """The places of the ids that get the next slots, in the order of these."""
    own: Mapping[int, Own]
    """The numbers that are not those of the nodes, by the indices of these."""
    lines: Mapping[int, Line | None]
    """The user's lines where they are not those of the nodes."""
    dropped: tuple[int, ...]
    """The slots of what is not used afterwards."""


class Node:
    """An instruction that comes after others, and what came after it."""

    __slots__ = (
        "_children", "_repr", "_text", "attrs", "before", "calls", "first_operand", "function", "index", "inputs",
        "jumps", "key", "line", "looks_at_clock", "mode", "next", "op", "operands", "outputs", "passes", "shortcut",
        "shortcuts", "template", "width",
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
        self.next: Node | None = None
        """What came after it last."""
        self.function: Callable[..., Any] | None = None
        self.shortcut: Shortcut | None = None
        """What recorded it last by a shortcut, and that shortcut."""
        self.shortcuts: Sequence[Shortcut] = ()
        self.calls = 0
        """How often it was recorded without one, though it was known."""
        self.template: KnownTemplate | None = None
        """Of the segment that ends here."""
        self.passes: dict[Any, Any] | None = None
        """What backward passes reached here (:mod:`.lazy_graph`)."""
        self.jumps: LRU[tuple[int, ...], Jump] | None = None
        """Where replays lead from here, by the replay's number and the slots of the tensors that it takes."""
        self._children: dict[Key, Node] | None = None
        """What came after it, where that were several."""
        self._text: str | None = None
        self._repr: str | None = None

    @property
    def children(self) -> Collection[Node]:
        """What came after it at one time or another; what came first for the first time comes first."""
        if self._children is not None:
            return self._children.values()
        return () if self.next is None else (self.next,)

    def find(self, key: Key) -> Node | None:
        """The child of this key."""
        if self._children is not None:
            return self._children.get(key)
        return self.next if self.next is not None and self.next.key == key else None

    def keep(self, nodes: Container[Node]) -> None:
        """Forget the children that are not among these."""
        kept = [node for node in self.children if node in nodes]
        self.jumps = None
        if self.next not in kept:
            self.next = kept[-1] if kept else None
        self._children = {node.key: node for node in kept} if len(kept) > 1 else None  # type: ignore[misc]

    def following(
        self,
        key: Key,
        inputs: Sequence[Any],
        attrs: Mapping[str, Any],
        structure: Structure,
        outputs: Sequence[int],
        width: int,
        line: Line | None,
    ) -> Node:
        """A node for an instruction that came after this one for the first time; the tree does not have it yet."""
        node = Node()
        node.op, node.key, node.before, node.line = key[0], key, self, line
        node.index, node.width = self.index + 1, width
        node.outputs = tuple(outputs)
        node.inputs = _pattern(inputs, structure.inputs)
        if key[1] is not None:
            node.mode = key[1]
        if attrs:
            node.attrs = attrs
        if structure.operands:
            node.operands = structure.operands
        if self.first_operand or self.operands:
            node.first_operand = self.first_operand + len(self.operands)
        if not node.index % CLOCK:
            node.looks_at_clock = True
        return node

    def adopt(self, node: Node) -> None:
        """Have a node that follows this one as a child."""
        if self.next is not None:
            if self._children is None:
                self._children = {self.next.key: self.next}  # type: ignore[dict-item]
            self._children[node.key] = node  # type: ignore[index]
        self.next = node

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
        inputs, attrs = named(self.inputs, names), self.attrs
        if own is not None:
            attrs = own.attrs
            own_inputs = zip(self.inputs, inputs, own.inputs, strict=True)
            inputs = tuple([new if type(expected) is Literal else x for expected, x, new in own_inputs])
        if self.op in TAKES_DATA and array is not None:
            attrs = {**attrs, "data": array}
        return Instruction(self.op, inputs, [names[slot] for slot in self.outputs], attrs, self.mode, True)

    @property
    def text(self) -> str:
        """The instruction as part of a template, as :func:`instruction_text` writes it."""
        if self._text is None:
            if self._is_plain:  # as nearly all are: written with less ado
                inputs, outputs = '","_'.join(map(str, self.inputs)), '","_'.join(map(str, self.outputs))
                self._text = f'{{"op":"{self.op}","in":["_{inputs}"],"out":["_{outputs}"]}}'
                return self._text
            self._text = instruction_text(self.instruction(stand_ins(self.width)), self.first_operand)
        return self._text

    @property
    def _is_plain(self) -> bool:
        """Whether it has nothing but ids."""
        if self.attrs or self.mode is not None or not self.inputs or not self.outputs:
            return False
        return all(type(x) is int for x in self.inputs)

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


def _pattern(values: Sequence[Any], structure: tuple[Any, ...]) -> Pattern:
    for x in structure:
        if type(x) is not int:
            break
    else:
        return structure
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


def named(pattern: Pattern, names: Sequence[str]) -> tuple[Any, ...]:
    """A pattern with ids in place of slots, and with the values of its literals."""
    return tuple([names[x] if type(x) is int else x.value if type(x) is Literal else named(x, names) for x in pattern])
