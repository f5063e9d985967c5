"""Reading off a trace what the program leaves: its tensors as plans, and the arrays that the executable returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ...accounts import Accounts
from ...backends.numpy_tracer import Ref
from ...backends.symbolic import Untraceable, has_traced, is_traced
from ...graph import FREED
from .analysis import Analysis, number_of
from .effects import Effects, Fetched, Made, Place, Save, Source
from .graphs import LEAF, MADE, TAKEN, At, Each, GraphData, NodeData, Target, template
from .input_signature import TensorSpec

OF_VIEWS = ("_chain", "_seen", "_sealed")


class Traced(Protocol):
    """A program that was run on tensors without values."""

    analysis: Analysis
    kinds: Sequence[TensorSpec]
    device_name: str
    """Where the program is to run."""
    arrays: Sequence[Any]
    """What it was called with."""
    taken: list[Any]
    tensors: dict[str, Any]
    nodes: Sequence[Any]
    """What was behind the tensors that it takes."""
    places: Mapping[int, tuple[int, int]]
    """Of those with a history the node, and which of its outputs they are."""
    fetches: list[tuple[int, dict[str, Any], list[int], Any]]
    """For each tensor that was fetched its id, what it was then, its version counter and its array."""
    accounts: Accounts
    """Of all results together, those that were freed included."""


class EffectsReader:
    """The effects of a trace, and the arrays that it calls outputs."""

    def __init__(self, trace: Traced, keeps_graphs: bool) -> None:
        """``keeps_graphs`` is whether it may leave a graph that a pass is still to go through."""
        self._trace, self._keeps_graphs = trace, keeps_graphs
        self.outputs: list[Any] = []
        self._sources = {id(array): Source(False, i) for i, array in reversed([*enumerate(trace.arrays)])}
        self._arrays: list[Source] = []
        self._memories = {id(tensor._memory): i for i, tensor in enumerate(trace.taken)}
        self._cells = {id(tensor._cell): i for i, tensor in enumerate(trace.taken)}
        self._steps: list[int] = [tensor._cell[0] for tensor in trace.taken]
        self._held: list[Any] = list(trace.taken)
        """The tensors by their numbers: all that can be reached from a name."""
        self._numbers = {id(tensor): i for i, tensor in enumerate(trace.taken)}
        self._nodes: dict[int, Target] = {id(node): (TAKEN, number) for number, node in enumerate(trace.nodes)}
        self._freed = [number for number, node in enumerate(trace.nodes) if node.saved is FREED]
        self._saves: list[Save] = []
        self._shown: dict[tuple[int, int], Any] = {}
        """The memories of what can be reached from a name, by version counter and array."""
        self.numbers: list[int] = []
        """The Python numbers that the tensors it leaves were made with."""

    def effects(self) -> Effects:
        """All that the program does. Raises Untraceable where a run could not repeat it."""
        trace = self._trace
        ids = {name: number_of(name) for name in trace.tensors}
        new = {i: trace.tensors[name] for name, i in ids.items() if i not in trace.analysis.taken}
        names = [(i, self._place_of(tensor)) for i, tensor in new.items()]
        grads = [self._number(tensor._grad) for tensor in trace.taken]
        for tensor in self._held:  # which grows meanwhile
            self._check(tensor)
            self._number(tensor._base)
            self._number(tensor._grad)
        self._check_views()
        graph = self._graph()
        count = len(trace.taken)
        made = [self._made(tensor) for tensor in self._held[count:]]
        placed = [(number, self._place(tensor)) for number, tensor in enumerate(self._held)]
        before = [kind.grad for kind in trace.kinds]
        return Effects(
            analysis=trace.analysis,
            arrays=self._arrays,
            writes=self._writes(),
            cells=self._steps,
            made=made,
            placed=[(number, place) for number, place in placed if number >= count or self._is_moved(number, place)],
            grads=[(number, grad) for number, grad in enumerate(grads) if grad != before[number]],
            names=names,
            graph=graph,
            saves=self._saves,
            spent=self._spent(),
            fetched=[self._fetched(*fetch) for fetch in trace.fetches],
            needs=trace.accounts.used_bytes,
        )

    def _number(self, tensor: Any) -> int | None:
        return None if tensor is None else self._place_of(tensor)

    def _place_of(self, tensor: Any) -> int:
        number = self._numbers.get(id(tensor))
        if number is None:
            number = self._numbers[id(tensor)] = len(self._held)
            self._held.append(tensor)
        return number

    def _check(self, tensor: Any) -> None:
        if tensor._hooks is not None:
            raise Untraceable("a tensor that it leaves has hooks")
        if tensor._undo:
            raise Untraceable("it changes the geometry of a tensor in place")

    def _check_views(self) -> None:
        """Raise Untraceable where a view that the program takes is more than read."""
        nodes, places = self._trace.nodes, self._trace.places
        for number, (tensor, kind) in enumerate(zip(self._trace.taken, self._trace.kinds, strict=True)):
            before = nodes[places[number][0]] if number in places else None
            same = tensor._cell[0] == 0 and tensor._base is None and tensor._node is before
            shown = any(held is not tensor and held._cell is tensor._cell for held in self._held)
            flows = tensor._requires_grad and before is None
            if (kind.view or kind.shared) and (shown or not same or flows or tensor._grad is not None):
                raise Untraceable("a view that it takes is changed, or shown by another")

    # Arrays and versions -------------------------------------------------------------------

    def _source(self, array: Any) -> Source:
        """Where an array is found after a run; one that was computed becomes an output."""
        source = self._sources.get(id(array))
        if source is None:
            source = self._sources[id(array)] = Source(True, len(self.outputs))
            self.outputs.append(array)
        return source

    def _memory(self, memory: Any) -> int:
        number = self._memories.get(id(memory))
        if number is None:
            number = self._memories[id(memory)] = len(self._trace.taken) + len(self._arrays)
            self._arrays.append(self._source(memory.array))
        return number

    def _cell(self, cell: list[int]) -> int:
        number = self._cells.get(id(cell))
        if number is None:
            number = self._cells[id(cell)] = len(self._steps)
            self._steps.append(cell[0])
        return number

    def _writes(self) -> list[tuple[int, Source]]:
        """Which of the arrays that the program takes are overwritten, and by what."""
        taken, before = self._trace.taken, self._trace.arrays
        changed = [i for i, tensor in enumerate(taken) if tensor._memory.array is not before[i]]
        return [(i, self._source(taken[i]._memory.array)) for i in changed]

    def _fetched(self, number: int, description: dict[str, Any], cell: list[int], array: Any) -> Fetched:
        source = None if array is None else self._source(array)
        kept = self._arrays.index(source) if source in self._arrays else None
        return Fetched(number, {**description, "device": self._trace.device_name}, self._cell(cell), source, kept)

    # Tensors -------------------------------------------------------------------------------

    def _made(self, tensor: Any) -> Made:
        known = len(self.numbers)
        path = self._referring(tensor._path)
        view = self._referring({name: getattr(tensor, name) for name in OF_VIEWS if name in vars(tensor)})
        return Made(
            array=self._memory(tensor._memory),
            path=path,
            cell=self._cell(tensor._cell),
            base=self._number(tensor._base),
            grad=self._number(tensor._grad),
            strides=tensor._strides,
            view=view,
            varies=len(self.numbers) > known,
        )

    def _referring(self, value: Any) -> Any:
        """Nested tuples, lists and dicts with references in place of the numbers that differ from run to run."""
        if not has_traced(value):
            return value
        if is_traced(value):
            self.numbers.append(value.number)
            return Ref(value.number)
        if isinstance(value, Mapping):
            return {key: self._referring(item) for key, item in value.items()}
        return type(value)([self._referring(item) for item in value])

    def _is_moved(self, number: int, place: Place) -> bool:
        """Whether a tensor that it takes has another place in the graph than before."""
        tensor, kind = self._trace.taken[number], self._trace.kinds[number]
        if self._memories.get(id(tensor._memory)) != number or self._cells.get(id(tensor._cell)) != number:
            raise Untraceable("a tensor that it takes shows other memory afterwards")
        node, slot = self._trace.places.get(number, (None, 0))
        before = Place(kind.requires_grad, None if node is None else (TAKEN, node), slot)
        return place != before or tensor._base is not None

    def _place(self, tensor: Any) -> Place:
        node = None if tensor._node is None else self._nodes[id(tensor._node)]
        return Place(tensor._requires_grad, node, tensor._slot)

    # The graph -----------------------------------------------------------------------------

    def _graph(self) -> GraphData:
        """What is behind what is left."""
        nodes = self._made_nodes()
        self._nodes.update({id(node): (MADE, number) for number, node in enumerate(nodes)})
        for leaf in [target for node in nodes for target in node.next if target is not None and target.is_sink]:
            self._check(leaf)
            self._place_of(leaf)
        self._shown = {(id(x._cell), id(x._memory.array)): x._memory for x in self._held}
        data = [self._node(node) for node in nodes]
        leaves = {edge[1] for each in data for edge in each.next if edge is not None and edge[0] is LEAF}
        return GraphData(data, sorted(leaves))

    def _made_nodes(self) -> list[Any]:
        """The nodes behind what is left, oldest first, but for those that were there before."""
        found = {id(x._node): x._node for x in self._held if x._node is not None and id(x._node) not in self._nodes}
        order = list(found.values())
        for node in order:
            for target in node.next:
                if target is not None and not target.is_sink and id(target) not in self._nodes.keys() | found.keys():
                    found[id(target)] = target
                    order.append(target)
        return sorted(order, key=lambda node: node.sequence)

    def _node(self, node: Any) -> NodeData:
        is_spent = node.saved is FREED or not any(hasattr(value, "shape") for value in _leaves(node.saved))
        if not is_spent and not self._keeps_graphs:
            raise Untraceable(f"it leaves a graph to differentiate later: {node.name()} keeps tensors")
        if not node.plain or node.hooks is not None or node.evaluate is not None:
            raise Untraceable(f"it leaves a graph with hooks, on {node.name()}")
        known = len(self.numbers)
        apart = ("next", "sequence") if is_spent else ("next", "sequence", "saved", "versions")
        attributes = self._referring({name: value for name, value in vars(node).items() if name not in apart})
        saved, versions = (None, ()) if is_spent else self._saved(node)
        varies = len(self.numbers) > known
        edges = tuple([self._edge(target) for target in node.next])
        return NodeData(node.many, attributes, varies, edges, saved, versions)

    def _saved(self, node: Any) -> tuple[Any, tuple[tuple[int, int, int], ...]]:
        """What a node saved as a template, and the versions of what it saved."""
        cells = {position: id(cell) for position, cell, _ in node.versions}
        shown = self._shown

        def at(position: int) -> Callable[[Any], At | None]:
            def place(value: Any) -> At | None:
                if not hasattr(value, "shape"):
                    return None
                memory = shown.get((cells.get(position, 0), id(value)))
                if memory is not None:
                    return At("memories", self._memory(memory))
                save = Save(self._source(value), self._shows_memory(value, cells.get(position)))
                if save not in self._saves:
                    self._saves.append(save)
                return At("arrays", self._saves.index(save))

            return place

        values = [template(self._referring(value), at(position)) for position, value in enumerate(node.saved)]
        versions = [(position, self._cell(cell), version) for position, cell, version in node.versions]
        return Each(tuple, tuple(values)), tuple(versions)

    def _shows_memory(self, array: Any, cell: int | None) -> bool:
        """Whether an array shows memory of a tensor that has this version counter, and can be reached from a name."""
        roots = getattr(array, "roots", None)
        return roots is not None and any(roots == x._memory.array.roots for x in self._held if id(x._cell) == cell)

    def _spent(self) -> list[int]:
        """Which of the nodes that were there before are spent afterwards."""
        nodes = self._trace.nodes
        if any(not node.plain or node.hooks is not None for node in nodes):
            raise Untraceable("it puts hooks on a graph from an earlier program")
        return [n for n, node in enumerate(nodes) if node.saved is FREED and n not in self._freed]

    def _edge(self, target: Any) -> Target | None:
        if target is None:
            return None
        if not target.is_sink:
            return self._nodes[id(target)]
        return LEAF, self._place_of(target)


def _leaves(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _leaves(value)
        else:
            yield value
