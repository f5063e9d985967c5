"""What is being recorded, up to an optimizer's step or until a value is waited for: a path in the tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from telegrad_engine.modes import observers, state
from telegrad_engine.program import Instruction
from telegrad_engine.program.data import TAKES_DATA
from telegrad_engine.program.message import Call
from telegrad_engine.program.template import Ending, Structure, Structures

from ..call_site import Line
from .effects import bare
from .lazy_graph import SegmentGraph, is_quiet
from .node import KnownTemplate, Node, Own

Written = tuple[list[Instruction], list[Line | None]]
"""Instructions, and the user's line that recorded each."""


class Segment:
    """A cursor in a session's tree, and the ids, numbers, arrays and lines of this time."""

    __slots__ = (
        "_structures", "arrays", "ending", "first_new", "last", "lazy", "lines", "next", "own", "slots", "watched",
    )  # fmt: skip

    def __init__(self, root: Node, structures: Structures, watched: bool = False) -> None:
        self._structures = structures
        self.last = root
        self.next = None if watched else root.next
        """What is most likely to come."""
        self.watched = watched
        """Whether each instruction is to be recorded one by one: then nothing is likely."""
        self.slots: dict[str, int] = {}
        self.arrays: dict[int, Any] = {}
        """What it uploads, by the index of the node that does."""
        self.own: dict[int, Own] = {}
        """The numbers that are not those of the nodes, by the indices of these."""
        self.lines: dict[int, Line | None] = {}
        """The user's lines where they are not those of the nodes."""
        self.lazy: SegmentGraph | None = None
        """The graph of the last calls, as long as more may join it."""
        self.first_new: Node | None = None
        """Where it left the tree."""
        self.ending = Ending()

    def __len__(self) -> int:
        return self.last.index

    def follow(
        self, op: str, inputs: Sequence[Any], outputs: Sequence[str], attrs: Any, mode: str | None, line: Line | None
    ) -> None:
        """Go on with an instruction."""
        kept = {name: value for name, value in attrs.items() if name != "data"} if op in TAKES_DATA else attrs
        node, slots = self.next, self.slots
        if node is None or not node.matches(op, inputs, kept, mode, len(outputs), slots):
            self.go_back()
            node = self._other(op, inputs, outputs, kept, mode, line)
        for name in outputs:
            slots.setdefault(name, len(slots))
        if kept is not attrs:
            self.arrays[node.index] = attrs["data"]
        if line != node.line:
            self.lines[node.index] = line
        if not is_quiet(op, kept):
            self.lazy = None
        self.last, self.next = node, None if self.watched else node.next

    def watch(self, watched: bool) -> None:
        """Have each instruction recorded one by one from now on, or no more."""
        self.watched, self.lazy = watched, None
        self.next = None if watched else self.last.next

    def structure(self, op: str, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Structure:
        """The structure of an instruction that may come. Ids that are new get the next slots."""
        return self._structures.of(op, inputs, attrs, self.slots)

    def _other(
        self,
        op: str,
        inputs: Sequence[Any],
        outputs: Sequence[str],
        attrs: Mapping[str, Any],
        mode: str | None,
        line: Line | None,
    ) -> Node:
        """The node of an instruction that is not the one that came last time."""
        last, slots = self.last, self.slots
        structure = self.structure(op, inputs, attrs)
        key = (op, mode, structure.inputs, structure.attrs, len(outputs))
        node = None if self.first_new is not None else last.find(key)
        if node is None:
            places = [slots.setdefault(name, len(slots)) for name in outputs]
            node = last.following(key, inputs, attrs, structure, places, len(slots), bare(line))
            self.first_new = self.first_new or node
            return node
        if structure.operands:
            self.own[node.index] = Own(inputs, attrs, structure.operands)
        last.next = node
        return node

    def go_back(self) -> None:
        """Forget the ids that were noted since the last instruction."""
        slots, width = self.slots, self.last.width
        while len(slots) > width:
            slots.popitem()

    def graph_for(self, node: Node, tensors: Sequence[Any], slots: Sequence[int]) -> SegmentGraph | None:
        """The lazy graph that a call on these tensors may join; None if it is to be in the graph now."""
        if observers and state.observer is not None:
            self.lazy = None
            return None
        lazy = self.lazy
        if lazy is None:
            lazy = self.lazy = SegmentGraph(self.slots, node)
        for tensor, slot in zip(tensors, slots, strict=True):
            if not lazy.takes(tensor, slot):
                self.lazy = None
                return None
        return lazy

    # Ending ---------------------------------------------------------------------------------------

    def end(self, dead: Sequence[str], fetch: Sequence[str] = (), values: bool = True) -> list[str]:
        """End it: it fetches these tensors and frees those that died. Those of the dead that it does not know."""
        slots = self.slots
        fetched = tuple([slots.setdefault(name, len(slots)) for name in fetch])
        freed = sorted([slots[name] for name in dead if name in slots])
        self.ending = Ending(fetched, values, tuple(freed))
        self.lazy = self.next = None
        return [name for name in dead if name not in slots]

    @property
    def known(self) -> KnownTemplate:
        """Its template."""
        return self.last.ends()

    def call(self) -> Call:
        """What is sent."""
        known, arrays, own = self.known, self.arrays, self.own
        operands = [x for node in known.numbered for x in own.get(node.index, node).operands]
        return Call(
            known.template, [*self.slots], operands, {name: arrays[index] for name, index in known.uploads}, self.ending
        )

    def written(self) -> Written:
        """The instructions, and the user's lines that recorded them."""
        names, path, (fetch, values, free) = [*self.slots], self.last.path(), self.ending
        program = [node.instruction(names, self.arrays.get(node.index), self.own.get(node.index)) for node in path]
        lines = [self.lines.get(node.index, node.line) for node in path]
        for op, slots, attrs in (("fetch", fetch, {"values": values}), ("free", free, {})):
            if slots:
                program.append(Instruction(op, [tuple([names[slot] for slot in slots])], (), attrs, None, True))
                lines.append(None)
        return program, lines
