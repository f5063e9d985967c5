"""The effects of a program: what it leaves in a session, and how that is put there after a run of its executable.

Arrays, version counters and tensors are numbered: first those of the tensors that the program takes, in the order of
:class:`~.input_signature.Inputs`, then those that it makes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...answer import Answer, Value
from ...graph import FREED
from ...tensor import Tensor
from ...values import COUNTED
from .analysis import Analysis
from .graphs import Edge, GraphContext, GraphData, edge_target, fill_template, make_nodes
from .input_signature import Inputs
from .memory_space import MemorySpace

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
        """The Python numbers that the tensors and nodes it leaves were made with, by their numbers on the tape."""
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
    view: Any
    """The path to it from the array, and the further attributes of a view; or a template of these if it ``varies``."""
    varies: bool
    cell: int
    base: int | None
    grad: int | None
    strides: Any
    """An array with the memory layout of the tensor, which is not read; None is row-major."""


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
        values = {"memories": memories, "arrays": saved, "numbers": run.numbers()}
        tensors = self._tensors(taken, cells, space, values)
        context = GraphContext(tensors, nodes, values, cells)
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
        self, taken: Sequence[Tensor], cells: Sequence[list[int]], space: MemorySpace, values: Mapping[str, Any]
    ) -> list[Tensor]:
        """The tensors that it takes, and those that it makes."""
        tensors = list(taken)
        for made in self.made:
            path, view = fill_template(made.view, values) if made.varies else made.view
            tensor = space.view(values["memories"][made.array], path, made.strides)
            tensor._cell = cells[made.cell]
            vars(tensor).update(view)
            tensors.append(tensor)
        for tensor, made in zip(tensors[len(taken) :], self.made, strict=True):
            if made.base is not None:
                tensor._become_view(tensors[made.base])
                tensor._seen += cells[made.cell][0] if tensor._seen >= 0 else 0
            if made.grad is not None:
                tensor._grad = tensors[made.grad]
        return tensors
