"""What a traced program leaves behind, so that it can be put into a session once the arrays are known.

Arrays, version counters and tensors go by number: first those of the tensors that the program takes, as
:class:`~.facts.Found` lists them, then those that it makes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from ...answer import Answer, Value
from ...session import Session
from ...tensor import Tensor
from ...values import COUNTED
from .ground import Ground, Path
from .outline import Outline
from .spent import Spent, SpentGraph, resolved

SAME = -1
"""In place of a number: as it was."""


class Source(NamedTuple):
    """Where an array comes from: an output of the executable, or what it was called with."""

    is_output: bool
    position: int


class Run(Protocol):
    """What an executable came to."""

    called_with: Sequence[Any]
    replaces: bool
    """Whether tensors that are written to may get other arrays."""

    def array(self, source: Source) -> Any:
        """The array from there, to be kept, in row-major order: nobody else has it or writes to it."""

    def write(self, source: Source, target: Any) -> Callable[[], None]:
        """What puts the array from there into a tensor. All such are made before the first is called."""

    def numbers(self) -> Mapping[int, Any]:
        """The Python numbers that the tensors it leaves were made with, by what refers to them."""

    def settle(self, tensors: Sequence[Tensor]) -> Sequence[Any]:
        """Move those that it was called with to where the next run need not copy them from, and say which those are."""


class Place(NamedTuple):
    """A tensor's place in the graph."""

    requires_grad: bool
    node: int | None
    slot: int


class Made(NamedTuple):
    """A tensor that the program makes."""

    array: int
    path: Path
    cell: int
    place: Place
    base: int | None
    grad: int | None
    view: Mapping[str, Any]
    """What else a view has of its own."""
    strides: Any
    """An array laid out as the tensor would be in memory, not to be read; None is row-major."""
    varies: bool
    """Whether references to numbers stand in ``path`` and ``view``."""


class Changed(NamedTuple):
    """What became of a tensor that the program takes, where it is not just written to."""

    tensor: int
    place: Place | None
    grad: int | None
    """A tensor, None or ``SAME``."""


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


class Outcome(NamedTuple):
    """Everything that a program of one kind does to a session."""

    outline: Outline
    arrays: list[Source]
    """Of the arrays that it makes."""
    cells: list[int]
    """How far each version counter goes; those of what is made begin at zero."""
    writes: list[tuple[int, Source]]
    """Which of the arrays that it takes are overwritten, and by what."""
    made: list[Made]
    changed: list[Changed]
    names: list[tuple[int, int]]
    """Ids of what it makes, or renames, and the tensors."""
    graph: SpentGraph
    fetched: list[Fetched]
    needs: int
    """Bytes that a session has to have left."""

    def put(self, session: Session, ids: Sequence[str], taken: Sequence[Tensor], run: Run, ground: Ground) -> Answer:
        """Bring a session, of which the program took these tensors, to where it leaves it."""
        answer, leave = self.begin(session, ids, taken, run, ground)
        leave()
        return answer

    def begin(
        self, session: Session, ids: Sequence[str], taken: Sequence[Tensor], run: Run, ground: Ground
    ) -> tuple[Answer, Callable[[], None]]:
        """The program's answer, and what brings the session there. All that takes memory is done in advance."""
        made = self._arrays(run, len(taken), ground)
        answer = self._answer(ids, taken, run, made, ground)
        writes = [run.write(source, taken[position]) for position, source in self.writes]
        return answer, partial(self._leave, session, ids, taken, run, ground, made, writes)

    def _leave(
        self,
        session: Session,
        ids: Sequence[str],
        taken: Sequence[Tensor],
        run: Run,
        ground: Ground,
        made: Sequence[Any],
        writes: Sequence[Callable[[], None]],
    ) -> None:
        for write in writes:
            write()
        cells = [tensor._cell for tensor in taken] + [[0] for _ in self.cells[len(taken) :]]
        for cell, step in zip(cells, self.cells, strict=True):
            if step:
                cell[0] += step
        numbers = run.numbers()
        tensors = self._tensors(taken, made, cells, ground, numbers)
        self._enter(tensors, len(taken), numbers)
        for array in made:  # what has no name is a gradient, or stays in the graph
            if array.nbytes > COUNTED:
                session.accounts.count(array)
        for i in self.outline.freed:
            session.tensors.pop(ids[i], None)
        for i, number in self.names:
            session.tensors[ids[i]] = tensor = tensors[number]
            session.accounts.count(tensor._data)
            if tensor._base is not None:
                session.accounts.count(tensor._base._data)
        if run.replaces:
            session.accounts.recount([taken[position] for position, _ in self.writes])
            session.accounts.recount(run.settle(taken))

    def _arrays(self, run: Run, taken: int, ground: Ground) -> list[Any]:
        """The arrays that it makes."""
        found, used = [], set()
        for source in self.arrays:
            uploaded = not source.is_output and source.position >= taken and source not in used
            used.add(source)
            if uploaded:
                found.append(ground.keep(run.called_with[source.position]))
            else:
                found.append(run.array(source))
        return found

    def _answer(
        self, ids: Sequence[str], taken: Sequence[Tensor], run: Run, made: Sequence[Any], ground: Ground
    ) -> Answer:
        values = {}
        for fetched in self.fetched:
            start = taken[fetched.cell]._cell[0] if fetched.cell < len(taken) else 0
            name, version = ids[fetched.id], fetched.description["version"] + start
            if fetched.kept is not None:
                array = made[fetched.kept]
            else:
                array = None if fetched.source is None else run.array(fetched.source)
            value = None if array is None else ground.host(array)
            values[name] = Value({**fetched.description, "id": name, "version": version}, value)
        return Answer(values)

    def _tensors(
        self,
        taken: Sequence[Tensor],
        made: Sequence[Any],
        cells: Sequence[list[int]],
        ground: Ground,
        numbers: Mapping[int, Any],
    ) -> list[Tensor]:
        memories = [*map(ground.memory, taken), *map(ground.fresh, made)]
        tensors = list(taken)
        for plan in self.made:
            path = resolved(plan.path, numbers) if plan.varies else plan.path
            tensor = ground.showing(memories[plan.array], path, plan.strides)
            tensor._cell = cells[plan.cell]
            vars(tensor).update(resolved(plan.view, numbers) if plan.varies else plan.view)
            tensors.append(tensor)
        for tensor, plan in zip(tensors[len(taken) :], self.made, strict=True):
            if plan.base is not None:
                tensor._become_view(tensors[plan.base])
                tensor._seen += cells[plan.cell][0] - self.cells[plan.cell] if tensor._seen >= 0 else 0
            if plan.grad is not None:
                tensor._grad = tensors[plan.grad]
        return tensors

    def _enter(self, tensors: Sequence[Tensor], taken: int, numbers: Mapping[int, Any]) -> None:
        """Give tensors their places in the graph, and gradients."""
        for change in self.changed:
            if change.grad != SAME:
                tensors[change.tensor]._grad = None if change.grad is None else tensors[change.grad]
        places = [(change.tensor, change.place) for change in self.changed]
        places += [(number, plan.place) for number, plan in enumerate(self.made, taken)]
        spent = Spent(self.graph, tensors, numbers) if self.graph.nodes else None
        for number, place in places:
            if place is None:
                continue
            tensor = tensors[number]
            if place.requires_grad:
                tensor._requires_grad = True
            elif tensor._requires_grad:
                tensor._requires_grad = False
            if place.node is not None and spent is not None:
                tensor._node, tensor._slot = spent.node(place.node), place.slot
