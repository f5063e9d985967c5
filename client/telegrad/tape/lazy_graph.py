"""Autograd graphs of handles that are built only when they are read, which most training steps never do.

A node says where gradients go and what was saved; for a call that was recorded before, both are known. So such a call
only notes that it belongs to a lazy graph: an op recorded by a shortcut (:mod:`.shortcut`), a registered function, or a
compiled function (:mod:`.graph_pattern`). When one of the nodes is read, all of them are built, as they would have been
one by one. The first plain backward pass over such a graph runs on nodes; later ones reach the same leaves and need no
nodes. Nodes that are built after a pass are in the state in which the pass would have left them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from telegrad_engine.context import state
from telegrad_engine.graph.node import FREED, accumulator, free, next_sequence, walk
from telegrad_engine.program.verbs import VERBS
from telegrad_engine.shapes import Spec
from telegrad_engine.tensor.abstract import Meta

from .node import Node, Own
from .shadow import ShadowValues

QUIET = frozenset(name for name, verb in VERBS.items() if verb.quiet)
BETWEEN = 2.0**-20
"""The increment of the sequence number from node to node of a lazy graph; elsewhere it is 1."""
Passes = dict[Any, tuple[int, ...]]
"""The leaves that plain passes reach, as indices into the graph's inputs, by the pass's key."""


def is_quiet(op: str, attrs: Mapping[str, Any]) -> bool:
    """Whether an instruction leaves a lazy graph unchanged. A ``zero_grad`` without attributes changes no gradient."""
    return op in QUIET and not (attrs and op == "zero_grad")


Input = tuple[Any, Spec, list[int], int]
"""An input of a lazy graph: the tensor itself if it is a leaf that requires grad, otherwise None, because no other
tensor is kept alive; its shape and dtype, its version counter and its version. It is no NamedTuple, which is slower."""


def stand_in(given: Input) -> Meta:
    """The stand-in for an input in the graph; edges lead to the leaf's own node."""
    leaf, data, counter, _ = given
    stands = Meta(data)
    stands._version_counter, stands._requires_grad = counter, leaf is not None
    if leaf is not None:
        stands._node = accumulator(leaf)
    return stands


class Entry(NamedTuple):
    """How to add calls of one kind to the graph later."""

    specs: Sequence[Spec]
    """The shapes and dtypes of a call's outputs."""
    tracked: Sequence[tuple[int, int]]
    """The indices of the outputs that have a gradient, each with its number among the outputs of its node."""
    enter: Callable[[Sequence[Any], Sequence[Any], Own | None], Sequence[Any]]
    """Adds a call, given its tensors, its outputs and its own numbers if it has any. Returns the new nodes, oldest
    first."""
    passes: Passes | None = None
    """The plain passes over a graph of one such call, by the position of the root among the outputs. None if they are
    noted in the tape's node, which says what came before the call."""


class LazyGraph:
    """The lazy graph of successive calls in a segment; the ``_lazy`` of their outputs' handles."""

    __slots__ = ("calls", "first", "inputs", "last", "nodes", "patterns", "root", "sequence", "slots")

    def __init__(self, slots: dict[str, int], last: Node) -> None:
        self.slots, self.first, self.last = slots, last.index, last
        """The segment's slots, and the tape's node of the last call; ``first`` is the index of that of the first."""
        self.sequence = next_sequence()
        """The base of its nodes' sequence numbers: its nodes are older than all that are recorded from now on."""
        self.calls: list[tuple[Entry, Sequence[int], Sequence[int], Own | None, Sequence[list[int]]]] = []
        """Each call's entry, slots of its tensors and outputs, own numbers, and version counters of its outputs."""
        self.patterns: tuple[Any, ...] = ()
        """What the tape's node does not say about the calls."""
        self.inputs: dict[int, Input] = {}
        """The inputs, by slot."""
        self.root: str | None = None
        """The id of the output from which a pass went through the graph."""
        self.nodes: Mapping[str, Any] | None = None
        """The nodes of outputs, by tensor id, once they are built."""

    def takes(self, tensor: Any, slot: int) -> bool:
        """Whether a call on this tensor may join. A tensor that is neither output nor input must have no history."""
        if tensor._lazy is self or slot in self.inputs:
            return True
        requires_grad = tensor._requires_grad
        if requires_grad and (tensor._base is not None or tensor._node is not None):
            return False
        counter = tensor._version_counter
        self.inputs[slot] = (tensor if requires_grad else None, tensor._data, counter, counter[0])
        return True

    def add(
        self,
        entry: Entry,
        last: Node,
        taken: Sequence[int],
        made: Sequence[int],
        outputs: Sequence[Any],
        own: Own | None = None,
    ) -> None:
        """Add a call, given the slots of its tensors and its outputs, and mark these as outputs of this graph."""
        self.calls.append((entry, taken, made, own, [output._version_counter for output in outputs]))
        self.last = last
        if entry.passes is not None:
            self.patterns += (entry.enter,)
        for index, output_nr in entry.tracked:
            output = outputs[index]
            output._requires_grad, output._lazy = True, self
            if output_nr:
                output._output_nr = output_nr

    def node(self, tensor: Any) -> Any:
        """The node of an output; None for any other tensor."""
        if self.nodes is None:
            segment = tensor._recorder.segment
            if segment.lazy is self:
                segment.lazy = None  # the nodes of calls that join after this are not built
            observer, state.observer = state.observer, None  # none was active at the time of the calls
            try:
                nodes = self._build()
            finally:
                state.observer = observer
            if self.root is not None:
                for node in walk(nodes[self.root]):
                    if node.plan.holds_tensors:
                        free(node)
            self.nodes = nodes
        return self.nodes.get(tensor._id)

    def _build(self) -> dict[str, Any]:
        """Build the nodes of the calls, with the age they would have had. Return those of outputs, by tensor id."""
        names, nodes, ages = [*self.slots], {}, count()
        known = {slot: stand_in(given) for slot, given in self.inputs.items()}
        versions = {id(counter): version for _, _, counter, version in self.inputs.values()}  # 0 for outputs
        for entry, taken, made, own, counters in self.calls:
            outputs = [Meta(spec) for spec in entry.specs]
            for slot, output, counter in zip(made, outputs, counters, strict=True):
                known[slot], output._version_counter = output, counter
                versions.setdefault(id(counter), 0)
            for node in entry.enter([known[slot] for slot in taken], outputs, own):
                node.sequence = self.sequence + next(ages) * BETWEEN
                if node.versions:  # as they were at the time of the call
                    node.versions = tuple(
                        [(i, c, version - c[0] + versions.get(id(c), c[0])) for i, c, version in node.versions]
                    )
            nodes.update({names[made[index]]: outputs[index]._node for index, _ in entry.tracked})
        return nodes

    def pass_from(self, root: Any, inputs: Sequence[Any] | None) -> bool:
        """Do what a plain pass from an output does. Return False if the pass has to run on nodes.

        It has to for an output that is no scalar, after another pass, after a write to an input or an output, and if
        no pass like this one is known yet.
        """
        if root._data.shape != () or self.root is not None:
            return False
        if any(counter[0] != version for _, _, counter, version in self.inputs.values()):
            return False
        if any(counter[0] for *_, counters in self.calls for counter in counters):
            return False
        passes, key = self._known_passes(self.slots[root._id])
        given = [leaf for leaf, *_ in self.inputs.values()]
        reached = passes.get(key)
        if reached is None:
            found = self._reached(root, given)
            if found is not None:
                passes[key] = found
            return False
        leaves = [given[index] for index in reached]
        if not all(leaf._requires_grad and leaf._hooks is None for leaf in leaves):
            return False  # a leaf was frozen since then, or got a hook
        if inputs is None:
            for leaf in leaves:
                leaf._receive_grad()
        elif sorted(map(id, leaves)) != sorted(map(id, inputs)):
            return False  # the pass skips what leads to other leaves
        self.root = root._id
        return True

    def _known_passes(self, slot: int) -> tuple[Passes, Any]:
        """The known passes over graphs like this one, and the key of those from the output in this slot."""
        entry, _, made, _, _ = self.calls[-1]
        if entry.passes is not None and len(self.calls) == 1:
            return entry.passes, made.index(slot)
        if self.last.passes is None:
            self.last.passes = {}
        leaves = tuple([each for each, given in self.inputs.items() if given[0] is not None])
        return self.last.passes, (slot, self.first, self.patterns, leaves)

    def _reached(self, root: Any, leaves: Sequence[Any]) -> tuple[int, ...] | None:
        """Which of the leaves get gradients in a pass, in that order; None if the pass is not ordinary."""
        reached: list[Any] = []
        values = ShadowValues()
        started = [(self.node(root), root._output_nr, root._data)]
        once = values.Pass(started, values, True, None, lambda leaf, *_: reached.append(leaf))
        if not once.is_ordinary or any(node.saved is FREED for node in once.order):
            return None
        once.run()
        indices = {id(leaf): index for index, leaf in enumerate(leaves)}
        return tuple([indices[id(leaf)] for leaf in reached])


def pass_over(root: Any, inputs: Sequence[Any] | None = None) -> bool:
    """Do what a plain pass from this tensor over its lazy graph does. Return False if the pass has to run on nodes.

    The leaves that the pass reaches get gradients. With ``inputs``, only check that these are exactly those leaves.
    """
    lazy: LazyGraph | None = getattr(root, "_lazy", None)  # the root may be no handle
    if lazy is None or lazy.nodes is not None:
        return False
    with root._recorder.lock:
        return lazy.pass_from(root, inputs)
