"""Autograd graphs of handles that are built only when they are read, which most training steps never do.

A node says where gradients go and what was saved; for a call that was recorded before, both are known. So such a call
only notes that it belongs to a lazy graph. When one of the nodes is read, all of them are built, as they would have
been one by one. The first plain backward pass over such a graph runs on nodes; later ones reach the same leaves and
need no nodes. Nodes that are built after a pass are in the state in which the pass would have left them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from telegrad_engine.graph.node import accumulator, free, next_sequence, walk
from telegrad_engine.shapes import Spec
from telegrad_engine.tensor.abstract import Meta

from .node import Node, Own
from .shadow import ShadowValues

BETWEEN = 2.0**-20
"""The increment of the sequence number per instruction in a lazy graph; elsewhere it is 1 per node."""
QUIET = frozenset({"alias", "detach", "fetch", "free", "grad_of", "set_grad", "tensor"})
"""The verbs that neither read the graph of ops nor change saved tensors, whatever their attributes."""
Passes = dict[Any, tuple[int, ...]]
"""The slots of the leaves that plain passes reach, by the pass's key."""


def is_quiet(op: str, attrs: Mapping[str, Any]) -> bool:
    """Whether a verb leaves a lazy graph unchanged."""
    return op in QUIET or (op == "zero_grad" and not attrs)  # drops gradients, but changes none


class Input(NamedTuple):
    """An input of a lazy graph, in the state it had at that time."""

    leaf: Any
    """The tensor itself if it is a leaf that requires grad, otherwise None: no other tensor is kept alive."""
    data: Any
    version_counter: list[int]
    version: int


def as_input(tensor: Any) -> Input | None:
    """The current state of a tensor, or None if it has a history."""
    if tensor._requires_grad and (tensor._base is not None or tensor._node is not None):
        return None
    cell = tensor._version_counter
    return Input(tensor if tensor._requires_grad else None, tensor._data, cell, cell[0])


def stand_in(given: Input) -> Meta:
    """The stand-in for an input in the graph; edges lead to the leaf's own node."""
    leaf, data, cell, _ = given
    stands = Meta(data)
    stands._version_counter, stands._requires_grad = cell, leaf is not None
    if leaf is not None:
        stands._node = accumulator(leaf)
    return stands


class LazyGraph:
    """A graph between inputs and results whose nodes are built on demand; the ``_lazy`` of the results' handles."""

    __slots__ = ("inputs", "nodes", "root")

    inputs: Mapping[int, Input]
    """The inputs, by slot."""

    def __init__(self) -> None:
        self.root: str | None = None
        """The id of the result from which a pass went through the graph."""
        self.nodes: Mapping[str, Any] | None = None
        """The nodes of results, by tensor id, once they are built."""

    def build(self) -> Mapping[str, Any]:
        """Build the nodes, with the age they would have had. Return those of results, by tensor id."""
        raise NotImplementedError

    def pass_from(self, root: Any, inputs: Sequence[Any] | None) -> bool:
        """Do what a plain pass from a scalar result does. Return False if the pass has to run on nodes."""
        raise NotImplementedError

    def node(self, name: str) -> Any:
        """The node of a result; None for any other id."""
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
        """Whether no pass went through the graph, and no input was written to."""
        return self.root is None and all(cell[0] == version for _, _, cell, version in self.inputs.values())

    def go_over(self, root: Any, key: Any, passes: Passes, inputs: Sequence[Any] | None) -> bool:
        """Do what earlier passes with this key did. If that is not known, find it out and return False."""
        reached = passes.get(key)
        if reached is None:
            found = self._reached(root)
            if found is not None:
                passes[key] = found
            return False
        leaves = [self.inputs[slot].leaf for slot in reached]
        if not all(leaf._requires_grad for leaf in leaves):
            return False  # a leaf was frozen since then
        if inputs is None:
            for leaf in leaves:
                leaf._receive_grad()
        elif sorted(map(id, leaves)) != sorted(map(id, inputs)):
            return False  # the pass skips what leads to other leaves
        self.root = root._id
        return True

    def _reached(self, root: Any) -> tuple[int, ...] | None:
        """The slots of the leaves that get gradients in a pass, in that order; None if the pass is not ordinary."""
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
    """How to add an op to the graph later."""

    specs: Sequence[Spec]
    tracked: tuple[int, ...]
    """The indices of the outputs that have a gradient."""
    enter: Callable[[Sequence[Any], Sequence[Any], Own | None], None]
    """Adds the op, given its tensors, its outputs and its own numbers if it has any."""
    as_view: Callable[[Sequence[Any], Sequence[Any], Own | None], None] | None
    """Makes the outputs views of a tensor; None if the op's outputs are not views."""


class SegmentGraph(LazyGraph):
    """The lazy graph of successive calls in a segment."""

    __slots__ = ("calls", "first", "sequence", "slots")

    def __init__(self, slots: dict[str, int], first: Node) -> None:
        super().__init__()
        self.slots, self.first = slots, first
        self.sequence = next_sequence()
        """The base of its nodes' sequence numbers: its nodes are older than all that are recorded from now on."""
        self.calls: list[tuple[Entry, Node, tuple[int, ...], Own | None, Sequence[list[int]]]] = []
        """Each call's entry, node, slots of its tensors, own numbers, and version counters of its outputs."""
        self.inputs: dict[int, Input] = {}

    def takes(self, tensor: Any, slot: int) -> bool:
        """Whether a call on this tensor may join. A tensor that is neither result nor input must have no history."""
        if tensor._lazy is self or slot in self.inputs:
            return True
        given = as_input(tensor)
        if given is not None:
            self.inputs[slot] = given
        return given is not None

    def add(self, entry: Entry, node: Node, slots: tuple[int, ...], outputs: Sequence[Any], own: Own | None) -> None:
        """Add a call, and mark its outputs as results of this graph."""
        self.calls.append((entry, node, slots, own, [output._version_counter for output in outputs]))
        for index in entry.tracked:
            output = outputs[index]
            output._requires_grad, output._lazy = True, self
            if index:
                output._output_nr = index

    def build(self) -> dict[str, Any]:
        """Build the nodes of the calls. Return those of results, by tensor id."""
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
            if node.versions:  # the versions at the time of the call: 0 for the graph's own tensors
                node.versions = tuple([(i, cell, versions.get(id(cell), 0)) for i, cell, _ in node.versions])
        return nodes

    def pass_from(self, root: Any, inputs: Sequence[Any] | None) -> bool:
        """Do what a plain pass from a scalar result does, unless an input or a result was written to."""
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
    """Do what a plain pass from this tensor over its lazy graph does. Return False if the pass has to run on nodes.

    The leaves that the pass reaches get gradients. With ``inputs``, only check that these are exactly those leaves.
    """
    lazy: LazyGraph | None = getattr(root, "_lazy", None)  # the root may be no handle
    if lazy is None or lazy.nodes is not None:
        return False
    with root._recorder.lock:
        return lazy.pass_from(root, inputs)
