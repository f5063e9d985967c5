"""Autograd graphs of handles that are built when they are looked at, which most training steps never do.

A node says where gradients go and what was saved; for a call that was recorded before, both are known. So such a call
only notes that it belongs to a lazy graph. Where one of its nodes is looked at, all of them are made, as they would
have been one by one. A plain backward pass over a lazy graph reaches the leaves that the first such pass reached, which
ran on nodes; the nodes, if they are ever made, are left as the pass would have left them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from telegrad_engine.graph.node import free, next_sequence, walk
from telegrad_engine.shapes import Spec
from telegrad_engine.tensor.abstract import Meta

from .node import Node, Own
from .shadow import ShadowValues

BETWEEN = 2.0**-20
"""How much younger each node of a lazy graph is than the one before, where others are younger by 1."""
QUIET = frozenset({"alias", "detach", "fetch", "free", "grad_of", "set_grad", "tensor"})
"""The verbs that neither look at what ops left in the graph nor change what they saved, whatever their attributes."""
Passes = dict[Any, tuple[int, ...]]
"""Of plain passes, the slots of the leaves that they reach."""


def is_quiet(op: str, attrs: Mapping[str, Any]) -> bool:
    """Whether a verb does not change a lazy graph."""
    return op in QUIET or (op == "zero_grad" and not attrs)  # which lets go of gradients, and changes none


class Input(NamedTuple):
    """A tensor that a lazy graph was given, in the state it had at that time."""

    leaf: Any
    """The tensor itself if it is a leaf that requires grad, otherwise None: no other tensor is kept alive."""
    data: Any
    version_counter: list[int]
    version: int


def as_input(tensor: Any) -> Input | None:
    """The present state of a tensor; None if it has a history."""
    if tensor._requires_grad and (tensor._base is not None or tensor._node is not None):
        return None
    cell = tensor._version_counter
    return Input(tensor if tensor._requires_grad else None, tensor._data, cell, cell[0])


def stand_in(given: Input) -> Meta:
    """The stand-in for an input in the graph; edges lead to the leaf itself."""
    leaf, data, cell, _ = given
    stands = Meta(data)
    stands._version_counter, stands._node, stands._requires_grad = cell, leaf, leaf is not None
    return stands


class LazyGraph:
    """Nodes between inputs and results. The results' handles have it as their ``_lazy``."""

    __slots__ = ("inputs", "nodes", "root")

    inputs: Mapping[int, Input]
    """By their slots."""

    def __init__(self) -> None:
        self.root: str | None = None
        """From where a pass went through it."""
        self.nodes: Mapping[str, Any] | None = None
        """Once they are made, the nodes of results, by their ids."""

    def build(self) -> Mapping[str, Any]:
        """Make the nodes, as old as they would be: those of results, by their ids."""
        raise NotImplementedError

    def pass_from(self, root: Any, inputs: Sequence[Any] | None) -> bool:
        """Go through it from a result of one element, as a plain pass would; false if that has to be run."""
        raise NotImplementedError

    def node(self, name: str) -> Any:
        """The node of a result; None for the id of anything else."""
        if self.nodes is None:
            nodes = self.build()
            if self.root is not None:
                for node in walk(nodes[self.root]):
                    if node.plan.holds_tensors:
                        free(node)
            self.nodes = nodes
        return self.nodes.get(name)

    @property
    def unchanged(self) -> bool:
        """Whether no pass went through it, and nothing was written to that it took."""
        return self.root is None and all(cell[0] == version for _, _, cell, version in self.inputs.values())

    def go_over(self, root: Any, key: Any, passes: Passes, inputs: Sequence[Any] | None) -> bool:
        """Do what a plain pass from this root does; false if it is not known, and then it is found out."""
        reached = passes.get(key)
        if reached is None:
            found = self._reached(root)
            if found is not None:
                passes[key] = found
            return False
        leaves = [self.inputs[slot].leaf for slot in reached]
        if not all(leaf._requires_grad for leaf in leaves):
            return False  # one was frozen since
        if inputs is None:
            for leaf in leaves:
                leaf._receive_grad()
        elif sorted(map(id, leaves)) != sorted(map(id, inputs)):
            return False  # what leads to others is not gone through
        self.root = root._id
        return True

    def _reached(self, root: Any) -> tuple[int, ...] | None:
        """The slots of the leaves that a pass gives gradients, in that order; None if it is out of the ordinary."""
        leaves: list[Any] = []
        values = ShadowValues()
        started = [(self.node(root._id), root._output_nr, root._data)]
        once = values.Pass(started, values, True, None, lambda leaf, *_: leaves.append(leaf))
        if not once.is_ordinary:
            return None
        once.run()
        slots = {id(given.leaf): slot for slot, given in self.inputs.items()}
        return tuple([slots[id(leaf)] for leaf in leaves])


class Entry(NamedTuple):
    """How an op is entered into the graph later on."""

    specs: Sequence[Spec]
    tracked: tuple[int, ...]
    """Which outputs have a gradient."""
    enter: Callable[[Sequence[Any], Sequence[Any], Own | None], None]
    """Enters it, of its tensors and its outputs, and of its own numbers if it has any."""
    as_view: Callable[[Sequence[Any], Sequence[Any], Own | None], None] | None
    """Makes the outputs views of a tensor, if the op's are."""


class SegmentGraph(LazyGraph):
    """Of calls that came one after the other in a segment, none of which is in the graph yet."""

    __slots__ = ("calls", "first", "sequence", "slots")

    def __init__(self, slots: dict[str, int], first: Node) -> None:
        super().__init__()
        self.slots, self.first = slots, first
        self.sequence = next_sequence()
        """How old its nodes are: older than all that is recorded from now on."""
        self.calls: list[tuple[Entry, Node, tuple[int, ...], Own | None, Sequence[list[int]]]] = []
        """Each with its node, the slots of its tensors, its own numbers, and the version counters of its outputs."""
        self.inputs: dict[int, Input] = {}

    def takes(self, tensor: Any, slot: int) -> bool:
        """Whether a tensor may go in: as a result, or as an input without a history."""
        if tensor._lazy is self or slot in self.inputs:
            return True
        given = as_input(tensor)
        if given is not None:
            self.inputs[slot] = given
        return given is not None

    def add(self, entry: Entry, node: Node, slots: tuple[int, ...], outputs: Sequence[Any], own: Own | None) -> None:
        """Note a call, and whose handles are its outputs."""
        self.calls.append((entry, node, slots, own, [output._version_counter for output in outputs]))
        for index in entry.tracked:
            output = outputs[index]
            output._requires_grad, output._lazy = True, self
            if index:
                output._output_nr = index

    def build(self) -> dict[str, Any]:
        """Enter the calls into the graph."""
        names, nodes = [*self.slots], {}
        known = {slot: stand_in(given) for slot, given in self.inputs.items()}
        versions = {id(cell): version for _, _, cell, version in self.inputs.values()}
        for entry, place, slots, own, cells in self.calls:
            outputs = []
            for slot, spec, cell in zip(place.outputs, entry.specs, cells, strict=True):
                output = known[slot] = Meta(spec)
                output._version_counter = cell
                outputs.append(output)
            entry.enter([known[slot] for slot in slots], outputs, own)
            node: Any = outputs[entry.tracked[0]]._node
            node.sequence = self.sequence + place.index * BETWEEN
            nodes.update({names[place.outputs[i]]: node for i in entry.tracked})
            if node.versions:  # as they were when the call came: what is the graph's own was new then
                node.versions = tuple([(i, cell, versions.get(id(cell), 0)) for i, cell, _ in node.versions])
        return nodes

    def pass_from(self, root: Any, inputs: Sequence[Any] | None) -> bool:
        """Go through it, while nothing was written to that it made or took."""
        if root._data.shape != () or not self.unchanged:
            return False
        if any(cell[0] for *_, cells in self.calls for cell in cells):
            return False
        slot = self.slots[root._id]
        leaves = tuple([each for each, given in self.inputs.items() if given.leaf is not None])
        last = self.calls[-1][1]
        if last.passes is None:
            last.passes = {}
        return self.go_over(root, (slot, self.first.index, leaves), last.passes, inputs)


def pass_over(root: Any, inputs: Sequence[Any] | None = None) -> bool:
    """Have a plain pass from this tensor go over a lazy graph; false if it has to be run.

    It gives gradients to the leaves that it reaches, or, given ``inputs``, only finds that these are all of them.
    """
    lazy: LazyGraph | None = getattr(root, "_lazy", None)  # whatever is differentiated that is no handle
    if lazy is None or lazy.nodes is not None:
        return False
    with root._recorder.lock:
        return lazy.pass_from(root, inputs)
