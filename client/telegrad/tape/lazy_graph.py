"""Autograd graphs of handles that are built only when they are read, which most training steps never do.

A node says where gradients go and what was saved; for a call that was prepared (:mod:`.dispatch`), both are known. So
such a call only notes that it belongs to a lazy graph: an op, a registered function, or a compiled function
(:class:`Pattern`). When one of the nodes is read, all of them are built, as they would have been one by one. The
first plain backward pass over such a graph runs on nodes; later ones reach the same leaves and need no nodes. Nodes
that are built after a pass are in the state in which the pass would have left them.

A registered function or a compiled function makes several nodes, and always the same ones for tensors of the same
kinds. Its pattern, the part of the graph that an earlier call made, as data, builds nodes of a lazy graph like a
prepared call of an op.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from telegrad_engine.context import observers, state
from telegrad_engine.graph.data import NOWHERE, NodeData, make_nodes
from telegrad_engine.graph.node import FREED, Node, accumulator, free, next_sequence, walk
from telegrad_engine.lru import LRU
from telegrad_engine.shapes import Spec
from telegrad_engine.tensor.abstract import Meta

from .shadow import ShadowValues
from .step import Places, RecordedStep

BETWEEN = 2.0**-20
"""The increment of the sequence number from node to node of a lazy graph; elsewhere it is 1."""
_passes: LRU[Any, tuple[int, ...]] = LRU(512)
"""The leaves that plain passes reach, as indices into the graph's inputs, by the graph, its leaves and the root."""
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


class NodeBuilder:
    """Builds the nodes of calls of one kind: a prepared call of an op, or a pattern."""

    __slots__ = ("specs", "tracked")
    specs: Sequence[Spec]
    """The shapes and dtypes of a call's outputs."""
    tracked: Sequence[tuple[int, int]]
    """The indices of the outputs that have a gradient, each with its number among the outputs of its node."""

    def build(self, tensors: Sequence[Any], outputs: Sequence[Any], step: RecordedStep | None = None) -> Sequence[Any]:
        """Build a call's nodes, given its tensors, its outputs and its step if that has numbers of its own.

        Returns the new nodes, oldest first.
        """
        raise NotImplementedError


class LazyGraph:
    """The lazy graph of successive calls in a segment; the ``_lazy`` of their outputs' handles."""

    __slots__ = ("calls", "inputs", "nodes", "root", "sequence", "slots")

    def __init__(self, slots: dict[str, int]) -> None:
        self.slots = slots
        """The segment's slots."""
        self.sequence = next_sequence()
        """The base of its nodes' sequence numbers: its nodes are older than all that are recorded from now on."""
        self.calls: list[tuple[NodeBuilder, Places, RecordedStep | None, Sequence[list[int]]]] = []
        """Each call's builder, slots of its tensors and then its outputs, own step, and version counters of outputs."""
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
        self, builder: NodeBuilder, places: Places, outputs: Sequence[Any], step: RecordedStep | None = None
    ) -> None:
        """Add a call, given the slots of its tensors and then its outputs, and mark these as outputs of this graph."""
        self.calls.append((builder, places, step, [output._version_counter for output in outputs]))
        for index, output_nr in builder.tracked:
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
        names, nodes, ages = [*self.slots], dict[str, Any](), count()
        known = {slot: stand_in(given) for slot, given in self.inputs.items()}
        versions = {id(counter): version for _, _, counter, version in self.inputs.values()}  # 0 for outputs
        for builder, places, step, counters in self.calls:
            outputs = [Meta(spec) for spec in builder.specs]
            taken, made = places[: -len(outputs)], places[-len(outputs) :]
            for slot, output, counter in zip(made, outputs, counters, strict=True):
                known[slot], output._version_counter = output, counter
                versions.setdefault(id(counter), 0)
            for node in builder.build([known[slot] for slot in taken], outputs, step):
                node.sequence = self.sequence + next(ages) * BETWEEN
                if node.versions:  # as they were at the time of the call
                    node.versions = tuple(
                        [(i, c, version - c[0] + versions.get(id(c), c[0])) for i, c, version in node.versions]
                    )
            nodes.update({names[made[index]]: outputs[index]._node for index, _ in builder.tracked})
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
        key = self._key(root)
        given = [leaf for leaf, *_ in self.inputs.values()]
        reached = _passes.get(key)
        if reached is None:
            found = self._reached(root, given)
            if found is not None:
                _passes[key] = found
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

    def _key(self, root: Any) -> tuple[Any, ...]:
        """What a pass from this output depends on: the calls and the leaves.

        A single call, such as one of a registered function, may be on any slots.
        """
        builders, places, _, _ = zip(*self.calls, strict=True)
        leaves = tuple([slot for slot, given in self.inputs.items() if given[0] is not None])
        slot = self.slots[root._id]
        if len(builders) > 1:
            return builders, places, leaves, slot
        numbers = {each: number for number, each in enumerate(dict.fromkeys(places[0]))}
        return builders, tuple(map(numbers.get, places[0])), tuple(map(numbers.get, leaves)), numbers[slot]

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


class LazyNode:
    """The attribute of a handle that is its node, before it is set: built on access from the lazy graph, or None."""

    def __get__(self, tensor: Any, _: type[Any]) -> Any:
        found = vars(tensor)
        lazy = tensor._lazy
        if lazy is None:
            return found.setdefault("_node", None)
        with tensor._recorder.lock:
            if "_node" not in found:  # another thread may have set it meanwhile
                tensor._node = lazy.node(tensor)
                tensor._lazy = None
        return found["_node"]


def join(
    segment: Any, builder: NodeBuilder, tensors: Sequence[Any], outputs: Sequence[Any], before: LazyGraph | None
) -> None:
    """Add a call that was just recorded as an instruction or a block to the graph.

    ``before`` is the lazy graph that it may join, if it belongs to this segment.
    """
    slots = segment.slots
    segment.lazy = before if before is not None and before.slots is slots else None
    if any(output._version_counter[0] for output in outputs):
        builder.build(tensors, outputs)
    else:
        enter(segment, builder, tensors, tuple([slots[t._id] for t in (*tensors, *outputs)]), outputs)


def enter(
    segment: Any,
    builder: NodeBuilder,
    tensors: Sequence[Any],
    places: Places,
    outputs: Sequence[Any],
    step: RecordedStep | None = None,
) -> None:
    """Add a segment's last call to the graph: later if possible, and else now.

    ``places`` are the slots of its tensors and then its outputs; ``step`` is its own step, if it has numbers.
    """
    lazy: LazyGraph | None = None
    if not observers or state.observer is None:
        lazy = segment.lazy or LazyGraph(segment.slots)
        if not all(map(lazy.takes, tensors, places)):
            lazy = None
    segment.lazy = lazy
    if lazy is None:
        builder.build(tensors, outputs, step)
    else:
        lazy.add(builder, places, outputs, step)


def run_lazily(root: Any, inputs: Sequence[Any] | None = None) -> bool:
    """Do what a plain pass from this tensor over its lazy graph does. Return False if the pass has to run on nodes.

    The leaves that the pass reaches get gradients. With ``inputs``, only check that these are exactly those leaves.
    """
    lazy: LazyGraph | None = getattr(root, "_lazy", None)  # the root may be no handle
    if lazy is None or lazy.nodes is not None:
        return False
    with root._recorder.lock:
        return lazy.pass_from(root, inputs)


VARY = frozenset({"next_edges", "sequence", "versions"})
"""The attributes of a node that differ from call to call."""
Result = tuple[Spec, tuple[int, int] | None]
"""An output of a call, and the number of its node and of the node's output; None if it has no gradient."""


class Unrepeatable(Exception):
    """Raised with the reason why a call cannot be repeated."""


class Pattern(NodeBuilder):
    """The nodes of a call on tensors, and its results. The graph's end ``i + 1`` is the place of tensor ``i``."""

    def __init__(self, nodes: Sequence[NodeData], counters: Sequence[list[int]], results: Sequence[Result]) -> None:
        """``counters`` are the version counters that belong to neither a tensor nor a result.

        The counter of a result has its number, that of tensor ``i`` the number ``~i``; the others follow the results'.
        """
        self.nodes, self.results, self._counters = nodes, results, counters
        self.specs = [spec for spec, _ in results]
        self._roots = [(index, *root) for index, (_, root) in enumerate(results) if root is not None]
        self.tracked = [(index, output_nr) for index, _, output_nr in self._roots]

    def build(self, tensors: Sequence[Any], outputs: Sequence[Any], _: RecordedStep | None = None) -> Sequence[Node]:
        """Make the nodes of a call on these tensors with these outputs, and return them."""
        before, after = [[x._version_counter for x in each] for each in (outputs, reversed(tensors))]
        ends = [None, *map(_place, tensors)]
        made = make_nodes(self.nodes, ends, [*before, *self._counters, *after], {})[: len(self.nodes)]
        for index, number, output_nr in self._roots:
            output = outputs[index]
            output._node, output._output_nr, output._requires_grad = made[number], output_nr, True
        return made


def pattern_since(start: int, tensors: Sequence[Any], results: Sequence[Any]) -> Pattern:
    """The pattern of a call on these tensors, which began at the sequence number ``start``.

    It holds for tensors that are outputs of the same numbers. Raises Unrepeatable if other nodes or leaves are part of
    the results' graph.
    """
    roots = [result._node for result in results if result._node is not None]
    if any(root.leaf is not None or root.sequence < start for root in roots):
        raise Unrepeatable("it gives back a tensor with a history from before")
    nodes = [node for node in reversed([*walk(*roots)]) if node.sequence > start]
    order, places = {id(node): number for number, node in enumerate(nodes)}, [*map(_place, tensors)]
    ends = {(id(places[i]), tensor._output_nr): -2 - i for i, tensor in reversed([*enumerate(tensors)])}
    counters: list[list[int]] = []
    numbers = {id(result._version_counter): i for i, result in reversed([*enumerate(results)])}
    numbers |= {id(tensor._version_counter): ~i for i, tensor in reversed([*enumerate(tensors)])}

    def edge(target: Any, output_nr: int) -> int:
        if target is None:
            return NOWHERE
        found = order.get(id(target), ends.get((id(target), output_nr)))
        if found is None:
            raise Unrepeatable(
                "gradients flow to a tensor that is out of sight"
                if target.leaf is not None
                else "a history from before is part of what it computes"
            )
        return found

    def version(position: int, counter: list[int], saved: int) -> tuple[int, int, int]:
        if id(counter) not in numbers:
            numbers[id(counter)] = len(results) + len(counters)
            counters.append(counter)
        return position, numbers[id(counter)], saved - counter[0]

    found = [
        NodeData(
            type(node),
            {name: value for name, value in vars(node).items() if name not in VARY},
            (),
            tuple([version(*each) for each in node.versions]),
            tuple(map(edge, node.next_edges, node.output_nrs or (0,) * len(node.next_edges))),
        )
        for node in nodes
    ]
    made = [
        (result._data, None if result._node is None else (order[id(result._node)], result._output_nr))
        for result in results
    ]
    return Pattern(found, counters, made)


def _place(tensor: Any) -> Any:
    """The node to which edges to a tensor lead; None for one that requires no gradient."""
    return accumulator(tensor) if tensor._node is None and tensor._requires_grad else tensor._node
