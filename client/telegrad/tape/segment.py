"""Segments: the instructions up to an optimizer step or a wait, as a path in the tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from telegrad_engine.context import observers, state
from telegrad_engine.lru import LRU
from telegrad_engine.program import Instruction
from telegrad_engine.program.template import TAKES_DATA, Ending, Structure, Structures
from telegrad_engine.program.wire import Call

from ..call_site import Line
from .effects import Effect
from .lazy_graph import Entry, LazyGraph, is_quiet
from .node import Jump, KnownTemplate, Node, Own, named
from .replay import NEW, Replay

MAX_JUMPS = 16
"""The most jumps that a node keeps: those used last."""

Written = tuple[list[Instruction], list[Line | None], list[Effect | None]]
"""Instructions, the user's line that recorded each, and its effect on the shadow graph."""


class Segment:
    """A cursor in a session's tree, with the ids, numbers, arrays and lines of the current recording."""

    __slots__ = (
        "_structures", "arrays", "dropped", "effects", "ending", "first_new", "last", "lazy", "lines", "next", "own",
        "slots", "watched",
    )  # fmt: skip

    def __init__(self, root: Node, structures: Structures, watched: bool = False) -> None:
        self._structures = structures
        self.last = root
        self.next = None if watched else root.next
        """The node that is expected next."""
        self.watched = watched
        """Whether each instruction must be recorded one by one; then no node is expected."""
        self.slots: dict[str, int] = {}
        self.arrays: dict[int, Any] = {}
        """The arrays that it uploads, by node index."""
        self.own: dict[int, Own] = {}
        """The numbers that differ from the nodes', by node index."""
        self.lines: dict[int, Line | None] = {}
        """The user's lines that differ from the nodes', by node index."""
        self.effects: dict[int, Effect] = {}
        """The effects on the shadow graph, by node index."""
        self.dropped: list[int] = []
        """The slots of tensors that replays created and that have no handle."""
        self.lazy: LazyGraph | None = None
        """The lazy graph of the last calls, as long as more calls may join it."""
        self.first_new: Node | None = None
        """The first node that is not in the tree, if there is one."""
        self.ending = Ending()

    def __len__(self) -> int:
        return self.last.index

    def follow(
        self,
        op: str,
        inputs: Sequence[Any],
        outputs: Sequence[str],
        attrs: Any,
        mode: str | None,
        line: Line | None,
        effect: Effect | None = None,
    ) -> None:
        """Add an instruction, recorded by this line of the user's, with its effect on the shadow graph."""
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
        if effect is not None:
            self.effects[node.index] = effect
        if not is_quiet(op, kept):
            self.lazy = None
        self.last, self.next = node, None if self.watched else node.next

    def replay(
        self,
        replay: Replay,
        ids: Sequence[str],
        attrs: Mapping[int, Mapping[str, Any]],
        effects: Mapping[int, Effect],
    ) -> None:
        """Add all instructions of a replay, on these ids.

        ``attrs`` holds the attributes whose numbers differ each time, and ``effects`` the effects of instructions on
        the shadow graph, both by the instruction's index in the replay.
        """
        self.go_back()
        slots, start, lazy = self.slots, self.last, self.lazy if replay.keeps_graph else None
        key = (replay.number, *[slots.get(name, NEW) for name in ids[: replay.taken]])
        jump = None
        if start.jumps is not None and self.first_new is None and not self.watched:
            jump = start.jumps.get(key)
        if jump is None:
            self._follow_all(replay, ids, attrs, key)
        else:
            slots.update(zip(map(ids.__getitem__, jump.new), range(start.width, jump.end.width), strict=True))
            self.own.update(jump.own)
            self.lines.update(jump.lines)
            self.dropped += jump.dropped
            for index, given in attrs.items():
                step = replay.steps[index]
                operands = self._structures.encode(step.op, given)[1]
                self.own[start.index + 1 + index] = Own(named(step.inputs, ids), given, operands)
            self.last, self.next = jump.end, jump.end.next
        self.lazy = lazy
        for index, effect in effects.items():
            self.effects[start.index + 1 + index] = effect

    def _follow_all(
        self, replay: Replay, ids: Sequence[str], attrs: Mapping[int, Mapping[str, Any]], key: tuple[int, ...]
    ) -> None:
        """Add the instructions of a replay one by one, and note where that leads if they are all in the tree."""
        start = self.last
        for instruction in replay.with_ids(ids, attrs):
            self.follow(*instruction)
        dropped = tuple([self.slots[ids[place]] for place in replay.dropped])
        self.dropped += dropped
        if self.first_new is not None or self.watched:
            return
        places = {name: place for place, name in enumerate(ids)}
        new = tuple([places[name] for name in [*self.slots][start.width :]])
        if start.jumps is None:
            start.jumps = LRU(MAX_JUMPS)
        later = range(start.index + 1, self.last.index + 1)
        start.jumps[key] = Jump(
            self.last,
            new,
            {index: self.own[index] for index in later if index in self.own},
            {index: self.lines[index] for index in later if index in self.lines},
            dropped,
        )

    def watch(self, watched: bool) -> None:
        """Set whether each instruction must be recorded one by one from now on."""
        self.watched, self.lazy = watched, None
        self.next = None if watched else self.last.next

    def structure(self, op: str, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Structure:
        """The structure of an instruction that may be added. New ids get the next slots."""
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
        """Find or make the node of an instruction other than the expected one."""
        last, slots = self.last, self.slots
        structure = self.structure(op, inputs, attrs)
        key = (op, mode, structure.inputs, structure.attrs, len(outputs))
        node = None if self.first_new is not None else last.find(key)
        if node is None:
            places = [slots.setdefault(name, len(slots)) for name in outputs]
            node = last.following(key, inputs, attrs, structure, places, len(slots), line)
            self.first_new = self.first_new or node
            return node
        if structure.operands:
            self.own[node.index] = Own(inputs, attrs, structure.operands)
        last.next = node
        return node

    def go_back(self) -> None:
        """Take back the slots that ids got since the last instruction."""
        slots, width = self.slots, self.last.width
        while len(slots) > width:
            slots.popitem()

    def graph_for(self, tensors: Sequence[Any], slots: Sequence[int]) -> LazyGraph | None:
        """The lazy graph that the last call, on these tensors, may join; None if its nodes must be made now."""
        if observers and state.observer is not None:
            self.lazy = None
            return None
        lazy = self.lazy
        if lazy is None:
            lazy = self.lazy = LazyGraph(self.slots, self.last)
        for tensor, slot in zip(tensors, slots, strict=True):
            if not lazy.takes(tensor, slot):
                self.lazy = None
                return None
        return lazy

    def join(self, entry: Entry, tensors: Sequence[Any], outputs: Sequence[Any], before: LazyGraph | None) -> None:
        """Add a call that was just recorded to the graph: later if possible, and else now.

        ``before`` is the lazy graph that it may join, if it belongs to this segment.
        """
        slots = self.slots
        self.lazy = before if before is not None and before.slots is slots else None
        taken = [slots.get(tensor._id, NEW) for tensor in tensors]
        lazy = None
        if NEW not in taken and not any(output._version_counter[0] for output in outputs):
            lazy = self.graph_for(tensors, taken)
        if lazy is None:
            entry.enter(tensors, outputs, None)
        else:
            lazy.add(entry, self.last, taken, [slots[output._id] for output in outputs], outputs)

    # Ending ---------------------------------------------------------------------------------------

    def end(self, dead: Sequence[str], fetch: Sequence[str] = (), values: bool = True) -> list[str]:
        """End the segment: fetch tensors and free the dead ones. Return the dead ids that the segment does not have."""
        slots = self.slots
        fetched = tuple([slots.setdefault(name, len(slots)) for name in fetch])
        freed = sorted([*self.dropped, *[slots[name] for name in dead if name in slots]])
        self.ending = Ending(fetched, values, tuple(freed))
        self.lazy = self.next = None
        return [name for name in dead if name not in slots]

    @property
    def known(self) -> KnownTemplate:
        """The segment's template."""
        return self.last.ends()

    def call(self) -> Call:
        """The segment as a message carries it."""
        known, arrays, own = self.known, self.arrays, self.own
        operands = [x for node in known.numbered for x in own.get(node.index, node).operands]
        return Call(
            known.template, [*self.slots], operands, {name: arrays[index] for name, index in known.uploads}, self.ending
        )

    def written(self) -> Written:
        """The instructions, including the final fetch and free, with the users' lines and effects."""
        names, path, (fetch, values, free) = [*self.slots], self.last.path(), self.ending
        program = [node.instruction(names, self.arrays.get(node.index), self.own.get(node.index)) for node in path]
        lines = [self.lines.get(node.index, node.line) for node in path]
        effects = [self.effects.get(node.index) for node in path]
        for op, slots, attrs in (("fetch", fetch, {"values": values}), ("free", free, {})):
            if slots:
                program.append(Instruction(op, [tuple([names[slot] for slot in slots])], (), attrs, None, True))
                lines.append(None)
                effects.append(None)
        return program, lines, effects
