"""What a traced program leaves behind, so that it can be put into a session once the arrays are known.

Arrays, version counters and tensors go by number: first those of the tensors that the program takes, as
:class:`~.input_signature.Inputs` lists them, then those that it makes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...answer import Answer, Value
from ...graph import FREED
from ...session import Session
from ...tensor import Tensor
from ...values import COUNTED
from .analysis import Analysis
from .graphs import GraphData, Surroundings, Target, end, nodes_of, resolved
from .memory_space import MemorySpace, Path

logger = logging.getLogger(__name__)


class Source(NamedTuple):
    """Where an array comes from: an output of the executable, or what it was called with."""

    is_output: bool
    position: int


class Save(NamedTuple):
    """An array that nodes of a graph keep."""

    source: Source
    shared: bool
    """Whether it shows memory of a tensor, whose version says when that is written to; else it is the nodes' own."""


class Write(NamedTuple):
    """An array that is put into a tensor."""

    put: Callable[[], None]
    array: Any = None
    """The array that the tensor shows afterwards, if it is another one than before."""


class Run(Protocol):
    """What an executable came to."""

    called_with: Sequence[Any]
    replaces: bool
    """Whether tensors that are written to may get other arrays."""

    def array(self, source: Source) -> Any:
        """The array from there, to be kept, in row-major order: nobody else has it or writes to it."""

    def saved(self, save: Save) -> Any:
        """An array to be kept by nodes, laid out as it is: nobody writes to it."""

    def write(self, source: Source, target: Any) -> Write:
        """What puts the array from there into a tensor. All such are made before the first is called."""

    def numbers(self) -> Mapping[int, Any]:
        """The Python numbers that the tensors it leaves were made with, by what refers to them."""

    def rewind(self, generator: np.random.Generator) -> None:
        """Set the generator that the executable drew from back to where it was before."""

    def settle(self, tensors: Sequence[Tensor]) -> Sequence[Any]:
        """Move those that it was called with to where the next run need not copy them from, and say which those are."""


class Place(NamedTuple):
    """A tensor's place in the graph."""

    requires_grad: bool
    node: Target | None
    slot: int


class Made(NamedTuple):
    """A tensor that the program makes."""

    array: int
    path: Path
    cell: int
    base: int | None
    grad: int | None
    view: Mapping[str, Any]
    """What else a view has of its own."""
    strides: Any
    """An array laid out as the tensor would be in memory, not to be read; None is row-major."""
    varies: bool
    """Whether references to numbers stand in ``path`` and ``view``."""


class Fetched(NamedTuple):
    """A tensor that the program brings back."""

    id: int
    description: Mapping[str, Any]
    cell: int
    """The version counter; the description has how far it went."""
    source: Source | None
    """None where only the description is wanted."""
    kept: int | None
    """Which of the arrays that the program makes it is, if it is kept."""


class Site(NamedTuple):
    """Where a program runs: a session, the ids of the message, and what the program takes there."""

    session: Session
    ids: Sequence[str]
    taken: Sequence[Tensor]
    nodes: Sequence[Any]
    """The nodes behind what it takes."""
    space: MemorySpace


class Effects(NamedTuple):
    """Everything that a program of one kind does to a session."""

    analysis: Analysis
    arrays: list[Source]
    """Of the arrays that it makes."""
    cells: list[int]
    """How far each version counter goes; those of what is made begin at zero."""
    writes: list[tuple[int, Source]]
    """Which of the arrays that it takes are overwritten, and by what."""
    made: list[Made]
    placed: list[tuple[int, Place]]
    """The tensors that have a place in the graph, or another one than before."""
    grads: list[tuple[int, int | None]]
    """Of the tensors that it takes those that have another gradient than before, and which tensor that is, if any."""
    names: list[tuple[int, int]]
    """Ids of what it makes, or renames, and the tensors."""
    graph: GraphData
    saves: list[Save]
    """The arrays that its nodes saved and no tensor shows."""
    spent: list[int]
    """Which of the nodes that were there before are spent afterwards."""
    fetched: list[Fetched]
    needs: int
    """Bytes that a session has to have left."""

    def put(self, site: Site, run: Run) -> Answer:
        """Bring a session to where the program leaves it."""
        answer, prepare = self.begin(site, run)
        prepare()()
        return answer

    def begin(self, site: Site, run: Run) -> tuple[Answer, Callable[[], Callable[[], None]]]:
        """The program's answer, and a function that prepares the change of the session and returns what makes it.

        All arrays are allocated before this returns. The session is as it was until the change is made.
        """
        made = self._arrays(run, len(site.taken), site.space)
        saved = [*map(run.saved, self.saves)]
        answer = self._answer(site, run, made)
        writes = [run.write(source, site.taken[position]) for position, source in self.writes]
        return answer, partial(self._prepare, site, run, made, saved, writes)

    def _prepare(
        self, site: Site, run: Run, made: Sequence[Any], saved: Sequence[Any], writes: Sequence[Write]
    ) -> Callable[[], None]:
        """Make the tensors and nodes. What is returned puts them into the session."""
        taken, nodes, space = site.taken, site.nodes, site.space
        cells = [tensor._cell for tensor in taken] + [[0] for _ in self.cells[len(taken) :]]
        memories = [*map(space.memory, taken), *map(space.fresh, made)]
        for (position, _), write in zip(self.writes, writes, strict=True):
            if write.array is not None:
                memories[position] = write.array
        numbers = run.numbers()
        tensors = self._tensors(taken, memories, cells, space, numbers)
        places = self._places(Surroundings(tensors, nodes, numbers, {"memories": memories, "arrays": saved}, cells))
        spent = [nodes[number] for number in self.spent]
        return partial(self._change, site, run, [*made, *saved], writes, cells, tensors, places, spent)

    def _change(
        self,
        site: Site,
        run: Run,
        made: Sequence[Any],
        writes: Sequence[Write],
        cells: Sequence[list[int]],
        tensors: Sequence[Tensor],
        places: Sequence[tuple[Tensor, Place, Any]],
        spent: Sequence[Any],
    ) -> None:
        """Put everything into the session: little more than assignments, so that nothing of it fails halfway."""
        names, ids = site.session.tensors, site.ids
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
            if place.requires_grad:
                tensor._requires_grad = True
            elif tensor._requires_grad:
                tensor._requires_grad = False
            if node is not None:
                tensor._node, tensor._slot = node, place.slot
        for node in spent:
            node.saved, node.versions = FREED, ()
        for i in self.analysis.freed:
            names.pop(ids[i], None)
        for i, number in self.names:
            names[ids[i]] = tensors[number]
        try:
            self._count(site, run, made, tensors)
        except Exception:  # an array that is not counted is not given back either
            logger.exception("the memory of a program's results was not counted")

    def _count(self, site: Site, run: Run, made: Sequence[Any], tensors: Sequence[Tensor]) -> None:
        """Count the session's new memory."""
        accounts, taken = site.session.accounts, site.taken
        count = accounts.count
        for array in made:  # what has no name is a gradient, or stays in the graph
            if array.nbytes > COUNTED:
                count(array)
        for _, number in self.names:
            tensor = tensors[number]
            count(tensor._data)
            if tensor._base is not None:
                count(tensor._base._data)
        if run.replaces:
            accounts.recount([taken[position] for position, _ in self.writes])
            accounts.recount(run.settle(taken))

    def _arrays(self, run: Run, taken: int, space: MemorySpace) -> list[Any]:
        """The arrays that it makes."""
        found, used = [], set()
        for source in self.arrays:
            uploaded = not source.is_output and source.position >= taken and source not in used
            used.add(source)
            if uploaded:
                found.append(space.keep(run.called_with[source.position]))
            else:
                found.append(run.array(source))
        return found

    def _answer(self, site: Site, run: Run, made: Sequence[Any]) -> Answer:
        ids, taken = site.ids, site.taken
        values = {}
        for fetched in self.fetched:
            start = taken[fetched.cell]._cell[0] if fetched.cell < len(taken) else 0
            name, version = ids[fetched.id], fetched.description["version"] + start
            if fetched.kept is not None:
                array = made[fetched.kept]
            else:
                array = None if fetched.source is None else run.array(fetched.source)
            value = None if array is None else site.space.host(array)
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
        for plan in self.made:
            path = resolved(plan.path, numbers) if plan.varies else plan.path
            tensor = space.showing(memories[plan.array], path, plan.strides)
            tensor._cell = cells[plan.cell]
            vars(tensor).update(resolved(plan.view, numbers) if plan.varies else plan.view)
            tensors.append(tensor)
        for tensor, plan in zip(tensors[len(taken) :], self.made, strict=True):
            if plan.base is not None:
                tensor._become_view(tensors[plan.base])
                tensor._seen += cells[plan.cell][0] if tensor._seen >= 0 else 0
            if plan.grad is not None:
                tensor._grad = tensors[plan.grad]
        return tensors

    def _places(self, around: Surroundings) -> list[tuple[Tensor, Place, Any]]:
        """The tensors that get a place in the graph, with their nodes if they have any."""
        tensors, made = around.tensors, nodes_of(self.graph, around) if self.graph.nodes else None
        return [
            (tensors[number], place, None if place.node is None else end(place.node, made, around))
            for number, place in self.placed
        ]
