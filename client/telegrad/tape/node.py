"""A node of the tape: an instruction after others that was recorded before, with slots in place of ids."""

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
from telegrad_engine.schema.op import NO_ATTRS, Op

from ..call_site import Line

CLOCK = 8
"""One in this many instructions checks the message's age, because a check takes as long as recognizing a tensor."""
MAX_SHORTCUTS = 8
"""The most shortcuts that a node keeps: those used last."""
TRIES = 8
"""A node learns a shortcut from each of its first calls, up to this many; after that, from one call in this many."""
Pattern = tuple[Any, ...]
"""An instruction's inputs: slots for ids, Literals for constants, patterns for lists."""
Key = tuple[str, str | None, Any, str, int]
"""What tells a node from its siblings: op, grad mode, the structure of inputs and attributes, number of outputs."""


Record = Callable[[Sequence[Any], Mapping[str, Any], Any, Any, "Node"], Any]
"""Records a call, given the arguments, a recorder, its segment and the next node. Returns the result, or None if it is
another call."""


class Own(NamedTuple):
    """The numbers of an instruction, if they differ from its node's."""

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
    """Records a node's instruction for one function, on tensors of certain kinds."""

    __slots__ = ("depth", "function", "op", "record")

    def __init__(self, function: Callable[..., Any], record: Record, op: Op) -> None:
        self.function, self.record, self.op = function, record, op
        self.depth = 1
        """How many frames up the stack the user's line is."""


class Jump(NamedTuple):
    """Where a replay (:mod:`.replay`) leads from one node, for tensors in certain slots."""

    end: Node
    new: tuple[int, ...]
    """The indices of the ids that get new slots, in the order of the slots."""
    own: Mapping[int, Own]
    """The numbers that differ from the nodes', by node index."""
    lines: Mapping[int, Line | None]
    """The user's lines that differ from the nodes', by node index."""
    dropped: tuple[int, ...]
    """The slots of tensors that are not used afterwards."""


class Node:
    """An instruction, linked to the one before it and to those that came after it."""

    __slots__ = (
        "_children", "_repr", "_text", "attrs", "before", "calls", "first_operand", "function", "index", "inputs",
        "jumps", "key", "line", "looks_at_clock", "mode", "next", "op", "operands", "outputs", "passes", "shortcut",
        "shortcuts", "template", "width",
    )  # fmt: skip

    def __init__(self) -> None:
        """Make a root, before the first instruction."""
        self.op = ""
        self.mode: str | None = None
        self.key: Key | None = None
        self.attrs: Mapping[str, Any] = NO_ATTRS
        self.inputs: Pattern = ()
        self.outputs: tuple[int, ...] = ()
        self.operands: Sequence[float] = ()
        self.before: Node | None = None
        self.index = self.width = self.first_operand = 0
        """The number of instructions up to it, of slots after it, and of operands before it."""
        self.line: Line | None = None
        self.looks_at_clock = False
        self.next: Node | None = None
        """The node that came after it last."""
        self.function: Callable[..., Any] | None = None
        self.shortcut: Shortcut | None = None
        """The function and the shortcut that are tried first."""
        self.shortcuts: Sequence[Shortcut] = ()
        self.calls = 0
        """How often it was recorded without a shortcut although it was known."""
        self.template: KnownTemplate | None = None
        """The template of the segment that ends here."""
        self.passes: dict[Any, Any] | None = None
        """The slots of the leaves that backward passes reach from here (:mod:`.lazy_graph`)."""
        self.jumps: LRU[tuple[int, ...], Jump] | None = None
        """Where replays lead from here, by the replay's number and the slots of the tensors from outside."""
        self._children: dict[Key, Node] | None = None
        """The nodes that came after it, if there were several."""
        self._text: str | None = None
        self._repr: str | None = None

    @property
    def children(self) -> Collection[Node]:
        """All nodes that have come after it, in the order in which they were first recorded."""
        if self._children is not None:
            return self._children.values()
        return () if self.next is None else (self.next,)

    def find(self, key: Key) -> Node | None:
        """Return the child with this key, or None."""
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
        """Make a node for an instruction that comes after this one for the first time. It is not in the tree yet."""
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
        """Add a node that follows this one to the children."""
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
        """Whether an instruction is this one again, with the same numbers. New ids get the next slots."""
        if self.op != op or self.mode != mode or len(self.outputs) != outputs:
            return False
        if attrs is not self.attrs:
            if self._repr is None:
                self._repr = repr(self.attrs)
            if repr(attrs) != self._repr:
                return False
        return _matches(inputs, self.inputs, slots)

    def path(self, first: Node | None = None) -> list[Node]:
        """The nodes up to this one, from ``first`` or from the start of the segment."""
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
            if self._is_plain:  # as nearly all are: a faster way
                inputs, outputs = '","_'.join(map(str, self.inputs)), '","_'.join(map(str, self.outputs))
                self._text = f'{{"op":"{self.op}","inputs":["_{inputs}"],"outputs":["_{outputs}"]}}'
                return self._text
            self._text = instruction_text(self.instruction(stand_ins(self.width)), self.first_operand)
        return self._text

    @property
    def _is_plain(self) -> bool:
        """Whether it has only ids: no constants, attributes or grad mode."""
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
    """A segment's template, and the nodes that have its numbers and uploads."""

    __slots__ = ("numbered", "sent", "template", "uploads", "used")

    def __init__(self, path: Sequence[Node]) -> None:
        self.template: Template = template_of([node.text for node in path])
        self.numbered = tuple([node for node in path if node.operands])
        """The nodes with operands."""
        self.uploads = tuple(
            [(stand_in((node.outputs or node.inputs)[0]), node.index) for node in path if node.op in TAKES_DATA]
        )
        """The template's names of the uploaded arrays, and the indices of the nodes that upload them."""
        self.sent = False
        """Whether it has been sent to the server."""
        self.used = 0
        """The number of the last segment that had it."""


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
    """Fill a pattern: ids in place of slots, values in place of literals."""
    return tuple([names[x] if type(x) is int else x.value if type(x) is Literal else named(x, names) for x in pattern])
