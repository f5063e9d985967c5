"""What a program leaves in a session: read from its trace once, and put into a session after each run.

Arrays, version counters and tensors are numbered: first those of the tensors that the program takes, in the order of
:class:`~.input_signature.Inputs`, then those that it makes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...accounts import Accounts
from ...answer import Answer, Value
from ...backends.numpy_tracer import Ref
from ...backends.symbolic import Untraceable, has_traced, is_traced
from ...graph import FREED
from ...tensor import Tensor
from ...values import COUNTED
from .analysis import Analysis, number_of
from .graphs import (
    LEAF,
    MADE,
    TAKEN,
    Container,
    Edge,
    GraphContext,
    GraphData,
    NodeData,
    Placeholder,
    edge_target,
    make_nodes,
    resolve,
    template,
)
from .input_signature import Inputs, TensorSpec
from .memory_space import MemorySpace, Path

logger = logging.getLogger(__name__)


class Source(NamedTuple):
    """Where an array comes from: an output of the executable, or what it was called with."""

    is_output: bool
    position: int


class Save(NamedTuple):
    """An array that nodes of a graph save."""

    source: Source
    shared: bool
    """Whether it shares the memory of a tensor, whose version guards it; else it belongs to the nodes."""


class Write(NamedTuple):
    """An array that is written to a tensor."""

    put: Callable[[], None]
    array: Any = None
    """The array that the tensor has afterwards, if it is another one than before."""


class Run:
    """The results of one run of an executable."""

    called_with: Sequence[Any]
    replaces = False
    """Whether tensors that are written to may get other arrays."""

    def array(self, source: Source) -> Any:
        """The array from there, to be kept, in row-major order: nobody else has it or writes to it."""
        raise NotImplementedError

    def saved(self, save: Save) -> Any:
        """An array to be kept by nodes, in its own memory layout: nobody writes to it."""
        return self.array(save.source)

    def write(self, source: Source, target: Any) -> Write:
        """What writes the array from there to a tensor. All writes are made before the first is done."""
        raise NotImplementedError

    def numbers(self) -> Mapping[int, Any]:
        """The Python numbers that the tensors it leaves were made with, by the references to them."""
        return {}

    def rewind(self, generator: np.random.Generator) -> None:
        """Set the generator that the executable drew from back to its state before the run."""

    def relocate(self, tensors: Sequence[Tensor]) -> Sequence[Any]:
        """Move inputs to memory from which the next run need not copy them; returns those that were moved."""
        return ()


class Place(NamedTuple):
    """A tensor's place in the graph."""

    requires_grad: bool
    node: Edge | None
    slot: int


class Made(NamedTuple):
    """A tensor that the program makes."""

    array: int
    path: Path
    cell: int
    base: int | None
    grad: int | None
    view: Mapping[str, Any]
    """The further attributes of a view."""
    strides: Any
    """An array with the memory layout of the tensor, which is not read; None is row-major."""
    varies: bool
    """Whether there are references to numbers in ``path`` and ``view``."""


class Fetched(NamedTuple):
    """A tensor that the program fetches."""

    id: int
    description: Mapping[str, Any]
    cell: int
    """The version counter; the description has how far it went."""
    source: Source | None
    """None where only the description is wanted."""
    kept: int | None
    """Which of the arrays that the program makes it is, if it is kept."""


class Effects(NamedTuple):
    """Everything that a program does to a session."""

    analysis: Analysis
    arrays: list[Source]
    """The arrays that it makes."""
    cells: list[int]
    """How far each version counter goes; those of new tensors begin at zero."""
    writes: list[tuple[int, Source]]
    """Which of the arrays that it takes are overwritten, and by what."""
    made: list[Made]
    placed: list[tuple[int, Place]]
    """The tensors that get a place in the graph, or another one than before."""
    grads: list[tuple[int, int | None]]
    """The tensors that it takes whose gradient changes, and which tensor the gradient is, if any."""
    names: list[tuple[int, int]]
    """Ids of what it makes, or renames, and the tensors."""
    graph: GraphData
    saves: list[Save]
    """The arrays that its nodes save and no tensor has."""
    freed_nodes: list[int]
    """Which of the nodes that were there before are freed."""
    fetched: list[Fetched]
    needs: int
    """Bytes that a session has to have left."""

    def begin(self, inputs: Inputs, run: Run) -> tuple[Answer, Callable[[], Callable[[], None]]]:
        """The program's answer, and a function that prepares the change of the session and returns what makes it.

        All arrays are allocated before this returns. The session is as it was until the change is made.
        """
        made = self._arrays(run, len(inputs.tensors), inputs.space)
        saved = [*map(run.saved, self.saves)]
        answer = self._answer(inputs, run, made)
        writes = [run.write(source, inputs.tensors[position]) for position, source in self.writes]
        return answer, partial(self._prepare, inputs, run, made, saved, writes)

    def _prepare(
        self, inputs: Inputs, run: Run, made: Sequence[Any], saved: Sequence[Any], writes: Sequence[Write]
    ) -> Callable[[], None]:
        """Make the tensors and nodes. What is returned puts them into the session."""
        taken, nodes, space = inputs.tensors, inputs.nodes, inputs.space
        cells = [tensor._cell for tensor in taken] + [[0] for _ in self.cells[len(taken) :]]
        memories = [*map(space.memory, taken), *map(space.fresh, made)]
        for (position, _), write in zip(self.writes, writes, strict=True):
            if write.array is not None:
                memories[position] = write.array
        numbers = run.numbers()
        tensors = self._tensors(taken, memories, cells, space, numbers)
        context = GraphContext(tensors, nodes, numbers, {"memories": memories, "arrays": saved}, cells)
        node_of = make_nodes(self.graph, context) if self.graph.nodes else None
        places = [
            (tensors[number], place, None if place.node is None else edge_target(place.node, node_of, context))
            for number, place in self.placed
        ]
        freed = [nodes[number] for number in self.freed_nodes]
        return partial(self._change, inputs, run, [*made, *saved], writes, cells, tensors, places, freed)

    def _change(
        self,
        inputs: Inputs,
        run: Run,
        arrays: Sequence[Any],
        writes: Sequence[Write],
        cells: Sequence[list[int]],
        tensors: Sequence[Tensor],
        places: Sequence[tuple[Tensor, Place, Any]],
        freed: Sequence[Any],
    ) -> None:
        """Put everything into the session: little more than assignments, so that nothing of it fails halfway."""
        names, ids = inputs.session.tensors, inputs.ids
        if writes:
            with np.errstate(all="ignore"):
                for write in writes:
                    write.put()
        for cell, step in zip(cells, self.cells, strict=True):
            if step:
                cell[0] += step
        for number, grad in self.grads:
            tensors[number]._grad = None if grad is None else tensors[grad]
        for tensor, place, node in places:
            if tensor._requires_grad is not place.requires_grad:
                tensor._requires_grad = place.requires_grad
            if node is not None:
                tensor._node, tensor._slot = node, place.slot
        for node in freed:
            node.saved, node.versions = FREED, ()
        for i in self.analysis.freed:
            names.pop(ids[i], None)
        for i, number in self.names:
            names[ids[i]] = tensors[number]
        try:
            self._count(inputs, run, arrays, tensors)
        except Exception:  # an array that is not counted is not subtracted later either
            logger.exception("the memory of a program's results was not counted")

    def _count(self, inputs: Inputs, run: Run, arrays: Sequence[Any], tensors: Sequence[Tensor]) -> None:
        """Count the session's new memory."""
        accounts = inputs.session.accounts
        count = accounts.count
        for array in arrays:  # one without a name is a gradient, or saved in the graph
            if array.nbytes > COUNTED:
                count(array)
        for _, number in self.names:
            tensor = tensors[number]
            count(tensor._data)
            if tensor._base is not None:
                count(tensor._base._data)
        if run.replaces:
            accounts.recount([inputs.tensors[position] for position, _ in self.writes])
            accounts.recount(run.relocate(inputs.tensors))

    def _arrays(self, run: Run, taken: int, space: MemorySpace) -> list[Any]:
        """The arrays that it makes."""
        found, used = [], set()
        for source in self.arrays:
            uploaded = not source.is_output and source.position >= taken and source not in used
            used.add(source)
            found.append(space.keep(run.called_with[source.position]) if uploaded else run.array(source))
        return found

    def _answer(self, inputs: Inputs, run: Run, made: Sequence[Any]) -> Answer:
        ids, taken = inputs.ids, inputs.tensors
        values = {}
        for fetched in self.fetched:
            start = taken[fetched.cell]._cell[0] if fetched.cell < len(taken) else 0
            name, version = ids[fetched.id], fetched.description["version"] + start
            if fetched.kept is not None:
                array = made[fetched.kept]
            else:
                array = None if fetched.source is None else run.array(fetched.source)
            value = None if array is None else inputs.space.host(array)
            values[name] = Value({**fetched.description, "id": name, "version": version}, value)
        return Answer(values)

    def _tensors(
        self,
        taken: Sequence[Tensor],
        memories: Sequence[Any],
        cells: Sequence[list[int]],
        space: MemorySpace,
        numbers: Mapping[int, Any],
    ) -> list[Tensor]:
        """The tensors that it takes, and those that it makes over these memories."""
        tensors = list(taken)
        for made in self.made:
            path = resolve(made.path, numbers) if made.varies else made.path
            tensor = space.view(memories[made.array], path, made.strides)
            tensor._cell = cells[made.cell]
            vars(tensor).update(resolve(made.view, numbers) if made.varies else made.view)
            tensors.append(tensor)
        for tensor, made in zip(tensors[len(taken) :], self.made, strict=True):
            if made.base is not None:
                tensor._become_view(tensors[made.base])
                tensor._seen += cells[made.cell][0] if tensor._seen >= 0 else 0
            if made.grad is not None:
                tensor._grad = tensors[made.grad]
        return tensors


# Reading them from a trace -------------------------------------------------------------------

VIEW_ATTRIBUTES = ("_chain", "_seen", "_sealed")


class Trace(Protocol):
    """A program that ran once on traced arrays."""

    analysis: Analysis
    specs: Sequence[TensorSpec]
    device_name: str
    """Where the program is to run."""
    arrays: Sequence[Any]
    """What it was called with."""
    taken: list[Any]
    tensors: dict[str, Any]
    nodes: Sequence[Any]
    """The graph behind the tensors that it takes."""
    places: Mapping[int, tuple[int, int]]
    """For each tensor with a history its node, and which of the node's outputs it is."""
    fetches: list[tuple[int, dict[str, Any], list[int], Any]]
    """For each fetched tensor its id, its description at that point, its version counter and its array."""
    accounts: Accounts
    """The memory of all results together, freed ones included."""


class EffectsReader:
    """Reads the effects of a trace, and which of its arrays are to be outputs of the executable."""

    def __init__(self, trace: Trace, keeps_graphs: bool) -> None:
        """``keeps_graphs`` is whether the program may leave a graph that was not freed."""
        self._trace, self._keeps_graphs = trace, keeps_graphs
        self.outputs: list[Any] = []
        self._sources = {id(array): Source(False, i) for i, array in reversed([*enumerate(trace.arrays)])}
        self._arrays: list[Source] = []
        self._memories = {id(tensor._memory): i for i, tensor in enumerate(trace.taken)}
        self._cells = {id(tensor._cell): i for i, tensor in enumerate(trace.taken)}
        self._steps: list[int] = [tensor._cell[0] for tensor in trace.taken]
        self._tensors: list[Any] = list(trace.taken)
        """All tensors that can be reached from a name, by their numbers."""
        self._numbers = {id(tensor): i for i, tensor in enumerate(trace.taken)}
        self._nodes: dict[int, Edge] = {id(node): (TAKEN, number) for number, node in enumerate(trace.nodes)}
        self._freed_before = [number for number, node in enumerate(trace.nodes) if node.saved is FREED]
        self._saves: list[Save] = []
        self._reachable: dict[tuple[int, int], Any] = {}
        """The memories of tensors that can be reached from a name, by version counter and array."""
        self.numbers: list[int] = []
        """The Python numbers that the tensors it leaves were made with."""

    def effects(self) -> Effects:
        """The program's effects. Raises Untraceable for an effect that a run could not repeat."""
        trace = self._trace
        ids = {name: number_of(name) for name in trace.tensors}
        new = {i: trace.tensors[name] for name, i in ids.items() if i not in trace.analysis.taken}
        names = [(i, self._place_of(tensor)) for i, tensor in new.items()]
        grads = [self._number(tensor._grad) for tensor in trace.taken]
        for tensor in self._tensors:  # which grows meanwhile
            self._check(tensor)
            self._number(tensor._base)
            self._number(tensor._grad)
        self._check_views()
        graph = self._graph()
        count = len(trace.taken)
        made = [self._made(tensor) for tensor in self._tensors[count:]]
        placed = [(number, self._place(tensor)) for number, tensor in enumerate(self._tensors)]
        before = [spec.grad for spec in trace.specs]
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
            freed_nodes=self._freed_nodes(),
            fetched=[self._fetched(*fetch) for fetch in trace.fetches],
            needs=trace.accounts.used_bytes,
        )

    def _number(self, tensor: Any) -> int | None:
        return None if tensor is None else self._place_of(tensor)

    def _place_of(self, tensor: Any) -> int:
        number = self._numbers.get(id(tensor))
        if number is None:
            number = self._numbers[id(tensor)] = len(self._tensors)
            self._tensors.append(tensor)
        return number

    def _check(self, tensor: Any) -> None:
        if tensor._hooks is not None:
            raise Untraceable("a tensor that it leaves has hooks")
        if tensor._undo:
            raise Untraceable("it changes the geometry of a tensor in place")

    def _check_views(self) -> None:
        """Raise Untraceable where a view that the program takes is more than read."""
        nodes, places = self._trace.nodes, self._trace.places
        for number, (tensor, spec) in enumerate(zip(self._trace.taken, self._trace.specs, strict=True)):
            before = nodes[places[number][0]] if number in places else None
            same = tensor._cell[0] == 0 and tensor._base is None and tensor._node is before
            shown = any(held is not tensor and held._cell is tensor._cell for held in self._tensors)
            flows = tensor._requires_grad and before is None
            if (spec.view or spec.shared) and (shown or not same or flows or tensor._grad is not None):
                raise Untraceable("a view that it takes is changed, or shown by another")

    # Arrays and versions -------------------------------------------------------------------

    def _source(self, array: Any) -> Source:
        """Where an array is found after a run. A computed one becomes an output."""
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
        view = self._referring({name: getattr(tensor, name) for name in VIEW_ATTRIBUTES if name in vars(tensor)})
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
        """Nested tuples, lists and dicts with references in place of traced numbers."""
        if not has_traced(value):
            return value
        if is_traced(value):
            self.numbers.append(value.number)
            return Ref(value.number)
        if isinstance(value, Mapping):
            return {key: self._referring(item) for key, item in value.items()}
        return type(value)([self._referring(item) for item in value])

    def _is_moved(self, number: int, place: Place) -> bool:
        """Whether a tensor that it takes gets another place in the graph."""
        tensor, spec = self._trace.taken[number], self._trace.specs[number]
        if self._memories.get(id(tensor._memory)) != number or self._cells.get(id(tensor._cell)) != number:
            raise Untraceable("a tensor that it takes shows other memory afterwards")
        node, slot = self._trace.places.get(number, (None, 0))
        before = Place(spec.requires_grad, None if node is None else (TAKEN, node), slot)
        return place != before or tensor._base is not None

    def _place(self, tensor: Any) -> Place:
        node = None if tensor._node is None else self._nodes[id(tensor._node)]
        return Place(tensor._requires_grad, node, tensor._slot)

    # The graph -----------------------------------------------------------------------------

    def _graph(self) -> GraphData:
        """The graph behind the tensors that it leaves."""
        nodes = self._made_nodes()
        self._nodes.update({id(node): (MADE, number) for number, node in enumerate(nodes)})
        for leaf in [target for node in nodes for target in node.next if target is not None and target.is_sink]:
            self._check(leaf)
            self._place_of(leaf)
        self._reachable = {(id(x._cell), id(x._memory.array)): x._memory for x in self._tensors}
        data = [self._node(node) for node in nodes]
        leaves = {edge[1] for each in data for edge in each.next if edge is not None and edge[0] is LEAF}
        return GraphData(data, sorted(leaves))

    def _made_nodes(self) -> list[Any]:
        """The new nodes behind the tensors that it leaves, oldest first."""
        found = {id(x._node): x._node for x in self._tensors if x._node is not None and id(x._node) not in self._nodes}
        order = list(found.values())
        for node in order:
            for target in node.next:
                if target is not None and not target.is_sink and id(target) not in self._nodes.keys() | found.keys():
                    found[id(target)] = target
                    order.append(target)
        return sorted(order, key=lambda node: node.sequence)

    def _node(self, node: Any) -> NodeData:
        is_freed = node.saved is FREED or not any(hasattr(value, "shape") for value in _leaves(node.saved))
        if not is_freed and not self._keeps_graphs:
            raise Untraceable(f"it leaves a graph to differentiate later: {node.name()} keeps tensors")
        if not node.plain or node.hooks is not None or node.evaluate is not None:
            raise Untraceable(f"it leaves a graph with hooks, on {node.name()}")
        known = len(self.numbers)
        apart = ("next", "sequence") if is_freed else ("next", "sequence", "saved", "versions")
        attributes = self._referring({name: value for name, value in vars(node).items() if name not in apart})
        saved, versions = (None, ()) if is_freed else self._saved(node)
        varies = len(self.numbers) > known
        edges = tuple([self._edge(target) for target in node.next])
        return NodeData(node.many, attributes, varies, edges, saved, versions)

    def _saved(self, node: Any) -> tuple[Any, tuple[tuple[int, int, int], ...]]:
        """The template of a node's saved tensors, and their versions."""
        cells = {position: id(cell) for position, cell, _ in node.versions}

        def at(position: int) -> Callable[[Any], Placeholder | None]:
            def place(value: Any) -> Placeholder | None:
                if not hasattr(value, "shape"):
                    return None
                memory = self._reachable.get((cells.get(position, 0), id(value)))
                if memory is not None:
                    return Placeholder("memories", self._memory(memory))
                save = Save(self._source(value), self._shares_memory(value, cells.get(position)))
                if save not in self._saves:
                    self._saves.append(save)
                return Placeholder("arrays", self._saves.index(save))

            return place

        values = [template(self._referring(value), at(position)) for position, value in enumerate(node.saved)]
        versions = [(position, self._cell(cell), version) for position, cell, version in node.versions]
        return Container(tuple, tuple(values)), tuple(versions)

    def _shares_memory(self, array: Any, cell: int | None) -> bool:
        """Whether an array has memory of a reachable tensor with this version counter."""
        roots = getattr(array, "roots", None)
        return roots is not None and any(roots == x._memory.array.roots for x in self._tensors if id(x._cell) == cell)

    def _freed_nodes(self) -> list[int]:
        """Which of the nodes that were there before are freed."""
        nodes = self._trace.nodes
        if any(not node.plain or node.hooks is not None for node in nodes):
            raise Untraceable("it puts hooks on a graph from an earlier program")
        return [n for n, node in enumerate(nodes) if node.saved is FREED and n not in self._freed_before]

    def _edge(self, target: Any) -> Edge | None:
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
