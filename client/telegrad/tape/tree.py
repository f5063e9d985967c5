"""The tree of what a session has recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad_engine.lru import LRU
from telegrad_engine.program.template import Structures

from .node import Node
from .segment import Segment

MAX_NODES = 20_000
"""The most nodes that a session keeps. Beyond that, it keeps half as many: the paths used last."""
ONCE = 512
"""How many templates that were recorded once are remembered: as many as a server remembers."""
DIGITS = 12
"""How many digits of a digest are shown in reports."""


class Tree:
    """The nodes of one session."""

    def __init__(self) -> None:
        self.root = Node()
        self._structures = Structures()
        self.nodes = 0
        self._segments = 0
        self._once: LRU[str, None] = LRU(ONCE)
        """The digests of templates that were recorded once; most are never recorded again."""
        self._newest: Node | None = None
        """The last node of the newest segment that was recorded for the first time."""

    def begin(self, watched: bool = False) -> Segment:
        """Begin an empty segment; with ``watched``, each instruction is recorded one by one."""
        if self.nodes > MAX_NODES:
            self._evict()
        return Segment(self.root, self._structures, watched)

    def note(self, segment: Segment) -> None:
        """Note a segment that has ended. Its new nodes join the tree when it is recorded for the second time."""
        self._segments += 1
        known, first = segment.known, segment.first_new
        known.used = self._segments
        if first is None:
            return
        digest = known.template.digest
        if digest not in self._once:
            self._once[digest], self._newest = None, segment.last
            return
        known.sent = True
        for node in segment.last.path(first):
            assert node.before is not None, "it follows another"
            node.before.adopt(node)
            self.nodes += 1

    def unsent(self, segments: Sequence[Segment]) -> set[str]:
        """Return the digests of the templates that these segments send for the first time, and mark them as sent."""
        new = [segment.known for segment in segments if not segment.known.sent]
        for known in new:
            known.sent = True
        return {known.template.digest for known in new}

    def _evict(self) -> None:
        ends = [node for node in _all(self.root) if node.template is not None]
        kept: set[Node] = set()
        for end in sorted(ends, key=lambda node: -node.template.used):  # type: ignore[union-attr]
            if len(kept) > MAX_NODES // 2:
                break
            kept.update(end.path())
        for node in [self.root, *kept]:
            node.keep(kept)
        self.nodes = len(kept)

    def misses(self) -> list[dict[str, Any]]:
        """A report on the newest segment, with the instruction by which it differs from known segments."""
        last = self._newest
        if last is None:
            return []
        reason = "it was sent for the first time" + _explained(last)
        return [{"digest": None, "instructions": last.index, "runs": 1, "planned_runs": 0, "reason": reason}]


def _explained(last: Node) -> str:
    """Describe where a path left the known paths."""
    for node in last.path()[::-1]:
        before = node.before
        assert before is not None, "it follows another"
        known = [child for child in before.children if child is not node]
        if known:
            return f"; unlike {_named(known[0])}, {_difference(node, known[0])}"
        if before.template is not None and before.index:
            return f"; {_named(before)} ends before instruction {before.index}, {node.op}"
    for node in _all(last):
        if node is not last and node.template is not None:
            return f"; unlike {_named(node)}, it ends before instruction {last.index}, {(last.next or node).op}"
    return ""


def _named(node: Node) -> str:
    """Name a program that a node is part of."""
    end = next((each for each in _all(node) if each.template is not None), None)
    return "another one" if end is None else f"program {end.ends().template.digest[:DIGITS]}"


def _difference(node: Node, other: Node) -> str:
    index = node.index - 1
    if node.op != other.op:
        return f"instruction {index} is {node.op}, and not {other.op}"
    own, others = _attrs(node), _attrs(other)
    if own != others:
        return f"instruction {index}, {node.op}, has {own or 'no settings'}, and not {others or 'none'}"
    if node.mode != other.mode:
        return f"instruction {index}, {node.op}, is recorded in another grad mode"
    return f"instruction {index}, {node.op}, takes other tensors"


def _attrs(node: Node) -> str:
    return "" if node.key is None else node.key[3].partition("\n")[0]


def _all(root: Node) -> list[Node]:
    """A node and all its descendants, the nearest first."""
    found = [root]
    for node in found:
        found += node.children
    return found
