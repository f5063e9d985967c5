"""Executables, which are programs as one function, and their effects: the changes to a session after a run.

Calling an executable changes nothing. The effects are applied only if the results are complete and every guard holds.

Arrays, version counters and tensors are numbered: first those of the tensors that the program takes, in the order of
:class:`~.input_signature.Inputs`, then those that it makes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from ..graph.node import FREED
from ..program.program_cache import Remembered
from ..program.result import Answer, Value
from ..tensor.eager import Tensor
from ..tensor.gradient_values import COUNTED
from .graphs import Edge, GraphContext, GraphData, edge_target, fill_template
from .input_signature import Inputs

logger = logging.getLogger(__name__)


class Source(NamedTuple):
    """Where an array comes from: an output of the executable, or one of its inputs."""

    is_output: bool
    position: int


class Save(NamedTuple):
    """An array that nodes of a graph save."""

    source: Source
    shared: bool
    """Whether it shares the memory of a tensor, whose version guards it; otherwise only the nodes use it."""


class Write(NamedTuple):
    """An array that is written to a tensor."""

    put: Callable[[], None]
    array: Any = None
    """The array that the tensor has afterwards, if its array is replaced."""


class Run:
    """The results of one run of an executable."""

    called_with: Sequence[Any]
    replaces = False
    """Whether tensors that are written to may get new arrays."""

    def array(self, source: Source) -> Any:
        """Return the array of a source in row-major order, to be kept: nothing else has it or writes to it."""
        raise NotImplementedError

    def saved(self, save: Save) -> Any:
        """Return an array for nodes to keep, in its own memory layout. It is never written to."""
        return self.array(save.source)

    def write(self, source: Source, target: Any) -> Write:
        """Return the write of a source's array to a tensor. All writes are created before the first is executed."""
        raise NotImplementedError

    def numbers(self) -> Mapping[int, Any]:
        """Return the Python numbers that the new tensors and nodes were made with, by their numbers on the tape."""
        return {}

    def rewind(self, generator: np.random.Generator) -> None:
        """Restore the state of the generator before the run."""

    def relocate(self, tensors: Sequence[Tensor]) -> Sequence[Any]:
        """Move inputs to memory from which the next run need not copy them. Return the inputs that were moved."""
        return ()


class Place(NamedTuple):
    """A tensor's place in the graph."""

    requires_grad: bool
    node: Edge | None
    output_nr: int


class Made(NamedTuple):
    """A tensor that the program makes."""

    array: int
    view: Any
    """The template of the path from the array to it, and of the further attributes of a view."""
    version_counter: int
    base: int | None
    grad: int | None
    strides: Any
    """An array with the memory layout of the tensor, whose values are not read; None is row-major."""


class Fetched(NamedTuple):
    """A tensor that the program fetches."""

    id: int
    description: Mapping[str, Any]
    version_counter: int
    """The number of its version counter. The version in the description is relative to that counter."""
    source: Source | None
    """None if only the description is requested."""
    kept: int | None
    """Its position among the arrays that the program makes, if it is one of them."""


class Effects(NamedTuple):
    """All effects of a program on a session."""

    program: Remembered
    arrays: list[Source]
    """The arrays that it makes."""
    increases: list[int]
    """The increase of each version counter; those of new tensors begin at zero."""
    writes: list[tuple[int, Source]]
    """The numbers of the taken arrays that are overwritten, each with the source of the new values."""
    made: list[Made]
    placed: list[tuple[int, Place]]
    """The tensors whose place in the graph is new or changed."""
    grads: list[tuple[int, int | None]]
    """The taken tensors whose gradient changes, each with the number of the new gradient or None."""
    names: list[tuple[int, int]]
    """The ids of tensors that it makes or renames, each with the tensor's number."""
    graph: GraphData
    saves: list[Save]
    """The arrays that its nodes save and that are not a tensor's."""
    freed_nodes: list[int]
    """The numbers of the existing nodes that it frees."""
    fetched: list[Fetched]
    needs: int
    """The number of bytes that a session must have left."""


class Executable(Protocol):
    """A program as one function."""

    effects: Effects

    @property
    def size(self) -> int:
        """The number of calls and nodes, or of instructions, that it keeps."""

    def run(self, arrays: Sequence[Any], operands: Sequence[float], generator: np.random.Generator) -> Run | None:
        """Return the results for these arrays and numbers; None if a guard does not hold.

        Random numbers are drawn from the generator, which is unchanged if there are no results.
        """


def own_copy(array: Any, order: Literal["C", "K"] = "C") -> Any:
    """Return a copy in row-major order, or in the array's own order; a broadcast array stays broadcast."""
    if 0 in array.strides and array.size > 1:
        first = tuple([slice(0, 1) if step == 0 else slice(None) for step in array.strides])
        return np.broadcast_to(np.array(array[first]), array.shape)
    return np.array(array, order=order)


class Change:
    """The change of a session by the effects of one run.

    Creating it computes the program's answer and allocates all arrays. ``prepare`` makes tensors and nodes. Only
    ``apply`` changes the session.
    """

    def __init__(self, effects: Effects, inputs: Inputs, run: Run) -> None:
        self._effects, self._inputs, self._run = effects, inputs, run
        self._made = self._arrays()
        self._saved = [*map(run.saved, effects.saves)]
        self.answer = self._fetch()
        self._writes = [run.write(source, inputs.tensors[position]) for position, source in effects.writes]

    def _arrays(self) -> list[Any]:
        """Return the arrays that the program makes."""
        taken, run, keep = len(self._inputs.tensors), self._run, self._inputs.space.keep
        found, used = [], set()
        for source in self._effects.arrays:
            uploaded = not source.is_output and source.position >= taken and source not in used
            used.add(source)
            found.append(keep(run.called_with[source.position]) if uploaded else run.array(source))
        return found

    def _fetch(self) -> Answer:
        ids, taken = self._inputs.ids, self._inputs.tensors
        values = {}
        for fetched in self._effects.fetched:
            start = taken[fetched.version_counter]._version_counter[0] if fetched.version_counter < len(taken) else 0
            name, version = ids[fetched.id], fetched.description["version"] + start
            if fetched.kept is not None:
                array = self._made[fetched.kept]
            else:
                array = None if fetched.source is None else self._run.array(fetched.source)
            value = None if array is None else self._inputs.space.host(array)
            values[name] = Value({**fetched.description, "id": name, "version": version}, value)
        return Answer(values)

    def prepare(self) -> None:
        """Make the tensors and nodes."""
        effects, inputs = self._effects, self._inputs
        taken, space = inputs.tensors, inputs.space
        self._version_counters = [tensor._version_counter for tensor in taken]
        self._version_counters += [[0] for _ in effects.increases[len(taken) :]]
        memories = [*map(space.memory, taken), *map(space.fresh, self._made)]
        for (position, _), write in zip(effects.writes, self._writes, strict=True):
            if write.array is not None:
                memories[position] = write.array
        values = {"memories": memories, "arrays": self._saved, "numbers": self._run.numbers()}
        self._tensors = self._make_tensors(values)
        context = GraphContext(self._tensors, inputs.nodes, values, self._version_counters)
        node_of = effects.graph.made(context) if effects.graph.nodes else None
        self._nodes = [
            None if place.node is None else edge_target(place.node, node_of, context) for _, place in effects.placed
        ]

    def _make_tensors(self, values: Mapping[str, Any]) -> list[Tensor]:
        """Return the tensors that the program takes, then those that it makes."""
        space, counters = self._inputs.space, self._version_counters
        tensors = list(self._inputs.tensors)
        for made in self._effects.made:
            path, view = fill_template(made.view, values)
            tensor = space.view(values["memories"][made.array], path, made.strides)
            tensor._version_counter = counters[made.version_counter]
            vars(tensor).update(view)
            tensors.append(tensor)
        for tensor, made in zip(tensors[len(self._inputs.tensors) :], self._effects.made, strict=True):
            if made.base is not None:
                tensor._become_view(tensors[made.base])
                tensor._seen_version += counters[made.version_counter][0] if tensor._seen_version >= 0 else 0
            if made.grad is not None:
                tensor._grad = tensors[made.grad]
        return tensors

    def apply(self) -> None:
        """Apply all effects to the session. These are mostly assignments, so that they do not fail halfway."""
        effects, tensors = self._effects, self._tensors
        names, ids = self._inputs.session.tensors, self._inputs.ids
        if self._writes:
            with np.errstate(all="ignore"):
                for write in self._writes:
                    write.put()
        self._writes = []  # freed before the other arrays, or the heap shrinks and grows again in the next run
        for counter, increase in zip(self._version_counters, effects.increases, strict=True):
            if increase:
                counter[0] += increase
        for number, grad in effects.grads:
            tensors[number]._grad = None if grad is None else tensors[grad]
        for (number, place), node in zip(effects.placed, self._nodes, strict=True):
            tensor = tensors[number]
            if tensor._requires_grad is not place.requires_grad:
                tensor._requires_grad = place.requires_grad
            if node is not None:
                tensor._node, tensor._output_nr = node, place.output_nr
        for number in effects.freed_nodes:
            node = self._inputs.nodes[number]
            node.saved, node.versions = FREED, ()
        for i in effects.program.analysis.freed:
            names.pop(ids[i], None)
        for i, number in effects.names:
            names[ids[i]] = tensors[number]
        try:
            self._count()
        except Exception:  # an array that is not counted is not subtracted later either
            logger.exception("the memory of a program's results was not counted")

    def _count(self) -> None:
        """Count the session's new memory."""
        effects, taken, accounts = self._effects, self._inputs.tensors, self._inputs.session.accounts
        for array in (*self._made, *self._saved):  # arrays without a name are gradients, or saved in the graph
            if array.nbytes > COUNTED:
                accounts.count(array)
        for _, number in effects.names:
            tensor = self._tensors[number]
            accounts.count(tensor._data)
            if tensor._base is not None:
                accounts.count(tensor._base._data)
        if self._run.replaces:
            accounts.recount([taken[position] for position, _ in effects.writes])
            accounts.recount(self._run.relocate(taken))
